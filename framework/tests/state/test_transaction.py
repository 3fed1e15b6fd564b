"""What-if leaves no trace unless it is committed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from gangline.errors import PluginError
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.testing import cluster, make_node, make_pod


def test_what_is_not_committed_is_undone_in_reverse_order() -> None:
    cache = cluster([make_node("a"), make_node("b")], [make_pod("p", cpu=1, node="a")])
    undone: list[str] = []

    with cache.transaction() as tx:
        tx.on_rollback(lambda: undone.append("first"))
        tx.unplace(cache.pods["pod-default-p"])
        tx.on_rollback(lambda: undone.append(str(cache.nodes.view().requested("cpu").tolist())))
        tx.place(cache.pods["pod-default-p"], 1)
        assert cache.nodes.view().requested("cpu").tolist() == [0, 1000]

    assert undone == ["[0, 0]", "first"]
    assert cache.nodes.view().requested("cpu").tolist() == [1000, 0]


def test_an_exception_undoes_what_was_done() -> None:
    cache = cluster([make_node("a")])

    with pytest.raises(ZeroDivisionError), cache.transaction() as tx:
        tx.place(cache.record(make_pod("p", cpu=1)), 0)
        raise ZeroDivisionError

    assert cache.nodes.view().requested("cpu").tolist() == [0]


def test_what_is_committed_stays_and_cannot_be_undone_later() -> None:
    cache = cluster([make_node("a")])

    with cache.transaction() as tx:
        tx.place(cache.record(make_pod("p", cpu=1)), 0)
        tx.commit()
    with cache.transaction() as tx:
        tx.rollback()

    assert cache.nodes.view().requested("cpu").tolist() == [1000]


def test_an_outer_transaction_undoes_what_an_inner_one_committed() -> None:
    cache = cluster([make_node("a")])

    with cache.transaction() as outer:
        outer.place(cache.record(make_pod("p", cpu=1)), 0)
        with cache.transaction() as inner:
            inner.place(cache.record(make_pod("q", cpu=2)), 0)
            inner.commit()
        with cache.transaction() as dropped:
            dropped.place(cache.record(make_pod("r", cpu=4)), 0)
        assert cache.nodes.view().requested("cpu").tolist() == [3000]

    assert cache.nodes.view().requested("cpu").tolist() == [0]


def test_a_block_goes_on_after_a_rollback() -> None:
    cache = cluster([make_node("a")])

    with cache.transaction() as tx:
        tx.place(cache.record(make_pod("p", cpu=1)), 0)
        tx.rollback()
        tx.place(cache.record(make_pod("q", cpu=2)), 0)
        tx.commit()

    assert cache.nodes.view().requested("cpu").tolist() == [2000]


class _Lifted:
    """Notes of each step whether the pod is lifted, and looks ahead as told."""

    def __init__(self, state: Cache) -> None:
        self.state = state
        self.steps: list[str] = []
        self.differs = False

    def add(self, pod: PodInfo, row: int) -> None:
        self.steps.append(f"{'lifted' if self.state.is_lifted(pod.uid) else 'on'} {row}")

    def remove(self, pod: PodInfo, row: int) -> None:
        self.steps.append(f"{'lifted from' if self.state.is_lifted(pod.uid) else 'gone from'} {row}")

    def foresee(self, begins: bool) -> bool:
        self.steps.append("looks ahead" if begins else "looks no more")
        return self.differs


def test_a_tracker_can_tell_a_removal_on_trial_from_a_real_one() -> None:
    cache = cluster([make_node("a"), make_node("b")], [make_pod("p", node="a")])
    tracker = cache.tracker(_Lifted, cache)
    tracker.steps.clear()

    with cache.transaction() as tx:
        tx.unplace(cache.pods["pod-default-p"])
        tx.place(cache.pods["pod-default-p"], 1)
    cache.remove_pod("pod-default-p")

    assert tracker.steps == ["lifted from 0", "on 1", "lifted from 1", "on 0", "gone from 0"]


def test_a_pod_that_waits_is_not_lifted_when_its_placement_is_undone() -> None:
    cache = cluster([make_node("a")])
    tracker = cache.tracker(_Lifted, cache)
    pod = cache.record(make_pod("p"))

    with cache.transaction() as outer:
        with cache.transaction() as tx:
            tx.place(pod, 0)
            tx.unplace(pod)
        assert not cache.is_lifted(pod.uid)
        outer.place(pod, 0)

    assert tracker.steps == ["on 0", "gone from 0", "on 0", "gone from 0", "on 0", "gone from 0"]


def test_nothing_stays_lifted_after_the_outermost_block() -> None:
    cache = cluster([make_node("a")], [make_pod("p", node="a")])
    pod = cache.pods["pod-default-p"]

    with cache.transaction() as tx:
        tx.unplace(pod)
        assert cache.is_lifted(pod.uid)
        tx.place(pod, 0)
        assert not cache.is_lifted(pod.uid)
        tx.undo_to(1)
        assert cache.is_lifted(pod.uid)

    assert not cache.is_lifted(pod.uid)


@pytest.mark.parametrize("differs", [False, True])
def test_trackers_look_ahead_once_however_blocks_are_nested(differs: bool) -> None:
    cache = cluster([make_node("a")])
    tracker = cache.tracker(_Lifted, cache)
    tracker.differs = differs

    with cache.foreseen() as outer, cache.foreseen() as inner:
        tracker.steps.append("both")

    assert (outer, inner) == (differs, differs)
    assert tracker.steps == ["looks ahead", "both", "looks no more"]


def test_an_exception_ends_the_look_ahead() -> None:
    cache = cluster([make_node("a")])
    tracker = cache.tracker(_Lifted, cache)

    with pytest.raises(ZeroDivisionError), cache.foreseen():
        raise ZeroDivisionError

    assert tracker.steps == ["looks ahead", "looks no more"]


def test_a_tracker_that_raises_when_it_looks_ahead_is_out_of_step() -> None:
    class Raises(_Lifted):
        def foresee(self, begins: bool) -> bool:
            raise ZeroDivisionError

    cache = cluster([make_node("a")])
    cache.tracker(Raises, cache)

    with cache.foreseen() as differs:
        pass

    assert not differs
    assert any("ZeroDivisionError" in why for why in cache.trackers.broken.values())


def test_a_pod_has_one_place_whatever_record_of_it_is_put_somewhere() -> None:
    """A waiting pod has changed while it was assumed, so there are two records of it."""
    cache = cluster([make_node("a"), make_node("b")])
    first, second = (cache.record(make_pod("p")) for _ in range(2))
    cache.assume(first, 0)

    with cache.transaction() as tx, pytest.raises(ValueError, match="is on row 0 already"):
        tx.place(second, 0)
    with cache.transaction() as tx, pytest.raises(ValueError, match="is on row 0 already"):
        tx.place_all([second, cache.record(make_pod("q"))], [0, 1])

    assert cache.nodes.pods_on[0] == {first.uid: first} and second.row == -1
    with cache.transaction() as tx:
        tx.unplace(first)
        tx.place(second, 1)
    assert (first.row, second.row) == (0, -1)


class _Counted:
    """Notes the pods that it is told of, and raises for one of them."""

    def __init__(self, raises_for: str = "") -> None:
        self.raises_for = raises_for
        self.clear()

    def clear(self) -> None:
        self.there: list[tuple[str, int]] = []

    def add(self, pod: PodInfo, row: int) -> None:
        self.there.append((pod.name, row))
        if pod.name == self.raises_for:
            raise ZeroDivisionError

    def remove(self, pod: PodInfo, row: int) -> None:
        if (pod.name, row) in self.there:
            self.there.remove((pod.name, row))


class _AtOnce(_Counted):
    """The same; it is told of many pods in one call."""

    calls = 0

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        self.calls += 1
        for pod, row in zip(pods, rows, strict=True):
            self.add(pod, row)


@pytest.mark.parametrize("rows", [[0, 1], [1, 1, 0, 1], [0]], ids=["each its own", "some twice", "one"])
def test_pods_that_are_placed_at_once_are_where_they_would_be_one_by_one(rows: list[int]) -> None:
    caches = [cluster([make_node("a"), make_node("b")]) for _ in range(2)]
    trackers = [[cache.tracker(_Counted), cache.tracker(_AtOnce)] for cache in caches]
    pods = [[cache.record(make_pod(f"p{n}", cpu=1, gpus=2)) for n in range(len(rows))] for cache in caches]

    with caches[0].transaction() as tx, caches[1].transaction() as one_by_one:
        tx.place_all(pods[0], rows)
        for pod, row in zip(pods[1], rows, strict=True):
            one_by_one.place(pod, row)
        views = [cache.nodes.view() for cache in caches]
        assert [pod.row for pod in pods[0]] == rows
        for name in ("cpu", "nvidia.com/gpu", "pods", "memory"):
            assert views[0].requested(name).tolist() == views[1].requested(name).tolist()
        assert views[0].nonzero.tolist() == views[1].nonzero.tolist()
        assert [each.there for each in trackers[0]] == [each.there for each in trackers[1]]
        assert trackers[0][1].calls == (len(rows) > 1)  # type: ignore[attr-defined]  # an _AtOnce

    assert caches[0].nodes.view().requested("cpu").tolist() == [0, 0]
    assert not any(each.there for each in trackers[0]) and not any(caches[0].nodes.pods_on)


@pytest.mark.parametrize("raising", [_Counted, _AtOnce])
def test_if_a_tracker_raises_for_one_of_many_pods_none_is_placed(raising: type[_Counted]) -> None:
    cache = cluster([make_node("a"), make_node("b")])
    before, broken, after = cache.tracker(_Counted), cache.tracker(raising, "p1"), cache.tracker(_AtOnce)
    pods = [cache.record(make_pod(f"p{n}", cpu=1)) for n in range(3)]

    with cache.transaction() as tx, pytest.raises(PluginError, match="ZeroDivisionError"):
        tx.place_all(pods, [0, 1, 0])

    assert not before.there and not broken.there and not after.there and not any(cache.nodes.pods_on)
    assert [pod.row for pod in pods] == [-1, -1, -1] and cache.trackers.broken
    cache.mend_trackers()
    assert not cache.trackers.broken


class _AllOrNone:
    """It cannot be cleared, and takes itself back what it has added when it raises."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def add(self, pod: PodInfo, row: int) -> None:
        self.told.append(f"add {pod.name}")

    def remove(self, pod: PodInfo, row: int) -> None:
        self.told.append(f"remove {pod.name}")

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        if any(pod.name == "p1" for pod in pods):
            raise ZeroDivisionError
        self.told.append("add all")


def test_a_tracker_that_cannot_be_cleared_adds_all_pods_or_none() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    tracker = cache.tracker(_AllOrNone)
    pods = [cache.record(make_pod(f"p{n}", cpu=1)) for n in range(4)]

    with cache.transaction() as tx:
        tx.place_all(pods[2:], [0, 1])
        with pytest.raises(PluginError, match="ZeroDivisionError"):
            tx.place_all(pods[:2], [0, 1])

    assert tracker.told == ["add all", "remove p3", "remove p2"] and not cache.trackers.broken


class _OneByOne(_Counted):
    """It wants to be told of each pod."""

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> bool:
        return False


@pytest.mark.parametrize("raises_for", ["", "p1"])
def test_a_tracker_may_leave_many_pods_to_calls_for_each(raises_for: str) -> None:
    cache = cluster([make_node("a"), make_node("b")])
    tracker = cache.tracker(_OneByOne, raises_for)
    pods = [cache.record(make_pod(f"p{n}", cpu=1)) for n in range(3)]

    with cache.transaction() as tx:
        if raises_for:
            with pytest.raises(PluginError, match="ZeroDivisionError"):
                tx.place_all(pods, [0, 1, 0])
            assert not tracker.there
        else:
            tx.place_all(pods, [0, 1, 0])
            assert tracker.there == [("p0", 0), ("p1", 1), ("p2", 0)]

    assert not tracker.there


def test_a_block_with_pods_that_were_placed_at_once_can_step_aside() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    pods = [cache.record(make_pod(f"p{n}", cpu=1)) for n in range(3)]

    with cache.transaction() as tx:
        tx.place(pods[0], 1)
        tx.place_all(pods[1:], [0, 1])
        placed = tx.step_aside()
        assert placed == [(pods[0], 1), (pods[1], 0), (pods[2], 1)] and not any(cache.nodes.pods_on)
        tx.come_back()


@pytest.mark.parametrize("rows", [[0, -1], [0]], ids=["no row", "too few rows"])
def test_pods_cannot_be_placed_at_once_where_one_could_not_be(rows: list[int]) -> None:
    cache = cluster([make_node("a")])
    pods = [cache.record(make_pod(f"p{n}", cpu=1)) for n in range(2)]

    with cache.transaction() as tx, pytest.raises(ValueError):
        tx.place_all(pods, rows)

    assert not any(cache.nodes.pods_on)


class _Counts:
    """Gives each pod the next number; a number that a step has taken away comes back when the step is undone."""

    def __init__(self, state: Cache) -> None:
        self.state = state
        self.next = 0
        self.numbers: dict[str, int] = {}

    def add(self, pod: PodInfo, row: int) -> None:
        if not self.state.is_undoing:
            self.numbers[pod.uid] = self.next
            self.next += 1
            self.state.after_undo(self, self.count_back)

    def count_back(self) -> None:
        self.next -= 1

    def remove(self, pod: PodInfo, row: int) -> None:
        number = self.numbers.pop(pod.uid)
        self.state.after_undo(self, partial(self.numbers.__setitem__, pod.uid, number))


def test_a_tracker_can_restore_what_undone_steps_do_not_tell() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    tracker = cache.tracker(_Counts, cache)
    pods = [cache.record(make_pod(name)) for name in "pq"]

    with cache.transaction() as outer:
        outer.place(pods[0], 0)
        outer.place(pods[1], 0)
        before = dict(tracker.numbers)
        with cache.transaction() as inner:
            inner.unplace(pods[0])
            inner.unplace(pods[1])
            inner.place(pods[0], 1)
        assert tracker.numbers == before and tracker.next == 2

    assert not tracker.numbers and not tracker.next and not cache.is_undoing


class _FailsToRestore(_Counts):
    """Raises where it is to restore what it had."""

    def count_back(self) -> None:
        raise RuntimeError("lost count")


def test_a_tracker_that_cannot_restore_is_out_of_step_and_the_other_steps_are_undone() -> None:
    cache = cluster([make_node("a")])
    tracker = cache.tracker(_FailsToRestore, cache)
    pods = [cache.record(make_pod(name, cpu=1)) for name in "pq"]

    with cache.transaction() as tx:
        for pod in pods:
            tx.place(pod, 0)

    assert cache.nodes.view().requested("cpu").tolist() == [0] and not cache.is_undoing
    assert "lost count" in cache.trackers.broken[id(tracker)]


def test_outside_of_a_transaction_nothing_is_kept_to_be_restored() -> None:
    cache = cluster([make_node("a")])
    tracker = cache.tracker(_Counts, cache)
    cache.upsert_pod(cache.record(make_pod("p", node="a")))

    with cache.transaction() as tx:
        tx.place(cache.record(make_pod("q")), 0)

    assert tracker.next == 1


def test_a_block_in_which_a_tracker_restores_something_can_step_aside() -> None:
    cache = cluster([make_node("a")])
    tracker = cache.tracker(_Counts, cache)
    pod = cache.record(make_pod("p"))

    with cache.transaction() as tx:
        tx.place(pod, 0)
        assert tx.step_aside() == [(pod, 0)]
        assert not tracker.next
        tx.come_back()
