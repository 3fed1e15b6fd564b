"""Moves pods in a transaction, unit by unit, to nodes outside of the ones to be freed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gangline import BoolColumn, Handle, Membership, PodInfo, Transaction, custom_resources
from gangline_plugins.defragmentation.movable import Movable
from gangline_plugins.defragmentation.plan import Move, MoveStep
from gangline_plugins.defragmentation.record import owner_of
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.memberships import key_of


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """Pods that belong together, with the row that each one leaves and the row that it goes to."""

    pods: Sequence[PodInfo]
    sources: Sequence[int]
    destinations: Sequence[int]


class Mover:
    """Finds other places for pods, in a transaction; `forbidden` marks the nodes to be freed."""

    def __init__(self, handle: Handle, transaction: Transaction, forbidden: BoolColumn) -> None:
        self._handle = handle
        self._tx = transaction
        self._forbidden = forbidden
        nodes = handle.nodes
        in_use = (nodes.requested(custom_resources.GPU) > 0) | (
            device_table(handle.state).columns.busy[nodes.index] > 0
        )
        self._last = nodes.alive & ~forbidden
        self._first = self._last & in_use
        """Nodes that are in use already; pods go there first, so that nodes with no pods stay empty."""

    def move(self, pods: Sequence[PodInfo]) -> Moved | None:
        """Move pods that belong together to other places. Returns None and moves nothing if there are none."""
        mark = self._tx.mark()
        sources = [pod.row for pod in pods]
        for pod in pods:
            self._tx.unplace(pod)
        made = [pod.anew() for pod in pods]
        for allowed in (self._first, self._last):
            found = self._handle.find_places(made, allowed)
            if found is not None and len(found) == len(made):
                for pod in made:
                    self._tx.place(pod, found[pod.uid])
                return Moved(pods, sources, [pod.row for pod in made])
        self._tx.undo_to(mark)
        return None


def in_batches(moved: Sequence[Moved], movable: Movable, handle: Handle, most: int) -> list[Move]:
    """The moves in order, divided into batches. A batch has at most `most` moves, violates no budget, and needs no room
    that another move of the batch makes.

    A group whose members move one at a time has one move per batch.
    """
    moves: list[Move] = []
    batch, number = list[Moved](), 0
    for each in moved:
        if batch and (len(batch) == most or not _may_join(each, batch, movable, handle)):
            batch, number = [], number + 1
        batch.append(each)
        moves.append(_move(each, movable, handle, number))
    return moves


def _may_join(each: Moved, batch: Sequence[Moved], movable: Movable, handle: Handle) -> bool:
    left = {row for other in batch for row in other.sources}
    groups = {key_of(handle, other.pods[0]) for other in batch} - {""}
    if not left.isdisjoint(each.destinations) or key_of(handle, each.pods[0]) in groups:
        return False
    together = [pod for other in (*batch, each) for pod in other.pods]
    return not movable.budgets.any or not movable.budgets.split(together)[0]


def _move(moved: Moved, movable: Movable, handle: Handle, batch: int) -> Move:
    steps = list(_steps(moved, handle))
    membership = handle.group_of(moved.pods[0])
    name = f"pod {moved.pods[0].key}"
    if isinstance(membership, Membership) and len(moved.pods) > 1:
        name = f"gang {membership.group.namespace}/{membership.group.name}"
    return Move(name, steps, movable.cost(moved.pods), batch)


def _steps(moved: Moved, handle: Handle) -> Iterator[MoveStep]:
    names = handle.nodes.names
    for pod, source, destination in zip(moved.pods, moved.sources, moved.destinations, strict=True):
        yield MoveStep(
            pod.namespace,
            pod.name,
            pod.uid,
            owner_of(pod),
            names[source],
            names[destination],
            dict(pod.cls.requests.real),
        )


def mask_of(rows: np.ndarray, size: int) -> BoolColumn:
    """A mask that is True on these rows."""
    mask: BoolColumn = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return mask
