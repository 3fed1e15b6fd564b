"""`gangline explain` on a cluster: where a pod is and why, who judges it, gangs as gangs, claims that are missing."""

from __future__ import annotations

import io
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

import aiohttp
import msgspec
import pytest
from rich.console import Console

from gangline import config, model
from gangline.commands.answering import Answer, answer
from gangline.commands.explain import show
from gangline.commands.running import Judges, Running, find_running, judges
from gangline.config import SchedulerConfiguration
from gangline.errors import ConfigError, Forbidden, NotFound
from gangline.explain.targets import Target, parse
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient
from gangline.kube.interface import Client
from gangline.kube.resources import CONFIG_MAPS, DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, TOKEN_REVIEWS
from gangline.process.endpoints import Endpoints, Pages, Served
from gangline.process.serving import pages
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.testing import make_node, make_pod
from gangline.wire.custom_resources import CLAIM

from ..gang_cluster import PROFILE, GangCluster

GANGS = config.load(PROFILE, "test")
POD = Target("Pod", "default", "p")


def asked(cluster: SimulatedCluster, target: Target, by: Judges) -> Answer:
    return cluster.play(lambda: answer(SimulatedClient(cluster.server), target, by, cluster.clock))


def words(found: Answer) -> str:
    screen = Console(file=io.StringIO(), width=200)
    show(found, None, screen)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


async def chosen(files: tuple[str, ...] = (), profile: str | None = None, running: Running | None = None) -> Judges:
    return await judges(SimulatedClient(SimulatedCluster().server), files, profile, running)


def small(*nodes: model.Node) -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.create(NODES, *(nodes or (make_node("a"), make_node("b"))))
    return cluster


# Who judges


async def test_the_running_scheduler_judges_before_what_is_installed() -> None:
    running = Running("the running scheduler", GANGS)

    assert (await chosen(running=running)).serves == ["gangs"]
    assert (await chosen(profile="gpu-scheduler", running=running)).serves == ["gpu-scheduler"]
    assert "gpu-scheduler" in (await chosen()).serves


def test_a_pod_is_judged_by_the_installed_profile_that_serves_it() -> None:
    cluster = small(make_node("a", cpu=100), make_node("b", cpu=100))
    cluster.create(PODS, make_pod("there", gpus=1, node="a"), make_pod("p", gpus=1, scheduler_name="gpu-scheduler"))

    found = asked(cluster, POD, cluster.play(chosen))

    assert found.report is not None and found.report.best == ["a"]
    assert found.report.weights["NodeResourcesFit"] == 10


def test_a_name_that_nobody_serves_is_said_and_nothing_is_made_up() -> None:
    cluster = small()
    cluster.create(PODS, make_pod("p", scheduler_name="somebody-else"))

    found = asked(cluster, POD, Judges(GANGS, "the running scheduler", Running("the running scheduler", GANGS)))

    assert found.report is None
    assert "the running scheduler does not serve the schedulerName somebody-else: it serves gangs" in words(found)


def test_a_named_profile_judges_whatever_the_pod_names() -> None:
    cluster = small()
    cluster.create(PODS, make_pod("p", scheduler_name="somebody-else"))

    found = asked(cluster, POD, cluster.play(lambda: chosen(profile="gpu-scheduler")))

    assert found.report is not None and found.report.profile == "gpu-scheduler" and not found.notes


# Claims


def test_the_claims_of_a_pod_are_shown_with_what_they_wait_for() -> None:
    cluster = small()
    data = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]}}
    spec = msgspec.convert(data, model.ResourceClaimSpec)
    cluster.create(DEVICE_CLASSES, model.DeviceClass(model.ObjectMeta(name="other")))
    cluster.create(RESOURCE_CLAIMS, model.ResourceClaim(model.ObjectMeta(name="own", namespace="default"), spec))
    entries = [
        model.PodResourceClaim("one", resource_claim_name="own"),
        model.PodResourceClaim("two", resource_claim_template_name="pair"),
    ]
    cluster.create(PODS, make_pod("p", scheduler_name="gangs", resource_claims=entries))

    found = asked(cluster, POD, Judges(GANGS, "test"))

    assert [(each.claim, each.template, each.asks) for each in found.claims] == [
        ("default/own", "", "2 gpu"),
        ("", "pair", ""),
    ]
    text = words(found)
    assert "there is no DeviceClass gpu" in text
    assert "no ResourceClaim is made yet from the template pair for two" in text


class Narrow(SimulatedClient):
    """A client of a user who may not list devices and claims."""

    async def list(self, resource: Any, **more: Any) -> Any:
        """See the interface."""
        if resource.group == RESOURCE_CLAIMS.group:
            raise Forbidden(403, "Forbidden", f"{resource.plural} is forbidden")
        return await super().list(resource, **more)

    async def served(self, group: str, version: str) -> set[str]:
        """The devices in an old version alone."""
        if group == RESOURCE_CLAIMS.group:
            return {"resourceclaims", "resourceslices", "deviceclasses"} if version == "v1beta1" else set()
        return await super().served(group, version)


def test_who_may_not_list_devices_is_told_the_rest() -> None:
    cluster = small()
    cluster.create(PODS, make_pod("p", scheduler_name="gangs"))

    found = cluster.play(lambda: answer(Narrow(cluster.server), POD, Judges(GANGS, "test"), cluster.clock))

    assert found.report is not None and found.claims == ()


# Where a pod is


def test_a_bound_pod_has_its_node_and_the_decision_of_the_running_scheduler() -> None:
    cluster = small(make_node("a"), make_node("b", gpus=2))
    cluster.create(PODS, make_pod("p", gpus=4, scheduler_name="gangs"))

    async def story() -> tuple[Answer, Mapping[str, Any] | None]:
        client = SimulatedClient(cluster.server)
        async with cluster.scheduling(PROFILE, client) as scheduler:
            await cluster.until(lambda: cluster.bound() == {"p": "a"})
            pod = cluster.get(PODS, "p", "default")
            decision = scheduler.decisions.of(pod.metadata.uid)

            async def get(path: str) -> bytes:
                return config.show(GANGS).encode() if path == "/configz" else _encoded(decision)

            running = Running("the running scheduler", GANGS, [get])
            return await answer(client, POD, Judges(GANGS, running.where, running), cluster.clock), decision

    found, decision = cluster.play(story)

    assert decision is not None and (decision["node"], decision["feasibleNodes"]) == ("a", 1)
    assert [(placed.node, placed.decision) for placed in found.placed] == [("a", decision)]
    text = words(found)
    assert "default/p is on a" in text and "the only node that would do" in text
    assert "if it were to be placed now" in text


def test_where_nobody_remembers_why_that_is_said() -> None:
    cluster = small()
    cluster.create(PODS, make_pod("p", gpus=4, scheduler_name="gangs", node="b"))

    text = words(asked(cluster, POD, Judges(GANGS, "test")))

    assert "default/p is on b" in text and "why is not known" in text


def _encoded(decision: Mapping[str, Any] | None) -> bytes:
    return msgspec.json.encode(decision)


# Gangs and workloads


def test_a_waiting_gang_is_judged_as_a_whole() -> None:
    cluster = GangCluster()
    cluster.add_gang("train", 4)

    found = asked(cluster, Target("Pod", "default", "train-0"), Judges(GANGS, "test"))

    assert found.gang is not None and found.gang.min_member == 4
    assert {node[:2] for node in found.gang.places.values()} in ({"l0"}, {"l1"})
    assert "gang default/train" in words(found) and "would be placed on" in words(found)


def test_a_gang_that_has_no_room_says_why_as_a_gang() -> None:
    cluster = GangCluster()
    cluster.add_gang("train", 5)

    found = asked(cluster, Target("Pod", "default", "train-0"), Judges(GANGS, "test"))

    assert found.report is not None and len(found.report.feasible) == 8  # each of its pods has room on its own
    assert found.gang is not None and not found.gang.places
    assert "no placement for 5 pods" in found.gang.message and "no placement for 5 pods" in words(found)


def test_a_gang_that_is_not_complete_says_how_many_are_missing() -> None:
    cluster = GangCluster()
    cluster.add_group("train", 3)
    cluster.add_pods("train", 0)

    found = asked(cluster, Target("Pod", "default", "train-0"), Judges(GANGS, "test"))

    assert found.gang is not None and "1 of 3 are there" in found.gang.message


def test_members_that_have_succeeded_count_in_the_judgement_on_a_gang() -> None:
    cluster = GangCluster()
    cluster.add_gang("train", 3)
    for number in range(2):
        cluster.server.patch(PODS, f"train-{number}", {"status": {"phase": "Succeeded"}}, subresource="status")

    found = asked(cluster, Target("Pod", "default", "train-2"), Judges(GANGS, "test"))

    assert found.gang is not None and list(found.gang.places) == ["default/train-2"]


def test_a_workload_stands_for_all_of_its_pods() -> None:
    cluster = small()
    template = {"metadata": {}, "spec": {"schedulerName": "gangs", "containers": [{"name": "main", "image": "i"}]}}
    for name in ("train", "other"):
        cluster.server.apply_manifest(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name},
                "spec": {"parallelism": 2, "template": template},
            }
        )

    async def story() -> Answer:
        client = SimulatedClient(cluster.server)
        async with cluster.scheduling(PROFILE, client):
            await cluster.until(lambda: len(cluster.bound()) == 4)
            return await answer(client, parse("job/train", None), Judges(GANGS, "test"), cluster.clock)

    found = cluster.play(story)

    assert len(found.placed) == 2 and all(placed.pod.startswith("default/train-") for placed in found.placed)


@pytest.mark.parametrize(
    ("text", "namespace", "expected"),
    [
        ("p", None, Target("Pod", "default", "p")),
        ("p", "team", Target("Pod", "team", "p")),
        ("team/p", None, Target("Pod", "team", "p")),
        ("pod/p", "team", Target("Pod", "team", "p")),
        ("job/train", None, Target("Job", "default", "train")),
        ("deploy/web", "team", Target("Deployment", "team", "web")),
    ],
)
def test_pods_and_workloads_are_named_as_kubectl_names_them(text: str, namespace: str | None, expected: Target) -> None:
    assert parse(text, namespace) == expected


@pytest.mark.parametrize(("text", "namespace"), [("a/b/c", None), ("a/", None), ("nonsense/p", "team")])
def test_what_is_no_name_is_refused(text: str, namespace: str | None) -> None:
    with pytest.raises(ConfigError):
        parse(text, namespace)


# What is missing


def test_a_claim_that_is_missing_is_named() -> None:
    cluster = small()
    cluster.create(PODS, make_pod("p", scheduler_name="gangs", annotations={CLAIM: "pair"}))

    found = asked(cluster, POD, Judges(GANGS, "test"))

    assert "the pod names the GpuClaim default/pair, and there is none" in words(found)


@pytest.mark.parametrize(
    ("phase", "line"), [("Succeeded", "has ended on node a: Succeeded"), (None, "there is no such pod")]
)
def test_a_pod_that_cannot_be_asked_about_says_why(phase: str | None, line: str) -> None:
    cluster = small()
    if phase is not None:
        pod = make_pod("p", node="a")
        pod.status.phase = phase
        cluster.create(PODS, pod)

    with pytest.raises(ConfigError) as caught:
        asked(cluster, POD, Judges(GANGS, "test"))

    assert line in str(caught.value)


# The running scheduler


async def serving(story: Callable[[str, Credentials], Coroutine[Any, Any, None]]) -> None:
    """A scheduler's endpoint, and credentials for an API server that is not there."""
    decisions = {"uid-1": {"uid": "uid-1", "node": "a"}}

    def configuration() -> SchedulerConfiguration:
        return GANGS

    guarded = pages(configuration, decisions.get)
    served = Served(Endpoints("", "127.0.0.1:0"), Pages({}, {}, guarded=guarded), cast(Client, LetsIn()))
    await served.open()
    access = Access("http://127.0.0.1:9", "test", authorization="Bearer mine")
    try:
        await story(f"https://127.0.0.1:{served.secure_port}", Credentials(lambda: access))
    finally:
        await served.close()


class LetsIn:
    """The part of an API server that lets one token in, to everything."""

    async def create(self, resource: Any, review: Any, *, namespace: str | None = None) -> Any:
        if resource is TOKEN_REVIEWS:
            review.status.authenticated = review.spec.token == "mine"
        else:
            review.status.allowed = True
        return review

    async def get(self, resource: Any, name: str, *, namespace: str | None = None) -> Any:
        raise NotFound(404, "NotFound", name)


async def test_the_endpoint_tells_configuration_and_decisions() -> None:
    async def story(address: str, credentials: Credentials) -> None:
        async with HttpClient(credentials) as client:
            running = await find_running(client, address, credentials)
        assert running is not None and running.serves == ["gangs"]
        assert await running.decision("uid-1") == {"uid": "uid-1", "node": "a"}
        assert await running.decision("uid-2") is None

    await serving(story)


async def test_a_decision_that_is_not_remembered_is_404() -> None:
    async def story(address: str, credentials: Credentials) -> None:
        headers = {"Authorization": "Bearer mine"}
        async with aiohttp.request("GET", f"{address}/decisions/uid-2", headers=headers, ssl=False) as found:
            assert found.status == 404
        async with aiohttp.request("GET", f"{address}/decisions/uid-1", ssl=False) as found:
            assert found.status == 401

    await serving(story)


async def test_an_address_that_does_not_answer_is_named() -> None:
    credentials = Credentials(lambda: Access("http://127.0.0.1:9", "test"))
    async with HttpClient(credentials) as client:
        with pytest.raises(ConfigError) as caught:
            await find_running(client, "http://127.0.0.1:9", credentials)

    assert "http://127.0.0.1:9" in str(caught.value) and "object at" not in str(caught.value)


def test_without_an_endpoint_the_config_map_says_what_is_served() -> None:
    cluster = small()
    labels = {"app.kubernetes.io/name": "gangline", "app.kubernetes.io/component": "scheduler"}
    meta = model.ObjectMeta(name="gpu-scheduler-config", namespace="gpu", labels=labels)
    cluster.create(CONFIG_MAPS, model.ConfigMap(meta, {"config.yaml": PROFILE}))

    from gangline.commands.running import configured

    running = cluster.play(lambda: configured(SimulatedClient(cluster.server)))

    assert running is not None and running.serves == ["gangs"]
    assert "ConfigMap gpu/gpu-scheduler-config" in running.where
