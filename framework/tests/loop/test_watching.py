"""What each watch event changes in the cache and the queue, and whom it helps."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import SUCCESS, Action, model, on
from gangline.kube.interface import Handler
from gangline.kube.resources import (
    NAMESPACES,
    NODES,
    POD_GROUPS_V1BETA1,
    PODS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    Resource,
)
from gangline.loop.quarantine import Quarantine, what_a_pod_takes
from gangline.loop.watching import Cluster, NodeHandler, PodHandler, StoreHandler
from gangline.profile.recording import Condition, EventRecorder
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.waiting import PodAtPermit, WaitingPods
from gangline.state.cache import Cache
from gangline.telemetry.metrics import Metrics
from gangline.testing import SCHEDULER, FakeClock, make_node, make_pod

UID = "pod-default-p"


class World:
    """A cluster with its handlers; `heard` are the events that came to a rejected pod."""

    def __init__(self) -> None:
        self.cache, self.queue, self.waiting = Cache(), SchedulingQueue(), WaitingPods()
        self.clock, self.metrics = FakeClock(), Metrics()
        self.recorder = EventRecorder(self.clock, "host-1")
        self.waiting_pods: list[str] = []
        """Pods of which plugins were told that they wait."""
        self.heard: list[tuple[str, Any, Any]] = []
        self.cluster = Cluster(
            self.cache,
            self.queue,
            self.waiting,
            self.recorder,
            self.clock,
            lambda pod: self.waiting_pods.append(pod.name),
        )
        self.pods = self.guarded(PODS, PodHandler(self.cluster), what_a_pod_takes)
        self.nodes = self.guarded(NODES, NodeHandler(self.cluster))
        hints = [
            on(resource, action, self._hear(f"{resource} {action.name}"))
            for resource in ("pods", "nodes", "namespaces", SCHEDULER_PLUGINS_POD_GROUPS.key)
            for action in Action
        ]
        self.queue.serve(SCHEDULER, lambda pod, since: (since,), lambda pod: SUCCESS, {"Fit": hints})

    def _hear(self, what: str) -> Any:
        def hint(pod: Any, old: Any, new: Any) -> bool:
            self.heard.append((what, old, new))
            return False

        return hint

    @property
    def events(self) -> list[str]:
        return [what for what, _, _ in self.heard]

    def guarded(self, resource: Resource[Any], handler: Handler[Any], *more: Any) -> Quarantine[Any]:
        return Quarantine(resource, handler, self.recorder, self.metrics, *more)

    def listener(self) -> None:
        """Have a rejected pod that hears every event."""
        self.queue.add(self.cache.record(make_pod("listener")), 0.0)
        unit = self.queue.pop(0.0)
        assert unit is not None
        self.queue.requeue(unit, ["Fit"], "no", 0.0)

    def invalid(self, plural: str) -> float | None:
        return self.metrics.registry.get_sample_value("gangline_invalid_objects_total", {"resource": plural})


@pytest.fixture
def world() -> World:
    made = World()
    made.nodes.upsert(make_node("a"))
    made.listener()
    return made


def pod(node: str = "", phase: str = "", terminating: bool = False, **fields: Any) -> model.Pod:
    made = make_pod("p", cpu=fields.pop("cpu", 2), node=node, **fields)
    made.status.phase = phase
    made.metadata.deletion_timestamp = "2026-01-01T00:00:00Z" if terminating else None
    return made


def requested(world: World) -> list[int]:
    return world.cache.nodes.view().requested("cpu").tolist()


# Pods


def test_a_pod_without_node_that_is_ours_is_queued_and_wakes_the_scheduler(world: World) -> None:
    world.pods.upsert(pod())

    unit = world.queue.get(UID)
    assert unit is not None and unit.place == "active" and world.cluster.woken.is_set()
    assert world.waiting_pods == [unit.members[0].name]


def test_a_pod_of_another_scheduler_is_left_alone_until_it_has_a_node(world: World) -> None:
    world.pods.upsert(pod(scheduler_name="other"))
    assert world.queue.get(UID) is None and not world.cache.pods
    assert not world.waiting_pods

    world.pods.upsert(pod(scheduler_name="other", node="a"))

    assert requested(world) == [2000] and world.events == ["pods ADD"]


def test_a_pod_that_somebody_else_bound_leaves_the_queue(world: World) -> None:
    world.pods.upsert(pod())
    world.recorder.condition(Condition("default", "p", UID, "Unschedulable", "no"))

    world.pods.upsert(pod(node="a"))

    assert world.queue.get(UID) is None and requested(world) == [2000]
    assert world.recorder.next_condition() is None


@pytest.mark.parametrize("in_flight", [False, True], ids=["waits", "is being decided"])
def test_others_hear_of_the_room_that_was_kept_for_a_pod_on_another_node(world: World, in_flight: bool) -> None:
    meant = pod()
    meant.status.nominated_node_name = "b"
    world.pods.upsert(meant)
    assert set(world.queue.nominations.by_node) == {"b"}
    if in_flight:
        world.queue.remove("pod-default-listener")
        unit = world.queue.pop(world.clock.monotonic())
        assert unit is not None and unit.uid == UID
        world.listener()
    world.heard.clear()

    world.pods.upsert(pod(node="a"))

    assert world.events == ["pods DELETE", "pods ADD"]


def test_a_binding_of_ours_is_confirmed_without_counting_twice(world: World) -> None:
    world.pods.upsert(pod())
    world.queue.remove("pod-default-listener")
    unit = world.queue.pop(world.clock.monotonic())
    assert unit is not None
    world.cache.assume(unit.pod, 0)

    world.pods.upsert(pod())  # an echo of our own status patch
    assert world.cache.is_assumed(UID)
    world.pods.upsert(pod(node="a"))

    assert not world.cache.is_assumed(UID) and requested(world) == [2000]
    assert world.queue.get(UID) is unit and unit.place == "in flight"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_frees_what_it_held(world: World, phase: str) -> None:
    world.pods.upsert(pod(node="a"))

    world.pods.upsert(pod(node="a", phase=phase))

    assert requested(world) == [0] and world.events == ["pods ADD", "pods DELETE"]


def test_a_deleted_pod_frees_what_it_held_and_is_told_once(world: World) -> None:
    world.pods.upsert(pod(node="a"))

    world.pods.remove("default", "p", UID)
    world.pods.remove("default", "p", UID)

    assert requested(world) == [0] and world.events == ["pods ADD", "pods DELETE"]


def test_a_pod_that_has_lost_its_node_frees_what_it_held_and_is_queued(world: World) -> None:
    world.pods.upsert(pod(node="a"))

    world.pods.upsert(pod())

    unit = world.queue.get(UID)
    assert requested(world) == [0] and UID not in world.cache.pods
    assert unit is not None and unit.place == "active" and world.events == ["pods ADD", "pods DELETE"]


def test_a_waiting_pod_that_is_deleted_leaves_the_queue(world: World) -> None:
    world.pods.upsert(pod())

    world.pods.remove("default", "p", UID)

    assert world.queue.get(UID) is None


def test_a_waiting_pod_that_is_terminating_leaves_the_queue(world: World) -> None:
    world.pods.upsert(pod())

    world.pods.upsert(pod(terminating=True))

    assert world.queue.get(UID) is None


async def test_a_pod_held_at_permit_that_is_deleted_is_rejected(world: World) -> None:
    held = PodAtPermit(world.cache.record(pod()), "a", {"Gang"})
    world.waiting.add(held)

    world.pods.remove("default", "p", UID)

    assert held.verdict is not None and held.verdict.message == "the pod was deleted"


@pytest.mark.parametrize(
    ("changed", "events"),
    [
        (pod(node="a", labels={"app": "x"}), ["pods UPDATE_POD_LABEL"]),
        (pod(node="a", cpu=1), ["pods UPDATE_POD_SCALE_DOWN"]),
        (pod(node="a", cpu=3), []),
        (pod(node="a", terminating=True), ["pods UPDATE_OTHER"]),
        (pod(node="a", annotations={"a": "b"}), []),
    ],
    ids=["labels", "smaller", "larger", "terminating", "annotations"],
)
def test_a_change_of_a_bound_pod_is_told_where_it_may_help(world: World, changed: model.Pod, events: list[str]) -> None:
    world.pods.upsert(pod(node="a"))
    world.heard.clear()

    world.pods.upsert(changed)

    assert world.events == events


def test_an_invalid_pod_is_told_on_that_pod_and_harms_no_other(world: World) -> None:
    world.pods.upsert(pod(node="a"))

    world.pods.upsert(pod(node="a", cpu="lots"))
    world.pods.upsert(make_pod("q", cpu=1, node="a"))

    assert requested(world) == [1000] and world.invalid("pods") == 1
    event = world.recorder.next_event()
    assert isinstance(event, model.Event) and event.regarding is not None
    assert (event.reason, event.regarding.kind, event.regarding.name) == ("InvalidPod", "Pod", "p")
    assert event.note.startswith("spec.containers[0].resources.requests[cpu]: 'lots': not a quantity")


# Nodes


def test_an_invalid_node_is_told_on_that_node_and_takes_no_pods(world: World) -> None:
    world.pods.upsert(pod(node="a"))

    world.nodes.upsert(make_node("a", cpu="lots"))
    world.nodes.upsert(make_node("b"))

    assert sorted(name for name in world.cache.nodes.names if name) == ["b"] and world.invalid("nodes") == 1
    event = world.recorder.next_event()
    assert isinstance(event, model.Event) and event.reason == "InvalidNode"
    assert event.note.startswith("node a: status.allocatable[cpu]: 'lots'")
    world.nodes.upsert(make_node("a"))
    row = world.cache.nodes.row_of("a")
    assert row is not None and world.cache.nodes.pods_on[row].keys() == {UID}


def tainted(unschedulable: bool = False) -> model.Node:
    return make_node("a", taints=["x:NoSchedule"], unschedulable=unschedulable)


def with_condition(status: str) -> model.Node:
    node = make_node("a")
    node.status.conditions = [model.PodCondition("Ready", status)]
    return node


@pytest.mark.parametrize(
    ("changed", "events"),
    [
        (make_node("a", gpus=4), ["nodes UPDATE_NODE_ALLOCATABLE"]),
        (make_node("a", labels={"rack": "r"}), ["nodes UPDATE_NODE_LABEL"]),
        (tainted(), ["nodes UPDATE_NODE_TAINT"]),
        (make_node("a", unschedulable=True), ["nodes UPDATE_NODE_TAINT"]),
        (with_condition("True"), ["nodes UPDATE_NODE_CONDITION"]),
        (make_node("a", images={"app:1": 5}), ["nodes UPDATE_OTHER"]),
        (make_node("a"), []),
        (make_node("b"), ["nodes ADD"]),
    ],
    ids=["allocatable", "labels", "taints", "cordoned", "condition", "images", "nothing", "new"],
)
def test_a_change_of_a_node_is_told_by_what_changed(world: World, changed: model.Node, events: list[str]) -> None:
    world.nodes.upsert(changed)

    assert world.events == events


def test_a_deleted_node_is_told(world: World) -> None:
    world.nodes.remove("", "a", "")

    assert world.events == ["nodes DELETE"] and world.cache.nodes.count == 0


# Everything else


def test_kinds_that_share_a_plural_have_stores_of_their_own(world: World) -> None:
    group = model.PodGroup(model.ObjectMeta(name="g", namespace="default"))
    kinds = (POD_GROUPS_V1BETA1, SCHEDULER_PLUGINS_POD_GROUPS)
    second = SCHEDULER_PLUGINS_POD_GROUPS.key

    StoreHandler(world.cluster, SCHEDULER_PLUGINS_POD_GROUPS).upsert(group)

    assert [world.cache.store(kind).get("g", "default") for kind in kinds] == [None, group]
    assert second == "podgroups.v1alpha1.scheduling.x-k8s.io"
    assert world.events == [f"{second} ADD"]


def test_other_objects_are_kept_by_kind_and_told(world: World) -> None:
    handler = StoreHandler(world.cluster, NAMESPACES)
    first, second = (model.Namespace(model.ObjectMeta(name="ns", labels={"v": v})) for v in "12")

    handler.upsert(first)
    handler.upsert(second)
    assert world.cache.store(NAMESPACES).get("ns") is second
    handler.remove("", "ns", "")

    assert world.cache.store(NAMESPACES).get("ns") is None
    assert world.heard == [
        ("namespaces ADD", None, first),
        ("namespaces UPDATE_OTHER", first, second),
        ("namespaces DELETE", second, None),
    ]


def test_a_group_that_is_deleted_while_it_waits_is_an_event() -> None:
    world = World()
    world.listener()
    world.queue.serve("gangs", lambda pod, since: (since,), lambda pods: SUCCESS, {}, lambda pod: "a")
    for number in range(2):
        world.pods.upsert(make_pod(f"a-{number}", scheduler_name="gangs"))

    world.pods.remove("default", "a-0", "pod-default-a-0")
    assert not world.events
    world.pods.remove("default", "a-1", "pod-default-a-1")

    assert world.events == ["pods DELETE"]


def test_a_change_of_a_pod_that_is_being_bound_is_known_if_that_fails() -> None:
    world = World()
    world.nodes.upsert(make_node("a"))
    world.pods.upsert(make_pod("p"))
    unit = world.queue.pop(0.0)
    assert unit is not None
    world.cache.assume(unit.pod, 0)

    world.pods.upsert(make_pod("p", annotations={"note": "new"}))

    assert unit.pod.annotations == {"note": "new"} and world.cache.is_assumed(UID)


def test_a_pod_that_is_being_deleted_while_it_is_bound_is_not_queued_again() -> None:
    world = World()
    world.nodes.upsert(make_node("a"))
    world.pods.upsert(make_pod("p"))
    unit = world.queue.pop(0.0)
    assert unit is not None
    world.cache.assume(unit.pod, 0)
    dying = make_pod("p")
    dying.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"

    world.pods.upsert(dying)

    assert world.queue.get(UID) is None and unit.place == "gone"
