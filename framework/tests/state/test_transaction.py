"""What-if leaves no trace unless it is committed."""

from __future__ import annotations

import pytest

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
