"""status.nominatedNodeName of pods whose binding takes long: written before, and taken back when the binding fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gangline import SKIP, Handle, PodInfo, Status, hookimpl, unschedulable, wait
from gangline.errors import Unavailable
from gangline.kube.resources import NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS, Resource
from gangline.loop.binding import SOON
from gangline.loop.scheduler import Options
from gangline.model import LocalName
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.testing import make_node, make_pod
from gangline.testing.gang_stories import ONE_LEAF, GangCluster, profile_with
from gangline.testing.gangs import GROUP

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {{multiPoint: {{enabled: [{{name: {plugin}}}]}}}}
"""


class Slow:
    """Waits in pre_bind with the pods that ask for it, until the test lets them go."""

    name = "Slow"
    go = asyncio.Event()
    held: list[str] = []  # noqa: RUF012  # the test clears the list
    answer: Status | None = None

    @hookimpl
    def pre_bind_pre_flight(self, pod: PodInfo) -> Status | None:
        return None if "slow" in pod.annotations else SKIP

    @hookimpl
    async def pre_bind(self, pod: PodInfo) -> Status | None:
        type(self).held.append(pod.name)
        await self.go.wait()
        return self.answer


class Gatekeeper:
    """Holds every pod at permit until the test lets the pods go."""

    name = "Gatekeeper"
    handle: Handle

    def __init__(self, handle: Handle) -> None:
        type(self).handle = handle

    @hookimpl
    def permit(self, pod: PodInfo) -> Status:
        return wait(300.0)


class Quick:
    """Has something to do at pre_bind, and does not say for which pods."""

    name = "Quick"

    @hookimpl
    async def pre_bind(self) -> None:
        return None


@pytest.fixture(autouse=True)
def _anew() -> None:
    Slow.go, Slow.held, Slow.answer = asyncio.Event(), [], None


class Requests:
    """The patches of pods that the API server gets; `refused` fails them."""

    def __init__(self, refused: bool = False) -> None:
        self.pods: list[str] = []
        self._refused = refused

    def __call__(self, verb: str, resource: Resource[Any], name: str) -> Exception | None:
        if (verb, resource) != ("patch", PODS):
            return None
        self.pods.append(name)
        return Unavailable(0, "", "cut off") if self._refused else None


def nominated(cluster: SimulatedCluster, name: str) -> str:
    return cluster.get(PODS, name).status.nominated_node_name


def two_nodes() -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a", cpu=4), make_node("b", cpu=4))
    return cluster


def play(
    cluster: SimulatedCluster, plugin: type[Any], story: Callable[[], Any], requests: Requests, gate: bool = True
) -> None:
    async def played() -> None:
        client = SimulatedClient(cluster.server, latency={"patch": 0.1, "bind": 0.1}, faults=requests)
        options = Options(seed=0, tells_expected_nodes=gate)
        configuration = PROFILE.format(plugin=plugin.name)
        async with cluster.scheduling(configuration, client, plugins=[plugin], options=options):
            await story()

    cluster.play(played)


def test_the_node_is_told_while_a_pre_bind_takes_long_and_gone_with_the_binding() -> None:
    cluster, requests = two_nodes(), Requests()
    cluster.create(PODS, make_pod("p", annotations={"slow": "yes"}), make_pod("other"))

    async def story() -> None:
        await cluster.until(lambda: bool(nominated(cluster, "p")) and bool(cluster.bound("other")))
        told = nominated(cluster, "p")
        assert told in ("a", "b")
        Slow.go.set()
        await cluster.until(lambda: cluster.bound("p") == {"p": told})

    play(cluster, Slow, story, requests)

    assert (Slow.held, requests.pods, nominated(cluster, "p")) == (["p"], ["p"], "")


class Soon:
    """Has something to do at pre_bind for every pod, and does so within a moment."""

    name = "Soon"

    @hookimpl
    def pre_bind_pre_flight(self) -> None:
        return None

    @hookimpl
    async def pre_bind(self) -> None:
        await asyncio.sleep(SOON / 2)


@pytest.mark.parametrize("plugin", [Slow, Quick, Soon], ids=["nothing to do", "no pre-flight", "over soon"])
def test_a_quick_binding_costs_no_write(plugin: type[Any]) -> None:
    cluster, requests = two_nodes(), Requests()
    cluster.create(PODS, *(make_pod(f"p-{n}") for n in range(4)))

    async def story() -> None:
        await cluster.until(lambda: len(cluster.bound()) == 4)

    play(cluster, plugin, story, requests)

    assert requests.pods == [] and Slow.held == []


def test_with_the_gate_off_nothing_is_told_and_every_pre_bind_is_called() -> None:
    cluster, requests = two_nodes(), Requests()
    cluster.create(PODS, make_pod("p", annotations={"slow": "yes"}), make_pod("other"))

    async def story() -> None:
        await cluster.until(lambda: len(Slow.held) == 2)
        assert nominated(cluster, "p") == ""
        Slow.go.set()
        await cluster.until(lambda: len(cluster.bound()) == 2)

    play(cluster, Slow, story, requests, gate=False)

    assert requests.pods == []


def test_a_pod_that_waits_at_permit_is_told_too() -> None:
    cluster, requests = two_nodes(), Requests()
    cluster.create(PODS, make_pod("p"))

    async def story() -> None:
        await cluster.until(lambda: nominated(cluster, "p") != "")
        for held in Gatekeeper.handle.waiting.held_by("Gatekeeper"):
            held.allow("Gatekeeper")
        await cluster.until(lambda: "p" in cluster.bound())

    play(cluster, Gatekeeper, story, requests)

    assert requests.pods == ["p"]


def test_a_binding_that_fails_takes_the_nomination_back() -> None:
    cluster, requests = two_nodes(), Requests()
    cluster.create(PODS, make_pod("p", annotations={"slow": "yes"}))
    Slow.answer = unschedulable("no volume")

    async def story() -> None:
        await cluster.until(lambda: nominated(cluster, "p") != "")
        Slow.go.set()
        await cluster.until(lambda: "no volume" in cluster.message("p") and nominated(cluster, "p") == "")

    play(cluster, Slow, story, requests)


def test_a_nomination_that_cannot_be_written_keeps_no_pod_from_being_bound() -> None:
    cluster, requests = two_nodes(), Requests(refused=True)
    cluster.create(PODS, make_pod("p", annotations={"slow": "yes"}))

    async def story() -> None:
        await cluster.until(lambda: bool(requests.pods))
        Slow.go.set()
        await cluster.until(lambda: "p" in cluster.bound())

    play(cluster, Slow, story, requests)

    assert set(requests.pods) == {"p"}


def test_a_pod_that_is_nominated_to_the_node_already_is_not_written_again() -> None:
    cluster, requests = two_nodes(), Requests()
    pod = make_pod("p", annotations={"slow": "yes"})
    pod.status.nominated_node_name = "b"
    cluster.create(PODS, pod)
    Slow.go.set()

    async def story() -> None:
        await cluster.until(lambda: cluster.bound() == {"p": "b"})

    play(cluster, Slow, story, requests)

    assert requests.pods == []


class Wrong:
    """Rejects a pod where that is too late."""

    name = "Wrong"

    @hookimpl
    def pre_bind_pre_flight(self) -> Status:
        return unschedulable("too late")

    @hookimpl
    async def pre_bind(self) -> None:
        return None


def test_a_rejection_in_the_pre_flight_is_an_error_of_the_plugin() -> None:
    cluster, requests = two_nodes(), Requests()
    cluster.create(PODS, make_pod("p"))

    async def story() -> None:
        await cluster.until(lambda: "too late" in cluster.message("p"))

    play(cluster, Wrong, story, requests)

    condition = next(each for each in cluster.get(PODS, "p").status.conditions if each.type == "PodScheduled")
    assert condition.reason == "SchedulerError" and not cluster.bound()


# What others write


def test_other_pods_leave_the_room_to_a_pod_that_somebody_else_has_nominated_until_it_is_taken_back() -> None:
    cluster, requests = SimulatedCluster(), Requests()
    cluster.create(NODES, make_node("a", cpu=4))
    gated = make_pod("first", cpu=3, scheduling_gates=[LocalName("later")])
    gated.status.nominated_node_name = "a"
    cluster.create(PODS, gated)

    async def story() -> None:
        await cluster.until(lambda: bool(cluster.message("first")) or not cluster.bound())
        cluster.create(PODS, make_pod("second", cpu=3))
        await cluster.until(lambda: bool(cluster.message("second")))
        cluster.server.patch(PODS, "first", {"status": {"nominatedNodeName": None}}, subresource="status")
        await cluster.until(lambda: "second" in cluster.bound())

    play(cluster, Quick, story, requests)


def test_when_a_nominated_pod_is_deleted_others_get_its_room() -> None:
    cluster, requests = SimulatedCluster(), Requests()
    cluster.create(NODES, make_node("a", cpu=4))
    gated = make_pod("first", cpu=3, scheduling_gates=[LocalName("later")])
    gated.status.nominated_node_name = "a"
    cluster.create(PODS, gated, make_pod("second", cpu=3))

    async def story() -> None:
        await cluster.until(lambda: bool(cluster.message("second")))
        cluster.server.delete(PODS, "first")
        assert await cluster.until(lambda: "second" in cluster.bound()) < 30.0

    play(cluster, Quick, story, requests)


# Gangs


def play_gang(cluster: GangCluster, story: Callable[[], Any], requests: Requests) -> None:
    async def played() -> None:
        client = SimulatedClient(cluster.server, latency={"patch": 0.1, "bind": 0.1}, faults=requests)
        async with cluster.scheduling(profile_with("Slow"), client, plugins=[Slow]):
            await story()

    cluster.play(played)


def nominate(cluster: GangCluster, *pods: str) -> None:
    """Somebody says that these pods are meant for the first nodes of the leaf."""
    for number, pod in enumerate(pods):
        status = {"status": {"nominatedNodeName": f"l0-n{number}"}}
        cluster.server.patch(PODS, pod, status, namespace="default", subresource="status")


def test_members_of_an_incomplete_group_keep_no_room_from_others() -> None:
    cluster, requests = GangCluster(leaves=1), Requests()
    cluster.add_group("g", 3)
    cluster.add_pods("g", 0, 1)
    nominate(cluster, "g-0", "g-1")

    async def story() -> None:
        cluster.add_gang("other", 4)
        await cluster.until(lambda: len(cluster.bound("other")) == 4, 5.0)

    play_gang(cluster, story, requests)


def test_the_nodes_of_all_members_are_told_if_one_takes_long() -> None:
    cluster, requests = GangCluster(), Requests()
    cluster.add_group("g", 3)
    cluster.add_pods("g", 0, 1)
    cluster.add_pods("g", 2, annotations={**ONE_LEAF, "slow": "yes"})

    async def story() -> None:
        await cluster.until(lambda: Slow.held == ["g-2"])
        told = {f"g-{n}": nominated(cluster, f"g-{n}") for n in range(3)}
        assert len(set(told.values())) == 3 and "" not in told.values() and not cluster.bound()
        Slow.go.set()
        await cluster.until(lambda: cluster.bound() == told)

    play_gang(cluster, story, requests)

    assert sorted(requests.pods) == ["g-0", "g-1", "g-2"]


def test_a_gang_that_is_bound_at_once_costs_no_write() -> None:
    cluster, requests = GangCluster(), Requests()
    cluster.add_gang("g", 4)

    async def story() -> None:
        await cluster.until(lambda: len(cluster.bound()) == 4)

    play_gang(cluster, story, requests)

    assert requests.pods == []


def test_when_one_member_fails_the_nominations_of_all_are_taken_back() -> None:
    cluster, requests = GangCluster(), Requests()
    cluster.add_gang("g", 2, annotations={**ONE_LEAF, "slow": "yes"})
    Slow.answer = unschedulable("no volume")

    async def story() -> None:
        await cluster.until(lambda: len(Slow.held) == 2 and nominated(cluster, "g-1") != "")
        Slow.go.set()
        await cluster.until(lambda: not any(nominated(cluster, f"g-{n}") for n in range(2)))
        assert "no volume" in cluster.message("g-0")

    play_gang(cluster, story, requests)


def test_a_gang_goes_first_to_the_nodes_that_somebody_else_has_nominated() -> None:
    cluster, requests = GangCluster(leaves=3), Requests()
    cluster.add_group("g", 3)
    for number in range(3):
        pod = make_pod(f"g-{number}", gpus=8, scheduler_name="gangs", labels={GROUP: "g"}, annotations=ONE_LEAF)
        pod.status.nominated_node_name = f"l2-n{number + 1}"
        cluster.create(PODS, pod)

    async def story() -> None:
        await cluster.until(lambda: len(cluster.bound()) == 3)

    play_gang(cluster, story, requests)

    assert set(cluster.bound().values()) == {"l2-n1", "l2-n2", "l2-n3"}


def test_when_a_group_becomes_incomplete_others_get_its_room() -> None:
    cluster, requests = GangCluster(leaves=1), Requests()
    cluster.add_gang("g", 5)
    nominate(cluster, "g-0", "g-1")

    async def story() -> None:
        await cluster.until(lambda: bool(cluster.message("g-0")))
        cluster.add_gang("other", 4)
        await cluster.until(lambda: bool(cluster.message("other-0")))
        assert not cluster.bound()
        cluster.server.delete(PODS, "g-4", namespace="default", grace_period_seconds=0)
        await cluster.until(lambda: len(cluster.bound("other")) == 4, 30.0)

    play_gang(cluster, story, requests)


def test_when_a_nominated_pod_moves_to_an_incomplete_group_others_get_its_room() -> None:
    cluster, requests = GangCluster(leaves=1), Requests()
    cluster.add_group("h", 3)
    cluster.add_gang("g", 5)
    nominate(cluster, "g-0")

    async def story() -> None:
        await cluster.until(lambda: bool(cluster.message("g-0")))
        cluster.create(PODS, *(make_pod(f"s-{n}", gpus=8, scheduler_name="gangs") for n in range(4)))
        await cluster.until(lambda: len(cluster.bound("s")) == 3 and bool(cluster.message("s-3")))
        cluster.server.patch(PODS, "g-0", {"metadata": {"labels": {GROUP: "h"}}}, namespace="default")
        await cluster.until(lambda: len(cluster.bound("s")) == 4, 60.0)

    play_gang(cluster, story, requests)


def gated_gang(cluster: GangCluster) -> None:
    """A gang of which all members are there, each with a gate; somebody has nominated three of them."""
    cluster.add_group("g", 4)
    for number in range(4):
        pod = make_pod(
            f"g-{number}",
            gpus=8,
            scheduler_name="gangs",
            labels={GROUP: "g"},
            scheduling_gates=[LocalName("later")],
        )
        pod.status.nominated_node_name = f"l0-n{number}" if number < 3 else ""
        cluster.create(PODS, pod)


async def others_have_been_tried(cluster: GangCluster) -> None:
    """Four pods that want a node each come, and are bound or rejected."""
    cluster.create(PODS, *(make_pod(f"s-{n}", gpus=8, scheduler_name="gangs") for n in range(4)))
    await cluster.until(lambda: all(cluster.message(f"s-{n}") or f"s-{n}" in cluster.bound() for n in range(4)))


def test_other_pods_leave_the_room_to_a_whole_gang_that_is_gated_until_a_member_goes() -> None:
    cluster, requests = GangCluster(leaves=1), Requests()
    gated_gang(cluster)

    async def story() -> None:
        await others_have_been_tried(cluster)
        assert list(cluster.bound().values()) == ["l0-n3"]
        cluster.server.delete(PODS, "g-3", namespace="default", grace_period_seconds=0)
        await cluster.until(lambda: len(cluster.bound("s")) == 4, 60.0)

    play_gang(cluster, story, requests)


def test_when_a_member_of_a_gated_gang_moves_to_another_group_others_get_the_room() -> None:
    cluster, requests = GangCluster(leaves=1), Requests()
    gated_gang(cluster)

    async def story() -> None:
        await others_have_been_tried(cluster)
        cluster.server.patch(PODS, "g-3", {"metadata": {"labels": {GROUP: "h"}}}, namespace="default")
        await cluster.until(lambda: len(cluster.bound("s")) == 4, 60.0)

    play_gang(cluster, story, requests)


def test_when_more_members_are_needed_for_a_gated_gang_others_get_the_room() -> None:
    cluster, requests = GangCluster(leaves=1), Requests()
    gated_gang(cluster)

    async def story() -> None:
        await others_have_been_tried(cluster)
        assert list(cluster.bound().values()) == ["l0-n3"]
        more = {"spec": {"minMember": 5}}
        cluster.server.patch(SCHEDULER_PLUGINS_POD_GROUPS, "g", more, namespace="default")
        await cluster.until(lambda: len(cluster.bound("s")) == 4, 60.0)

    play_gang(cluster, story, requests)
