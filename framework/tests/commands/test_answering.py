"""`gangline explain` on a cluster: where a pod is and why, who judges it, gangs as gangs, claims that are missing."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from rich.console import Console

from gangline import config, model
from gangline.commands.answering import Answer, GangReport, answer
from gangline.commands.explain import _plain, show
from gangline.commands.output import drawn, told
from gangline.commands.remedying import show_remedies
from gangline.commands.running import Judges, Running, judges
from gangline.errors import ConfigError, Forbidden, NotFound
from gangline.explain.targets import Target, parse
from gangline.kube.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS
from gangline.remedies import Remedies
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.testing import make_node, make_pod
from gangline.testing.gang_stories import PROFILE, GangCluster
from gangline.wire.custom_resources import CLAIM

GANGS = config.load(PROFILE, "test")
POD = Target("Pod", "default", "p")


def asked(cluster: SimulatedCluster, target: Target, by: Judges) -> Answer:
    return cluster.play(lambda: answer(SimulatedClient(cluster.server), target, by, cluster.clock))


def words(found: Answer) -> str:
    screen = Console(file=io.StringIO(), width=200)
    show(found, None, screen)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def chosen(files: tuple[str, ...] = (), profile: str | None = None, running: Running | None = None) -> Judges:
    return judges(files, profile, running)


def small(*nodes: model.Node) -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.create(NODES, *(nodes or (make_node("a"), make_node("b"))))
    return cluster


# Who judges


def test_the_running_scheduler_judges_before_what_is_installed() -> None:
    running = Running("the running scheduler", GANGS)

    assert chosen(running=running).serves == ["gangs"]
    assert chosen(profile="gpu-scheduler", running=running).serves == ["gpu-scheduler"]
    assert "gpu-scheduler" in chosen().serves


def test_a_pod_is_judged_by_the_installed_profile_that_serves_it() -> None:
    cluster = small(make_node("a", cpu=100), make_node("b", cpu=100))
    cluster.create(PODS, make_pod("there", gpus=1, node="a"), make_pod("p", gpus=1, scheduler_name="gpu-scheduler"))

    found = asked(cluster, POD, chosen())

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

    found = asked(cluster, POD, chosen(profile="gpu-scheduler"))

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

    assert "default/p is on b" in text and "no running scheduler could be asked (--scheduler URL says where)" in text


def test_a_scheduler_that_was_asked_and_has_forgotten_is_not_said_to_be_out_of_reach() -> None:
    async def forgotten(path: str) -> bytes:
        raise NotFound(404, "NotFound", f"{path} is not remembered")

    cluster = small()
    cluster.create(PODS, make_pod("p", gpus=4, scheduler_name="gangs", node="b"))

    text = words(asked(cluster, POD, Judges(GANGS, "test", Running("there", GANGS, [forgotten]))))

    assert "why is not known: no replica of the scheduler remembers the decision" in text and "--scheduler" not in text


@pytest.mark.parametrize(("node", "is_told"), [("b", True), ("", False)], ids=["placed", "waiting"])
def test_why_no_running_scheduler_could_be_asked_is_said_where_a_decision_is_missing(node: str, is_told: bool) -> None:
    cluster = small()
    cluster.create(PODS, make_pod("p", gpus=4, scheduler_name="gangs", node=node))
    by, client = Judges(GANGS, "test"), SimulatedClient(cluster.server)

    found = cluster.play(lambda: answer(client, POD, by, cluster.clock, unasked="there is no kubectl"))

    line = "note: decisions that a running scheduler remembers are not known: there is no kubectl\n"
    assert (line in words(found)) is is_told


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


# What would let it start


def test_what_would_let_a_gang_start_is_listed_and_the_gang_is_judged_as_before() -> None:
    cluster = GangCluster()
    cluster.add_gang("train", 5)

    found = asked(cluster, Target("Pod", "default", "train-0"), Judges(GANGS, "test"))

    assert found.gang is not None and "no placement for 5 pods" in found.gang.message
    text = words(found)
    assert "What would let it start (each alone is enough, the cheapest first):" in text
    assert "  1. Prefer the level leaf for the gang instead of requiring it.\n" in text
    assert "Let the gang start with 4 members instead of 5 (minMember)." in text


def test_remedies_are_in_the_json_of_a_case_and_of_a_cluster() -> None:
    cluster = small(make_node("a", gpus=2))
    cluster.create(PODS, make_pod("p", gpus=4, scheduler_name="gangs"))

    found = _plain(asked(cluster, POD, Judges(GANGS, "test")))

    remedies = msgspec.json.decode(told(found, "json", (), lambda _: None))["remedies"]
    assert remedies["unit"] == "pod default/p" and remedies["isComplete"]
    assert remedies["remedies"] == [
        {
            "kind": "SmallerRequests",
            "sentence": "Request 2 nvidia.com/gpu per pod instead of 4.",
            "values": {"resource": "nvidia.com/gpu", "quantity": "2", "from": "4"},
            "cost": {"interrupted": 0, "givenUp": 0.5, "changed": 1},
        }
    ]


def test_where_no_single_change_helps_that_is_said() -> None:
    cluster = small(make_node("a", taints=["team=a:NoSchedule"], unschedulable=True))
    cluster.create(PODS, make_pod("p", scheduler_name="gangs"))

    text = words(asked(cluster, POD, Judges(GANGS, "test")))

    assert re.search(r"No single change of \d that were tried would let it start\.", text)


def test_one_change_that_does_not_help_is_told_in_the_singular() -> None:
    text = drawn(lambda screen: show_remedies(Remedies("pod default/p", tried=1), None, screen))

    assert text == "\nThe one change that was tried would not let it start.\n"


def test_where_no_change_could_be_tried_none_is_counted() -> None:
    cluster = small(make_node("a"))  # with no GPUs, no taints, and nobody on it
    gone = model.NodeSelectorTerm(match_fields=[model.Requirement("metadata.name", "In", ["gone"])])
    affinity = model.Affinity(model.NodeAffinity(model.NodeSelector([gone])))
    cluster.create(PODS, make_pod("p", affinity=affinity, scheduler_name="gangs"))

    found = asked(cluster, POD, Judges(GANGS, "test"))

    assert found.remedies is not None and (found.remedies.tried, found.remedies.note) == (0, "")
    assert words(found).endswith("\nNo change was found that could be tried.\n")


def test_the_fields_of_a_gang_have_names_like_all_others() -> None:
    found = GangReport("team/train", "job", 4, {}, {}, "", 0.0, "no room")

    assert msgspec.to_builtins(found)["minMember"] == 4


def test_a_pod_with_a_node_or_with_a_place_has_no_remedies() -> None:
    cluster = small()
    cluster.create(PODS, make_pod("p", scheduler_name="gangs"), make_pod("q", scheduler_name="gangs", node="b"))

    assert "let it start" not in words(asked(cluster, POD, Judges(GANGS, "test")))
    assert asked(cluster, Target("Pod", "default", "q"), Judges(GANGS, "test")).remedies is None
