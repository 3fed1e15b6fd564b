"""The whole scheduler with extenders, on a cluster in memory and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gangline import config
from gangline.kube.resources import NODES, PODS
from gangline.loop.scheduler import Options, Scheduler
from gangline.profile.registry import Catalog
from gangline.simulate import InMemoryServer, Kubelet, SimulatedClient, VirtualClock

from ..simulate.stories import in_virtual_time
from .fake_extender import InMemoryExtenders, Reply

URL = "http://extender"
FPGA = "example.com/fpga"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster(clock: VirtualClock) -> InMemoryServer:
    """Three nodes alike."""
    server = InMemoryServer(clock)
    for name in ("a", "b", "c"):
        server.apply_manifest(node(name))
    return server


def node(name: str, **allocatable: Any) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **allocatable}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod(name: str, node: str = "", priority: int = 0, **requests: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": requests}}], "priority": priority}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def asking_for(resource: str) -> dict[str, Any]:
    """The pod p with one of a resource."""
    requests: dict[str, Any] = {resource: "1"}
    return pod("p", **requests)


def only(*names: str, why: str = "wrong colour", field: str = "FailedNodes") -> Reply:
    """A filter that leaves these nodes."""

    def reply(body: Any) -> Any:
        left = [name for name in body["NodeNames"] if name in names]
        return {"NodeNames": left, field: {name: why for name in body["NodeNames"] if name not in names}}

    return reply


def prefers(**scores: int) -> Reply:
    return lambda body: [{"Host": name, "Score": scores.get(name, 0)} for name in body["NodeNames"]]


def extender(url: str = URL, **fields: Any) -> dict[str, Any]:
    return {"urlPrefix": url, "nodeCacheCapable": True, **fields}


def extenders(replies: Mapping[str, Reply], seconds: float = 0.0) -> InMemoryExtenders:
    """One extender's replies by verb."""
    return InMemoryExtenders({(URL, verb): reply for verb, reply in replies.items()}, seconds)


@asynccontextmanager
async def scheduling(
    cluster: InMemoryServer,
    clock: VirtualClock,
    asker: InMemoryExtenders,
    *configured: Mapping[str, Any],
    plugins: Sequence[str] = (),
) -> AsyncIterator[Scheduler]:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": configured,
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": name} for name in plugins]}}}],
    }
    loaded = config.load(msgspec.json.encode(document).decode(), "test")
    client = SimulatedClient(cluster)
    scheduler = Scheduler(loaded, client, clock, Catalog.discover(), Options(seed=1), asker=asker)
    tasks = [asyncio.create_task(work) for work in (scheduler.run(), Kubelet(cluster, clock).run())]
    yield scheduler
    for task in tasks:
        assert not task.done(), task.exception()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def place(cluster: InMemoryServer, name: str = "p") -> str:
    found: str = cluster.get(PODS, name).data["spec"].get("nodeName", "")
    return found


def message(scheduler: Scheduler) -> str:
    (unit,) = scheduler.queue
    return unit.message


@in_virtual_time
async def test_a_filter_decides_where_a_pod_goes(clock: VirtualClock, cluster: InMemoryServer) -> None:
    asker = extenders({"filter": only("c")})
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter")):
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1)

    assert place(cluster) == "c"


@pytest.mark.parametrize("best", ["a", "b", "c"])
def test_scores_decide_among_nodes_alike(best: str) -> None:
    clock = VirtualClock()
    server = InMemoryServer(clock)
    for name in ("a", "b", "c"):
        server.apply_manifest(node(name))

    @in_virtual_time
    async def story(clock: VirtualClock) -> None:
        asker = extenders({"prioritize": prefers(**{best: 1})})
        async with scheduling(server, clock, asker, extender(prioritizeVerb="prioritize", weight=1)):
            server.apply_manifest(pod("p", cpu="1"))
            await asyncio.sleep(1)

    story(clock=clock)

    assert place(server) == best


@in_virtual_time
async def test_scores_outweigh_those_of_plugins_by_their_weight(clock: VirtualClock, cluster: InMemoryServer) -> None:
    cluster.apply_manifest(pod("busy", node="b", cpu="6", memory="4Gi"))
    asker = extenders({"prioritize": prefers(b=10)})
    async with scheduling(cluster, clock, asker, extender(prioritizeVerb="prioritize", weight=100)):
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1)

    assert place(cluster) == "b"


@in_virtual_time
async def test_negative_scores_never_make_an_infeasible_node_the_best(
    clock: VirtualClock, cluster: InMemoryServer
) -> None:
    asker = extenders({"prioritize": prefers(a=-9, b=-8, c=-9)})
    cluster.apply_manifest(node("small", cpu="500m"))
    async with scheduling(cluster, clock, asker, extender(prioritizeVerb="prioritize", weight=1000)):
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1)

    assert place(cluster) == "b"
    assert asker.asked[0][2]["NodeNames"] == ["a", "b", "c"]


@in_virtual_time
async def test_nobody_is_asked_for_scores_when_one_node_is_left(clock: VirtualClock, cluster: InMemoryServer) -> None:
    asker = extenders({"filter": only("b"), "prioritize": prefers(a=10)})
    service = extender(filterVerb="filter", prioritizeVerb="prioritize", weight=1)
    async with scheduling(cluster, clock, asker, service):
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1)

    assert (place(cluster), asker.verbs()) == ("b", ["filter"])


@in_virtual_time
async def test_pods_that_nobody_looks_after_go_their_way_without_asking(
    clock: VirtualClock, cluster: InMemoryServer
) -> None:
    asker = extenders({})
    service = extender(filterVerb="filter", bindVerb="bind", managedResources=[{"name": FPGA}])
    async with scheduling(cluster, clock, asker, service):
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1)

    assert place(cluster)
    assert asker.asked == []


@in_virtual_time
async def test_a_resource_that_the_scheduler_is_to_ignore_is_left_to_the_extender(
    clock: VirtualClock, cluster: InMemoryServer
) -> None:
    asker = extenders({"filter": only("b")})
    managed = [{"name": FPGA, "ignoredByScheduler": True}]
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter", managedResources=managed)):
        cluster.apply_manifest(asking_for(FPGA))
        await asyncio.sleep(1)

    assert place(cluster) == "b"


@in_virtual_time
async def test_a_managed_resource_is_checked_unless_it_is_to_be_ignored(
    clock: VirtualClock, cluster: InMemoryServer
) -> None:
    asker = extenders({"filter": only("b")})
    service = extender(filterVerb="filter", managedResources=[{"name": FPGA}])
    async with scheduling(cluster, clock, asker, service) as scheduler:
        cluster.apply_manifest(asking_for(FPGA))
        await asyncio.sleep(1)

        assert f"3 Insufficient {FPGA}" in message(scheduler)
    assert asker.asked == []


@in_virtual_time
async def test_the_extender_binds_instead_of_the_plugins(clock: VirtualClock, cluster: InMemoryServer) -> None:
    def bind(body: Any) -> Any:
        cluster.bind(body["PodNamespace"], body["PodName"], body["PodUID"], body["Node"], {"by": "extender"})
        return {}

    asker = extenders({"bind": bind})
    async with scheduling(cluster, clock, asker, extender(bindVerb="bind")) as scheduler:
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1)

        assert list(scheduler.queue) == []
    assert cluster.get(PODS, "p").data["metadata"]["annotations"] == {"by": "extender"}
    assert asker.verbs() == ["bind"]


# Rejections


@in_virtual_time
async def test_a_rejection_says_what_the_extender_said(clock: VirtualClock, cluster: InMemoryServer) -> None:
    asker = extenders({"filter": only()})
    cluster.apply_manifest(node("small", cpu="500m"))
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter")) as scheduler:
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1)

        assert message(scheduler).startswith("0/4 nodes are available: 1 Insufficient cpu, 3 wrong colour. preemption:")
        (unit,) = scheduler.queue
        assert unit.rejected_by == {"Extender", "NodeResourcesFit"}
        assert unit.place == "unschedulable"


@in_virtual_time
async def test_any_event_brings_a_pod_back_that_an_extender_rejected(
    clock: VirtualClock, cluster: InMemoryServer
) -> None:
    allowed: list[str] = []
    asker = extenders({"filter": lambda body: only(*allowed)(body)})
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter")):
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(5)
        allowed.append("a")
        await asyncio.sleep(5)
        assert place(cluster) == ""

        cluster.apply_manifest({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}})
        await asyncio.sleep(5)

    assert place(cluster) == "a"


@in_virtual_time
async def test_an_error_is_tried_again_after_a_back_off(clock: VirtualClock, cluster: InMemoryServer) -> None:
    errors = ["busy"]

    def sometimes(body: Any) -> Any:
        return {"Error": errors.pop()} if errors else only("b")(body)

    asker = extenders({"filter": sometimes})
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter")) as scheduler:
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(0.5)
        assert message(scheduler) == f"extender {URL}: filter: busy"
        await asyncio.sleep(5)

    assert place(cluster) == "b"


# What happens while an extender thinks


@in_virtual_time
async def test_a_node_that_goes_away_meanwhile_is_not_taken(clock: VirtualClock, cluster: InMemoryServer) -> None:
    asker = extenders({"filter": only("a", "b", "c"), "prioritize": prefers(a=10)}, seconds=1)
    service = extender(filterVerb="filter", prioritizeVerb="prioritize", weight=1)
    async with scheduling(cluster, clock, asker, service):
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1.5)
        cluster.delete(NODES, "a")
        await asyncio.sleep(5)

    assert place(cluster) in ("b", "c")
    assert asker.verbs() == ["filter", "prioritize"]


@in_virtual_time
async def test_a_pod_is_tried_again_when_all_that_was_left_has_gone(
    clock: VirtualClock, cluster: InMemoryServer
) -> None:
    asker = extenders({"filter": lambda body: only("a" if "a" in body["NodeNames"] else "b")(body)}, seconds=1)
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter")) as scheduler:
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(0.5)
        cluster.delete(NODES, "a")
        await asyncio.sleep(1)
        assert message(scheduler) == "no node that the extenders left is still feasible"
        await asyncio.sleep(10)

    assert place(cluster) == "b"


@in_virtual_time
async def test_a_pod_that_is_deleted_meanwhile_is_forgotten(clock: VirtualClock, cluster: InMemoryServer) -> None:
    asker = extenders({"filter": only("a")}, seconds=2)
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter")) as scheduler:
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1)
        cluster.delete(PODS, "p", namespace="default")
        await asyncio.sleep(5)

        assert list(scheduler.queue) == []
        assert scheduler.cache.assumed == 0
    assert asker.verbs() == ["filter"]


@in_virtual_time
async def test_a_pod_that_is_bound_by_others_meanwhile_is_left_alone(
    clock: VirtualClock, cluster: InMemoryServer
) -> None:
    asker = extenders({"filter": only("a")}, seconds=2)
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter")) as scheduler:
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1)
        cluster.bind("default", "p", "", "c", {})
        await asyncio.sleep(5)

        assert list(scheduler.queue) == []
        assert scheduler.cache.assumed == 0
    assert place(cluster) == "c"


@in_virtual_time
async def test_one_pod_is_decided_at_a_time(clock: VirtualClock, cluster: InMemoryServer) -> None:
    running: list[str] = []
    most = 0

    def reply(body: Any) -> Any:
        running.remove(body["Pod"]["metadata"]["name"])
        return only("a")(body)

    class Counting(InMemoryExtenders):
        async def ask(self, endpoint: Any, verb: str, body: bytes) -> bytes:
            nonlocal most
            running.append(msgspec.json.decode(body)["Pod"]["metadata"]["name"])
            most = max(most, len(running))
            return await super().ask(endpoint, verb, body)

    asker = Counting({(URL, "filter"): reply}, 1)
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter")):
        for name in ("p", "q"):
            cluster.apply_manifest(pod(name, cpu="1"))
        await asyncio.sleep(10)

    assert (place(cluster, "p"), place(cluster, "q"), most) == ("a", "a", 1)


# Preemption


def fill(cluster: InMemoryServer) -> None:
    """One pod on each node that could be preempted, the one on a being the cheapest."""
    for priority, name in enumerate(("a", "b", "c"), start=1):
        cluster.apply_manifest(pod(f"low-{name}", node=name, priority=priority, cpu="6"))


def victims_on(*names: str) -> Reply:
    """A preempting extender that leaves candidates on these nodes."""

    def reply(body: Any) -> Any:
        candidates = body["NodeNameToMetaVictims"]
        return {"NodeNameToMetaVictims": {name: candidates[name] for name in names}}

    return reply


def remaining(cluster: InMemoryServer) -> list[str]:
    return [each.data["metadata"]["name"] for each in cluster.list(PODS) if each.data["metadata"]["name"] != "p"]


@in_virtual_time
async def test_an_extender_has_a_say_in_whom_a_pod_preempts(clock: VirtualClock, cluster: InMemoryServer) -> None:
    fill(cluster)
    asker = extenders({"preempt": victims_on("b", "c")})
    async with scheduling(cluster, clock, asker, extender(preemptVerb="preempt")):
        cluster.apply_manifest(pod("p", priority=10, cpu="6"))
        await asyncio.sleep(5)

    assert sorted(asker.asked[0][2]["NodeNameToMetaVictims"]) == ["a", "b", "c"]
    assert remaining(cluster) == ["low-a", "low-c"]
    assert place(cluster) == "b"


@in_virtual_time
async def test_nothing_is_preempted_when_the_extender_leaves_no_candidate(
    clock: VirtualClock, cluster: InMemoryServer
) -> None:
    fill(cluster)
    asker = extenders({"preempt": victims_on()})
    async with scheduling(cluster, clock, asker, extender(preemptVerb="preempt")) as scheduler:
        cluster.apply_manifest(pod("p", priority=10, cpu="6"))
        await asyncio.sleep(5)

        assert message(scheduler) == (
            "0/3 nodes are available: 3 Insufficient cpu. preemption: no candidate node for preemption"
        )
    assert len(remaining(cluster)) == 3


@in_virtual_time
async def test_nothing_is_preempted_when_the_extender_fails(clock: VirtualClock, cluster: InMemoryServer) -> None:
    fill(cluster)
    asker = extenders({"preempt": lambda body: {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "who"}]}}}})
    async with scheduling(cluster, clock, asker, extender(preemptVerb="preempt")) as scheduler:
        cluster.apply_manifest(pod("p", priority=10, cpu="6"))
        await asyncio.sleep(5)

        assert f"preemption: extender {URL}: preempt: claims to preempt pod (UID: who)" in message(scheduler)
    assert len(remaining(cluster)) == 3


@pytest.mark.parametrize("field", ["FailedNodes", "FailedAndUnresolvableNodes"])
def test_nodes_that_an_extender_calls_unresolvable_are_not_preempted_on(field: str) -> None:
    clock = VirtualClock()
    server = InMemoryServer(clock)
    server.apply_manifest(node("a"))
    server.apply_manifest(pod("low", node="a", cpu="2"))
    asker = extenders({"filter": only(field=field), "preempt": lambda body: {"NodeNameToMetaVictims": {}}})

    @in_virtual_time
    async def story(clock: VirtualClock) -> str:
        service = extender(filterVerb="filter", preemptVerb="preempt")
        async with scheduling(server, clock, asker, service) as scheduler:
            server.apply_manifest(pod("p", priority=10, cpu="1"))
            await asyncio.sleep(5)
            return message(scheduler)

    said = story(clock=clock)

    helpless = {
        "FailedNodes": "1 No preemption victims found for incoming pod",
        "FailedAndUnresolvableNodes": "1 Preemption is not helpful for scheduling",
    }
    assert said == (f"0/1 nodes are available: 1 wrong colour. preemption: 0/1 nodes are available: {helpless[field]}.")


@in_virtual_time
async def test_the_nominated_node_is_asked_about_alone(clock: VirtualClock, cluster: InMemoryServer) -> None:
    fill(cluster)
    asker = extenders({"filter": only("a", "b", "c"), "preempt": victims_on("b")})
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter", preemptVerb="preempt")):
        cluster.apply_manifest(pod("p", priority=10, cpu="6"))
        await asyncio.sleep(5)

    assert place(cluster) == "b"
    assert [body["NodeNames"] for _, verb, body in asker.asked if verb == "filter"] == [["b"]]


# A new configuration


@in_virtual_time
async def test_extenders_come_and_go_with_the_configuration(clock: VirtualClock, cluster: InMemoryServer) -> None:
    asker = extenders({"filter": only("c")})
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter")) as scheduler:
        with_extenders = scheduler.config
        scheduler.use(msgspec.structs.replace(with_extenders, extenders=()))
        cluster.apply_manifest(pod("p", cpu="1"))
        await asyncio.sleep(1)
        assert place(cluster)
        assert asker.asked == []

        scheduler.use(with_extenders)
        cluster.apply_manifest(pod("q", cpu="1"))
        await asyncio.sleep(1)

    assert place(cluster, "q") == "c"
