"""Plugins narrow a placement to the nodes that members can use together; `_put` heeds what a first member decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from gangline import NODE, CodeColumn, GroupAttempt, Handle, NodeView, Placement, PodInfo, Reason, hookimpl
from gangline.deciding.group_decisions import GroupRejection
from gangline.testing import cluster, make_node
from gangline.testing.gangs import Gangs

NODES = "abcd"


def gangs(*plugins: type[Any]) -> Gangs:
    return Gangs(cluster([make_node(name, cpu=1) for name in NODES]), *plugins)


class Narrowing:
    """Offers parts of a placement, and is told when each is tried."""

    name = "Narrowing"
    parts: ClassVar[list[Any]] = []
    said: ClassVar[list[str]] = []

    @hookimpl
    def placement_narrow(self, attempt: GroupAttempt, placement: Placement, nodes: NodeView) -> Iterable[Any] | None:
        return self._offered() if self.parts else None

    def _offered(self) -> Iterator[Any]:
        for part in self.parts:
            self.said.append("begin")
            try:
                yield np.array(part) if isinstance(part, list) else part
            finally:
                self.said.append("end")


@pytest.mark.parametrize(
    ("parts", "nodes", "tried"),
    [
        ([[2, 3], [0, 1]], ["c", "d"], 1),
        ([[0], [1, 3], [0, 1]], ["b", "d"], 2),
        ([], ["a", "b"], 0),
    ],
    ids=["the first", "the first that holds the gang", "no opinion"],
)
def test_a_gang_is_tried_on_the_parts_that_a_plugin_names(parts: list[Any], nodes: list[str], tried: int) -> None:
    Narrowing.parts, Narrowing.said = parts, []
    cluster = gangs(Narrowing)

    placed = cluster.place(cluster.gang("g", 2, gpus=0))

    assert sorted(placed.values()) == nodes
    assert Narrowing.said == ["begin", "end"] * tried


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ([0, 9], "must name rows from 0 to 3"),
        ([0, 0], "must name each row once"),
        ("ab", "must offer arrays of rows"),
    ],
)
def test_a_part_that_is_none_fails_the_gang(part: Any, why: str) -> None:
    Narrowing.parts, Narrowing.said = [part], []
    cluster = gangs(Narrowing)

    rejected = cluster.decide(cluster.gang("g", 2, gpus=0))

    assert isinstance(rejected, GroupRejection) and rejected.is_error
    assert "plugin Narrowing at placement_narrow" in rejected.message and why in rejected.message
    assert Narrowing.said == ["begin", "end"]


class First:
    """Knows the half in which the first pod was placed."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    @property
    def half(self) -> int:
        """0 or 1 for even or odd rows; -1 while no pod is placed."""
        return next(iter(self.rows.values()), -1) % 2 if self.rows else -1

    def add(self, pod: PodInfo, row: int) -> None:
        self.rows[pod.uid] = row

    def remove(self, pod: PodInfo, row: int) -> None:
        del self.rows[pod.uid]


class Follows:
    """The first member decides for the others, which say so by another identity: they go to nodes of the same half."""

    name = "Follows"
    reads = NODE
    reasons = (Reason("node(s) were in the other half"),)
    halves: ClassVar[list[int]] = []
    """For which half the plugin was asked."""

    def __init__(self, args: None, handle: Handle) -> None:
        self._first = handle.state.tracker(First)

    @hookimpl
    def identity(self) -> int:
        return self._first.half

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        half = self._first.half
        self.halves.append(half)
        return (nodes.rows % 2 != half).astype(np.uint8) if half >= 0 else np.zeros(len(nodes), dtype=np.uint8)


def test_members_that_come_after_the_first_go_where_it_lets_them_and_are_not_asked_about_one_by_one() -> None:
    Follows.halves = []
    cluster = gangs(Follows)

    placed = cluster.place(cluster.gang("g", 2, gpus=0))

    assert sorted(placed.values()) in (["a", "c"], ["b", "d"])
    assert len(Follows.halves) == 2, "once for the first member, and once for all others"
