"""What goes over the wire to an extender, and what comes of its answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from gangline import Cycle, Reason, Victims
from gangline.config import Extender, ManagedResource, Seconds
from gangline.errors import ExtenderError
from gangline.extenders import Extenders, HttpAsker
from gangline.model import Container, ContainerPort, Node, OwnerReference, ResourceRequirements
from gangline.state.pods import PodInfo
from gangline.status import Code
from gangline.testing import cluster, make_node, make_pod

from .fake_extender import ExtenderServer

NODES: dict[str, Node] = {name: make_node(name) for name in ("a", "b", "c")}


class Patches:
    """The part of an API client that patches."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Mapping[str, Any]]] = []

    async def patch(self, resource: Any, name: str, patch: Mapping[str, Any], **options: Any) -> None:
        self.sent.append((name, patch))


def extender(server: ExtenderServer, **fields: Any) -> Extender:
    return Extender(url_prefix=fields.pop("url", server.url), **fields)


def asking(asker: HttpAsker, *configured: Extender, client: Any = None) -> Extenders:
    return Extenders(configured, asker, client)


def pod(**fields: Any) -> PodInfo:
    return cluster().record(make_pod("p", **fields))


async def test_filter_sends_the_pod_and_names_to_who_keeps_nodes_itself(
    server: ExtenderServer, asker: HttpAsker
) -> None:
    server.answers("filter", {"NodeNames": ["c", "a"], "FailedNodes": {"b": "too hot"}})
    extenders = asking(asker, extender(server, filter_verb="filter", node_cache_capable=True))

    verdicts = await extenders.filter(pod(cpu=1, labels={"app": "x"}), NODES)

    assert list(verdicts.passed) == ["c", "a"]
    assert verdicts.failed == {"b": Reason("too hot")}
    assert server.content_types == {"application/json"}
    assert server.bodies("filter") == [
        {
            "Pod": {
                "metadata": {
                    "name": "p",
                    "namespace": "default",
                    "uid": "pod-default-p",
                    "labels": {"app": "x"},
                    "annotations": {},
                },
                "spec": {
                    "containers": [{"name": "main", "image": "main:1", "resources": {"requests": {"cpu": 1}}}],
                    "schedulerName": "default-scheduler",
                },
                "status": {},
            },
            "Nodes": None,
            "NodeNames": ["a", "b", "c"],
        }
    ]


async def test_filter_sends_whole_nodes_to_everybody_else(server: ExtenderServer, asker: HttpAsker) -> None:
    server.answers("filter", {"Nodes": {"items": [{"metadata": {"name": "b"}, "spec": {"x": 1}}]}})
    extenders = asking(asker, extender(server, filter_verb="filter"))

    verdicts = await extenders.filter(pod(), {"a": NODES["a"], "b": NODES["b"]})

    assert list(verdicts.passed) == ["b"]
    (body,) = server.bodies("filter")
    assert body["NodeNames"] is None
    assert [node["metadata"]["name"] for node in body["Nodes"]["items"]] == ["a", "b"]
    assert body["Nodes"]["items"][0] == {
        "metadata": {"name": "a", "uid": "node-a", "labels": {"kubernetes.io/hostname": "a"}},
        "spec": {},
        "status": {"allocatable": {"cpu": "128", "memory": "1Ti", "pods": 110, "nvidia.com/gpu": 8}},
    }


async def test_defaults_of_the_api_server_are_written_out(server: ExtenderServer, asker: HttpAsker) -> None:
    server.answers("filter", {"NodeNames": []})
    extenders = asking(asker, extender(server, filter_verb="filter", node_cache_capable=True))
    made = make_pod("p", containers=[Container(name="main", ports=[ContainerPort(host_port=80)])], priority=7)
    made.metadata.owner_references = [OwnerReference(kind="Job", name="j", uid="1", controller=True)]

    await extenders.filter(cluster().record(made), NODES)

    sent = server.bodies("filter")[0]["Pod"]
    assert sent["spec"]["containers"][0]["ports"] == [{"hostPort": 80, "protocol": "TCP"}]
    assert sent["spec"]["priority"] == 7
    assert sent["metadata"]["ownerReferences"] == [{"kind": "Job", "name": "j", "uid": "1", "controller": True}]


async def test_answers_are_read_whatever_the_case_of_their_names(server: ExtenderServer, asker: HttpAsker) -> None:
    server.answers("filter", {"nodenames": ["a"], "nodes": None, "failedNodes": {"b": "no"}, "error": ""})
    server.answers("prioritize", [{"host": "a", "score": 3}])
    service = extender(server, filter_verb="filter", prioritize_verb="prioritize", weight=2, node_cache_capable=True)
    extenders = asking(asker, service)

    verdicts = await extenders.filter(pod(), {"a": NODES["a"], "b": NODES["b"]})

    assert (list(verdicts.passed), verdicts.failed) == (["a"], {"b": Reason("no")})
    assert await extenders.prioritize(pod(), NODES) == [{"a": 60.0}]


async def test_scores_are_scaled_to_those_of_plugins_and_weighted(server: ExtenderServer, asker: HttpAsker) -> None:
    server.answers("prioritize", [{"Host": "a", "Score": 10}, {"Host": "b", "Score": 1}])
    service = extender(server, prioritize_verb="prioritize", weight=5, node_cache_capable=True)

    scores = await asking(asker, service).prioritize(pod(), NODES)

    assert scores == [{"a": 500.0, "b": 50.0}]
    assert server.bodies("prioritize")[0]["NodeNames"] == ["a", "b", "c"]


async def test_a_failure_to_prioritize_adds_nothing_and_stops_nobody(
    server: ExtenderServer, asker: HttpAsker, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers("bad", {}, status=500)
    server.answers("good", [{"Host": "b", "Score": 1}])
    extenders = asking(
        asker,
        extender(server, prioritize_verb="bad", weight=1),
        extender(server, prioritize_verb="good", weight=1),
    )

    assert await extenders.prioritize(pod(), NODES) == [{}, {"b": 10.0}]
    assert f"failed bad with extender at URL {server.url}/bad, code 500" in caplog.text


async def test_bind_sends_who_and_where(server: ExtenderServer, asker: HttpAsker) -> None:
    server.answers("bind", {"Error": ""})
    patches = Patches()
    extenders = asking(asker, extender(server, bind_verb="bind"), client=patches)

    status = await extenders.bind(Cycle(), pod(), "a")

    assert status is not None and status.is_success
    assert server.bodies("bind") == [
        {"PodName": "p", "PodNamespace": "default", "PodUID": "pod-default-p", "Node": "a"}
    ]
    assert patches.sent == []


async def test_annotations_are_written_before_the_extender_binds(server: ExtenderServer, asker: HttpAsker) -> None:
    server.answers("bind", {})
    patches = Patches()
    cycle = Cycle()
    cycle.annotations["devices"] = "0,1"

    await asking(asker, extender(server, bind_verb="bind"), client=patches).bind(cycle, pod(), "a")

    assert patches.sent == [("p", {"metadata": {"uid": "pod-default-p", "annotations": {"devices": "0,1"}}})]


@pytest.mark.parametrize("ignorable", [False, True], ids=["needed", "ignorable"])
async def test_a_failed_binding_is_an_error_unless_the_plugins_may_bind_instead(
    server: ExtenderServer, asker: HttpAsker, ignorable: bool
) -> None:
    server.answers("bind", {"Error": "node is on fire"})
    extenders = asking(asker, extender(server, bind_verb="bind", ignorable=ignorable))

    status = await extenders.bind(Cycle(), pod(), "a")

    if ignorable:
        assert status is None
    else:
        assert status is not None and status.code is Code.ERROR
        assert status.message == f"extender {server.url}: bind: node is on fire"


async def test_an_extender_that_does_not_bind_leaves_it_to_the_plugins(asker: HttpAsker) -> None:
    unused = Extender(url_prefix="http://127.0.0.1:1", filter_verb="filter")

    assert await asking(asker, unused).bind(Cycle(), pod(), "a") is None


# Preempting


@pytest.mark.parametrize("by_name", [True, False], ids=["UIDs", "whole pods"])
async def test_preempt_sends_candidates_and_takes_what_is_left(
    server: ExtenderServer, asker: HttpAsker, by_name: bool
) -> None:
    cache = cluster(NODES.values(), [make_pod("low", node="a"), make_pod("lower", node="a"), make_pod("x", node="b")])
    low, lower, x = (cache.pods[f"pod-default-{name}"] for name in ("low", "lower", "x"))
    answer = {"a": {"Pods": [{"UID": low.uid}], "NumPDBViolations": 1}}
    server.answers("preempt", {"NodeNameToMetaVictims": answer})
    extenders = asking(asker, extender(server, preempt_verb="preempt", node_cache_capable=by_name))

    left = await extenders.review(pod(), {"a": Victims((low, lower), 2), "b": Victims((x,))}, cache.nodes)

    assert left == {"a": Victims((low,), 1)}
    (body,) = server.bodies("preempt")
    if by_name:
        assert body["NodeNameToVictims"] is None
        assert body["NodeNameToMetaVictims"] == {
            "a": {"Pods": [{"UID": low.uid}, {"UID": lower.uid}], "NumPDBViolations": 2},
            "b": {"Pods": [{"UID": x.uid}], "NumPDBViolations": 0},
        }
    else:
        assert body["NodeNameToMetaVictims"] is None
        sent = body["NodeNameToVictims"]["a"]
        assert [each["metadata"]["name"] for each in sent["Pods"]] == ["low", "lower"]
        assert sent["Pods"][0]["spec"]["nodeName"] == "a"
        assert sent["NumPDBViolations"] == 2


@pytest.mark.parametrize(
    ("victims", "why"),
    [
        ({"a": {"Pods": []}}, 'expected at least one victim pod on node "a"'),
        ({"a": None}, 'expected at least one victim pod on node "a"'),
        (
            {"a": {"Pods": [{"UID": "who"}]}},
            "claims to preempt pod (UID: who) on node: a, but the pod is not found on that node",
        ),
        ({"z": {"Pods": [{"UID": "who"}]}}, 'node "z" is not known'),
    ],
    ids=["no victims", "null", "unknown pod", "unknown node"],
)
async def test_wrong_victims_are_an_error(server: ExtenderServer, asker: HttpAsker, victims: Any, why: str) -> None:
    cache = cluster(NODES.values(), [make_pod("low", node="a")])
    candidates = {"a": Victims((cache.pods["pod-default-low"],))}
    server.answers("preempt", {"NodeNameToMetaVictims": victims})

    with pytest.raises(ExtenderError) as caught:
        await asking(asker, extender(server, preempt_verb="preempt")).review(pod(), candidates, cache.nodes)

    assert str(caught.value) == f"extender {server.url}: preempt: {why}"


async def test_an_ignorable_extender_may_name_no_victims(server: ExtenderServer, asker: HttpAsker) -> None:
    cache = cluster(NODES.values(), [make_pod("low", node="a")])
    candidates = {"a": Victims((cache.pods["pod-default-low"],))}
    server.answers("preempt", {"NodeNameToMetaVictims": {"a": {"Pods": []}}})
    extenders = asking(asker, extender(server, preempt_verb="preempt", ignorable=True))

    assert await extenders.review(pod(), candidates, cache.nodes) == {}


# Failures


def _fails_with_500(server: ExtenderServer) -> str:
    server.answers("filter", {}, status=500)
    return f"failed filter with extender at URL {server.url}/filter, code 500"


def _reports(server: ExtenderServer) -> str:
    server.answers("filter", {"NodeNames": ["a"], "Error": "out of order"})
    return "out of order"


def _is_silent(server: ExtenderServer) -> str:
    server.stays_silent("filter")
    return "no answer within 0.05s"


def _names_another_node(server: ExtenderServer) -> str:
    server.answers("filter", {"NodeNames": ["z"]})
    return 'claims a filtered node "z" which is not found in the input node list'


def _answers_nonsense(server: ExtenderServer) -> str:
    server.answers("filter", b"<html>")
    return "answered what cannot be read: JSON is malformed: invalid character (byte 0)"


def _limit(fails: Any) -> Seconds:
    """Long for an extender that answers: a busy machine is slow."""
    return Seconds(0.05 if fails is _is_silent else 30.0)


FAILURES = [_fails_with_500, _reports, _is_silent, _names_another_node, _answers_nonsense]


@pytest.mark.parametrize("fails", FAILURES, ids=[each.__name__.strip("_") for each in FAILURES])
async def test_a_failure_names_the_extender(server: ExtenderServer, asker: HttpAsker, fails: Any) -> None:
    why = fails(server)
    service = extender(server, filter_verb="filter", node_cache_capable=True, http_timeout=_limit(fails))

    with pytest.raises(ExtenderError) as caught:
        await asking(asker, service).filter(pod(), NODES)

    assert str(caught.value) == f"extender {server.url}: filter: {why}"


@pytest.mark.parametrize("fails", FAILURES, ids=[each.__name__.strip("_") for each in FAILURES])
async def test_a_failure_of_an_ignorable_extender_is_logged_and_changes_nothing(
    server: ExtenderServer, asker: HttpAsker, caplog: pytest.LogCaptureFixture, fails: Any
) -> None:
    why = fails(server)
    service = extender(
        server, filter_verb="filter", node_cache_capable=True, http_timeout=_limit(fails), ignorable=True
    )

    with caplog.at_level(logging.WARNING):
        verdicts = await asking(asker, service).filter(pod(), NODES)

    assert list(verdicts.passed) == ["a", "b", "c"]
    assert f"skipped an extender that is ignorable: extender {server.url}: filter: {why}" in caplog.text


async def test_an_extender_that_is_not_there_is_an_error(asker: HttpAsker) -> None:
    gone = Extender(url_prefix="http://127.0.0.1:1/x/", filter_verb="filter")

    with pytest.raises(ExtenderError, match=r"^extender http://127.0.0.1:1/x/: filter: Cannot connect to host"):
        await asking(asker, gone).filter(pod(), NODES)


# Several extenders


async def test_each_extender_is_asked_about_what_the_ones_before_left(server: ExtenderServer, asker: HttpAsker) -> None:
    server.answers("first", {"NodeNames": ["a", "b"], "FailedNodes": {"c": "first"}})
    server.answers("second", {"NodeNames": ["b"], "FailedAndUnresolvableNodes": {"a": "second"}})
    extenders = asking(
        asker, *(extender(server, filter_verb=verb, node_cache_capable=True) for verb in ("first", "second"))
    )

    verdicts = await extenders.filter(pod(), NODES)

    assert [(verb, body["NodeNames"]) for verb, body in server.asked] == [
        ("first", ["a", "b", "c"]),
        ("second", ["a", "b"]),
    ]
    assert list(verdicts.passed) == ["b"]
    assert verdicts.failed == {"c": Reason("first"), "a": Reason("second", resolvable=False)}


async def test_nobody_is_asked_when_no_node_is_left(server: ExtenderServer, asker: HttpAsker) -> None:
    server.answers("first", {"NodeNames": []})
    extenders = asking(
        asker, *(extender(server, filter_verb=verb, node_cache_capable=True) for verb in ("first", "second"))
    )

    await extenders.filter(pod(), NODES)

    assert [verb for verb, _ in server.asked] == ["first"]


async def test_ignorable_extenders_are_asked_last(server: ExtenderServer, asker: HttpAsker) -> None:
    for verb in ("first", "second"):
        server.answers(verb, {"NodeNames": ["a"]})
    extenders = asking(
        asker,
        extender(server, filter_verb="first", node_cache_capable=True, ignorable=True),
        extender(server, filter_verb="second", node_cache_capable=True),
    )

    await extenders.filter(pod(), NODES)

    assert [verb for verb, _ in server.asked] == ["second", "first"]


async def test_only_extenders_that_look_after_a_pod_are_asked(server: ExtenderServer, asker: HttpAsker) -> None:
    server.answers("filter", {"NodeNames": ["a"]})
    managed = (ManagedResource("example.com/fpga"),)
    service = extender(server, filter_verb="filter", node_cache_capable=True, managed_resources=managed)
    extenders = asking(asker, service)
    with_limit = Container(name="main", resources=ResourceRequirements(limits={"example.com/fpga": 1}))

    assert not extenders.decide_on(pod(cpu=1))
    assert list((await extenders.filter(pod(cpu=1), NODES)).passed) == ["a", "b", "c"]
    assert server.asked == []
    assert extenders.decide_on(pod(resources={"example.com/fpga": 1}))
    assert extenders.decide_on(pod(init_containers=[with_limit]))
    assert list((await extenders.filter(pod(containers=[with_limit]), NODES)).passed) == ["a"]
