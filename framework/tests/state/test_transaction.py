"""What-if leaves no trace unless it is committed."""

from __future__ import annotations

import pytest

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
