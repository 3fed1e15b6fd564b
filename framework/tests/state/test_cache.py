"""The cache is the sum of what happened: after any history every column equals one that is built from scratch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gangline import model
from gangline.errors import InvalidObject, PluginError
from gangline.kube.resources import SERVICES
from gangline.state.cache import ASSUMED_LIFETIME, Cache
from gangline.state.pods import PodInfo
from gangline.state.transaction import Transaction
from gangline.testing import cluster, make_node, make_pod
from gangline.testing import random_clusters as some

Command = tuple[str, int, int]
Placed = dict[str, tuple[model.Pod, str]]


class Placements:
    """A tracker that keeps who is where, and what it was told of them."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, dict[str, int], dict[str, str], list[str]]] = {}

    def add(self, pod: PodInfo, row: int) -> None:
        assert pod.uid not in self.rows
        self.rows[pod.uid] = row, *self._said(pod)

    def remove(self, pod: PodInfo, row: int) -> None:
        assert self.rows.pop(pod.uid) == (row, *self._said(pod))

    def _said(self, pod: PodInfo) -> tuple[dict[str, int], dict[str, str], list[str]]:
        return dict(pod.cls.requests.real), dict(pod.annotations), [owner.uid for owner in pod.owners]


def columns(cache: Cache, tracker: Placements) -> dict[str, dict[str, Any]]:
    """Every column by node name, so that caches with other rows can be compared."""
    nodes, view = cache.nodes, cache.nodes.view()
    labels = {key: view.label(key) for key in (*some.LABELS, "kubernetes.io/hostname")}
    images = {name: view.image(name) for name in some.IMAGES}
    found = {}
    for row, name in enumerate(nodes.names):
        found[name or f"free row {row}"] = {
            "alive": bool(nodes.alive[row]),
            "unschedulable": bool(nodes.unschedulable[row]),
            "taints": nodes.taint_sets[nodes.taints[row]],
            "allocatable": amounts(cache, nodes.allocatable[:, row]),
            "requested": amounts(cache, nodes.requested[:, row]),
            "nonzero": amounts(cache, nodes.nonzero[:, row]),
            "labels": {k: c.values[c.ids[row]] for k, c in labels.items() if c.exists[row]},
            "images": {k: size for k, (has, size) in images.items() if has[row]},
            "pods": {uid: dict(pod.cls.requests.real) for uid, pod in nodes.pods_on[row].items()},
            "tracked": {uid: told for uid, (at, *told) in tracker.rows.items() if at == row},
            "rows agree": all(pod.row == row for pod in nodes.pods_on[row].values()),
        }
    return found


def amounts(cache: Cache, column: Any) -> dict[str, int]:
    return {name: int(amount) for name, amount in zip(cache.nodes.axis.names, column, strict=False) if amount}


def from_scratch(nodes: Iterable[model.Node], placed: Iterable[tuple[model.Pod, str]]) -> dict[str, dict[str, Any]]:
    cache, tracker = Cache(), Placements()
    cache.track(tracker)
    for node in nodes:
        cache.upsert_node(node)
    for pod, name in placed:
        row = cache.nodes.row_of(name)
        if row is not None:
            cache.place(cache.record(pod), row)
    return columns(cache, tracker)


class History(RuleBasedStateMachine):
    """Any history of nodes, pods, assumptions and what-if."""

    def __init__(self) -> None:
        super().__init__()
        self.cache, self.tracker = Cache(), Placements()
        self.cache.nodes.view().label("rack")
        self.cache.nodes.view().image("app:1")
        self.cache.track(self.tracker)
        self.nodes: dict[str, model.Node] = {}
        self.placed: Placed = {}
        self.assumed: dict[str, PodInfo] = {}
        self.due: dict[str, float] = {}
        self.now = 0.0

    @rule(node=some.nodes)
    def node_comes_or_changes(self, node: model.Node) -> None:
        self.cache.upsert_node(node)
        self.nodes[node.metadata.name] = node

    @rule(name=st.sampled_from(some.NODES))
    def node_goes(self, name: str) -> None:
        self.cache.remove_node(name)
        self.nodes.pop(name, None)

    @rule(pod=some.pods())
    def pod_is_seen_on_a_node(self, pod: model.Pod) -> None:
        self.cache.upsert_pod(self.cache.record(pod))
        self._settled(pod.metadata.uid)
        self.placed[pod.metadata.uid] = pod, pod.spec.node_name

    @rule(pod=some.pods())
    def pod_ends(self, pod: model.Pod) -> None:
        pod.status.phase = "Succeeded"
        self.cache.upsert_pod(self.cache.record(pod))
        self._settled(pod.metadata.uid)
        self.placed.pop(pod.metadata.uid, None)

    @rule(name=st.sampled_from(some.PODS))
    def pod_goes(self, name: str) -> None:
        uid = f"pod-default-{name}"
        known = self.cache.remove_pod(uid)
        self._settled(uid)
        assert (known is None) == (self.placed.pop(uid, None) is None)

    @precondition(lambda self: self.nodes)
    @rule(pod=some.pods(node=st.just("")), node=st.integers(0, 9))
    def pod_is_assumed(self, pod: model.Pod, node: int) -> None:
        uid, name = pod.metadata.uid, sorted(self.nodes)[node % len(self.nodes)]
        row = self.cache.nodes.row_of(name)
        if uid in self.placed or row is None:
            return
        self.assumed[uid] = self.cache.record(pod)
        self.cache.assume(self.assumed[uid], row)
        self.placed[uid] = pod, name

    @rule(name=st.sampled_from(some.PODS))
    def assumption_is_taken_back(self, name: str) -> None:
        pod = self.assumed.pop(f"pod-default-{name}", None)
        if pod is not None:
            self.cache.forget(pod)
            self.due.pop(pod.uid, None)
            del self.placed[pod.uid]

    @rule(name=st.sampled_from(some.PODS))
    def binding_ends(self, name: str) -> None:
        pod = self.assumed.get(f"pod-default-{name}")
        if pod is not None:
            self.cache.binding_ended(pod, self.now)
            self.due[pod.uid] = self.now + ASSUMED_LIFETIME

    @rule(seconds=st.sampled_from([1.0, ASSUMED_LIFETIME]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        late = {uid for uid, due in self.due.items() if due <= self.now}
        overdue = self.cache.overdue(self.now)
        assert {pod.uid for pod in overdue} == late
        for pod in overdue:
            self.cache.forget(pod)
        for uid in late:
            self._settled(uid)
            del self.placed[uid]

    @rule(
        commands=st.lists(
            st.tuples(
                st.sampled_from(["place", "place", "take", "begin", "commit", "rollback", "end"]),
                st.integers(0, 9),
                st.integers(0, 9),
            ),
            max_size=15,
        )
    )
    def what_if(self, commands: list[Command]) -> None:
        before = columns(self.cache, self.tracker)
        with self.cache.transaction():
            self._block(iter(commands), self.placed)
        assert columns(self.cache, self.tracker) == before

    @invariant()
    def every_column_equals_one_built_from_scratch(self) -> None:
        expected = from_scratch(self.nodes.values(), self.placed.values())
        found = columns(self.cache, self.tracker)

        assert {name: found[name] for name in expected} == expected
        assert all(_empty(found[name]) for name in found.keys() - expected.keys())
        assert self.cache.pods.keys() == self.placed.keys()
        assert {uid for uid in self.placed if self.cache.is_assumed(uid)} == self.assumed.keys()
        assert self.cache.nodes.count == len(self.nodes) == int(self.cache.nodes.alive.sum())

    def _settled(self, uid: str) -> None:
        self.assumed.pop(uid, None)
        self.due.pop(uid, None)

    def _block(self, commands: Iterator[Command], before: Placed) -> Placed:
        """One transaction inside another, against a model of it; returns where pods are after it."""
        now, committed = dict(before), False
        with self.cache.transaction() as tx:
            for what, i, j in commands:
                if what == "begin":
                    now = self._block(commands, now)
                elif what == "commit":
                    tx.commit()
                    committed = True
                elif what == "rollback":
                    tx.rollback()
                    now = dict(before)
                elif what == "end":
                    break
                elif what == "place":
                    self._place(tx, now, i, j)
                else:
                    self._take(tx, now, i)
            expected = from_scratch(self.nodes.values(), now.values())
            found = columns(self.cache, self.tracker)
            assert {name: found[name] for name in expected} == expected
        return now if committed else before

    def _place(self, tx: Transaction, now: Placed, i: int, j: int) -> None:
        pod = make_pod(f"if{i}", cpu=i, resources={"example.com/new": 1})
        if self.nodes and pod.metadata.uid not in now:
            name = sorted(self.nodes)[j % len(self.nodes)]
            row = self.cache.nodes.row_of(name)
            assert row is not None
            tx.place(self.cache.record(pod), row)
            now[pod.metadata.uid] = pod, name

    def _take(self, tx: Transaction, now: Placed, i: int) -> None:
        there = [pod for on in self.cache.nodes.pods_on for pod in on.values()]
        if there:
            pod = there[i % len(there)]
            tx.unplace(pod)
            del now[pod.uid]


def _empty(row: dict[str, Any]) -> bool:
    return not any(value for key, value in row.items() if key != "rows agree")


TestHistory = History.TestCase
TestHistory.settings = settings(stateful_step_count=30)


def test_a_pod_waits_for_its_node_and_moves_in_when_it_comes() -> None:
    cache = cluster([], [make_pod("p", cpu=2, node="late")])
    assert cache.pods["pod-default-p"].row == -1

    row = cache.upsert_node(make_node("late"))

    assert cache.pods["pod-default-p"].row == row
    assert cache.nodes.view().requested("cpu").tolist() == [2000]


def test_pods_of_a_deleted_node_come_back_with_it() -> None:
    cache = cluster([make_node("a")], [make_pod("p", cpu=2, node="a")])

    cache.remove_node("a")
    cache.upsert_node(make_node("b"))
    row = cache.upsert_node(make_node("a"))

    assert cache.nodes.pods_on[row].keys() == {"pod-default-p"}
    assert cache.nodes.view().requested("cpu").tolist() == [0, 2000]


def test_a_node_that_cannot_be_read_changes_nothing() -> None:
    cache = cluster([make_node("a", cpu=8)])

    with pytest.raises(InvalidObject) as error:
        cache.upsert_node(make_node("a", cpu="lots", resources={"example.com/new": 1}))

    assert str(error.value).startswith("node a: status.allocatable[cpu]: 'lots'")
    assert cache.nodes.view().allocatable("cpu").tolist() == [8000]


def test_a_confirmed_assumption_cannot_be_taken_back() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    assumed = cache.record(make_pod("p", cpu=1))
    cache.assume(assumed, 0)

    cache.upsert_pod(cache.record(make_pod("p", cpu=1, node="b")))
    cache.forget(assumed)

    assert cache.nodes.view().requested("cpu").tolist() == [0, 1000]


def test_trackers_hear_of_annotations_that_somebody_else_has_bound_a_pod_with() -> None:
    cache, tracker = cluster([make_node("a")]), Placements()
    cache.track(tracker)
    cache.assume(cache.record(make_pod("p")), 0)

    cache.upsert_pod(cache.record(make_pod("p", node="a", annotations={"devices": "1"})))

    assert tracker.rows == {"pod-default-p": (0, {}, {"devices": "1"}, [])}


@pytest.mark.parametrize("answer", [True, False, None])
def test_a_tracker_that_counts_two_records_alike_is_told_of_neither(answer: bool | None) -> None:
    class Comparing(Placements):
        def counts_alike(self, known: PodInfo, newer: PodInfo) -> bool:
            if answer is None:
                raise ZeroDivisionError
            return answer

    cache, tracker, other = cluster([make_node("a")]), Comparing(), Placements()
    cache.track(tracker)
    cache.track(other)
    cache.assume(cache.record(make_pod("p")), 0)

    cache.upsert_pod(cache.record(make_pod("p", node="a", annotations={"devices": "1"})))

    there = {} if answer else {"devices": "1"}
    assert [each.rows["pod-default-p"][2] for each in (tracker, other)] == [there, {"devices": "1"}]


def test_a_tracker_that_counts_two_records_alike_hears_when_another_one_refuses_the_newer() -> None:
    class Comparing(Placements):
        def counts_alike(self, known: PodInfo, newer: PodInfo) -> bool:
            return True

    class Refusing(Placements):
        def add(self, pod: PodInfo, row: int) -> None:
            if pod.labels:
                raise ZeroDivisionError
            super().add(pod, row)

    cache, tracker = cluster([make_node("a")]), Comparing()
    cache.track(tracker)
    cache.track(Refusing())
    cache.assume(cache.record(make_pod("p")), 0)

    with pytest.raises(PluginError):
        cache.upsert_pod(cache.record(make_pod("p", node="a", labels={"zone": "z"})))

    assert not tracker.rows and not cache.nodes.pods_on[0]


def test_labels_that_the_api_server_gives_a_pod_at_its_binding_change_no_column() -> None:
    cache, tracker = cluster([make_node("a")]), Placements()
    cache.track(tracker)
    cache.assume(older := cache.record(make_pod("p", cpu=1)), 0)
    placed = cache.nodes.placed.position

    cache.upsert_pod(newer := cache.record(make_pod("p", cpu=1, node="a", labels={"zone": "z"})))

    assert cache.nodes.placed.position == placed and cache.nodes.relabelled.position == 1
    assert cache.nodes.pods_on[0] == {newer.uid: newer} and (older.row, newer.row) == (-1, 0)
    assert cache.nodes.view().requested("cpu").tolist() == [1000] and newer.uid in tracker.rows
    assert not cache.is_assumed(newer.uid)


def test_a_pod_with_other_labels_that_a_tracker_refuses_is_on_no_row() -> None:
    class Choosy(Placements):
        def add(self, pod: PodInfo, row: int) -> None:
            if pod.labels:
                raise ValueError("labels")
            super().add(pod, row)

        def remove(self, pod: PodInfo, row: int) -> None:
            self.rows.pop(pod.uid, None)

    cache, before, choosy = cluster([make_node("a")]), Placements(), Choosy()
    cache.track(before)
    cache.track(choosy)
    cache.assume(cache.record(make_pod("p", cpu=1)), 0)

    newer = cache.record(make_pod("p", cpu=1, node="a", labels={"zone": "z"}))
    with pytest.raises(PluginError, match="labels"):
        cache.upsert_pod(newer)

    assert before.rows == choosy.rows == {} and newer.row == -1 and not cache.nodes.pods_on[0]
    assert cache.nodes.view().requested("cpu").tolist() == [0]


def test_an_assumption_is_overdue_some_time_after_its_binding_and_ends_only_when_it_is_forgotten() -> None:
    cache = cluster([make_node("a")])
    pod = cache.record(make_pod("p"))
    cache.assume(pod, 0)

    assert cache.overdue(10**9) == []
    cache.binding_ended(pod, 10.0)
    assert cache.overdue(10.0 + ASSUMED_LIFETIME) == [pod] and cache.assumed == 1
    cache.forget(pod)
    assert cache.overdue(10.0 + ASSUMED_LIFETIME) == [] and cache.assumed == 0


def test_a_heartbeat_changes_no_column() -> None:
    cache = cluster([make_node("a")])
    position = cache.nodes.changes.position
    node = make_node("a")
    node.metadata.resource_version = "2"

    cache.upsert_node(node)

    assert cache.nodes.changes.position == position and cache.nodes.objects[0] is node


@pytest.mark.parametrize("field", ["conditions", "declared_features"])
def test_a_change_that_plugins_read_is_noted(field: str) -> None:
    cache = cluster([make_node("a")])
    position = cache.nodes.changes.position
    node = make_node("a")
    if field == "conditions":
        node.status.conditions = [model.PodCondition("DiskPressure", "True")]
    else:
        node.status.declared_features = ["SwapLimits"]

    cache.upsert_node(node)

    assert cache.nodes.changes.position == position + 1


def test_a_tracker_that_comes_late_is_told_of_who_is_there() -> None:
    cache = cluster([make_node("a")], [make_pod("p", cpu=1, node="a"), make_pod("q", node="nowhere")])
    tracker = Placements()

    cache.track(tracker)

    assert tracker.rows == {"pod-default-p": (0, {"cpu": 1000}, {}, [])}


def test_a_store_keeps_objects_by_name_and_counts_its_changes() -> None:
    store = Cache().store(SERVICES)
    service = model.Service(model.ObjectMeta(name="s", namespace="a"))

    store.upsert(service)
    store.remove("a", "other")

    assert store.get("s", "a") is service and store.get("s", "b") is None
    assert (list(store), len(store), store.version) == ([service], 1, 1)
    store.remove("a", "s")
    assert len(store) == 0 and store.version == 2


def test_an_assumed_pod_has_lost_its_node_for_good_though_one_of_that_name_comes() -> None:
    cache = cluster([make_node("a"), make_node("b")], [make_pod("bound", node="a")])
    pod, other = cache.record(make_pod("p")), cache.record(make_pod("q"))
    cache.assume(pod, _row(cache, "a"))
    cache.assume(other, _row(cache, "b"))

    assert cache.remove_node("a") == [pod] and cache.has_lost_node(pod.uid)
    cache.upsert_node(make_node("a"))
    assert cache.has_lost_node(pod.uid)
    assert not cache.has_lost_node(other.uid) and not cache.has_lost_node("pod-default-bound")

    cache.forget(pod)
    cache.assume(pod, _row(cache, "a"))
    assert not cache.has_lost_node(pod.uid)


def test_a_pod_that_the_watch_has_confirmed_has_lost_nothing_of_its_binding() -> None:
    cache = cluster([make_node("a")])
    cache.assume(cache.record(make_pod("p")), 0)
    cache.remove_node("a")
    cache.upsert_pod(cache.record(make_pod("p", node="a")))

    assert not cache.has_lost_node("pod-default-p")


def _row(cache: Cache, node: str) -> int:
    row = cache.nodes.row_of(node)
    assert row is not None
    return row


def test_an_older_record_of_a_pod_says_where_the_pod_is_too() -> None:
    """Trackers keep the record of which they were told; news that concerns them not brings a newer one."""
    cache = cluster([make_node("a")])
    older = cache.record(make_pod("p", node="a"))
    cache.upsert_pod(older)
    pod = make_pod("p", node="a")
    pod.status.phase = "Running"
    newer = cache.record(pod)
    cache.upsert_pod(newer)
    assert cache.pods[older.uid] is newer and older is not newer

    with cache.transaction() as tx:
        tx.unplace(older)
        assert newer.row == -1
    assert newer.row == older.row == 0
    cache.remove_node("a")
    assert newer.row == older.row == -1
    cache.upsert_pod(cache.record(make_pod("p", node="a", labels={"news": "yes"})))
    cache.upsert_node(make_node("a"))

    assert cache.pods[older.uid].row == 0


def test_the_pods_of_nodes_that_are_not_there_are_known_by_node() -> None:
    cache = cluster([make_node("a"), make_node("b")], [make_pod(name, node=name[1]) for name in ("pa", "qa", "rb")])
    cache.upsert_pod(cache.record(make_pod("pc", node="c")))

    cache.remove_node("a")
    names = {node: sorted(pod.name for pod in pods.values()) for node, pods in cache.homeless.items()}
    assert names == {"a": ["pa", "qa"], "c": ["pc"]}
    cache.upsert_node(make_node("a"))
    cache.remove_pod(next(iter(cache.homeless["c"])))
    assert not cache.homeless
