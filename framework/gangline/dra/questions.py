"""The answers to one question, kept for all nodes: only nodes for which something has changed are counted again."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from gangline.dra.allocator import NodeVerdict, PodAllocator
from gangline.dra.counting import FITS, NONE, OPEN, Counted, Outcomes
from gangline.dra.sharing import Values
from gangline.dra.table import SliceTable
from gangline.dra.weighing import Chosen
from gangline.errors import DeadlineExceeded
from gangline.state.changes import Changes
from gangline.state.node_view import Int64Column, NodeView, Rows
from gangline.status import BoolColumn, CodeColumn

FEW_DEVICES = 1
"""The code of a node that does not have the devices."""
GAVE_UP = 2
"""The code of a node whose search for the devices was given up; other nodes may serve."""
SEES_INVALID = 3
"""The code of a node that does not have the devices, and for which some pool contradicts itself."""
FIRST_TEXT = 4
"""Codes from here on stand for errors: `texts[code - FIRST_TEXT]`."""
_NOT_SEARCHED = 255
_MOST_TEXTS = 250
"""Different errors of one question that are kept; the last of them stands for all further errors."""
_ONE_OF_MANY = "the claims fail on this node, with one of too many different errors to keep each"
_NOT_CHOSEN = -1
_MOST_CHOICES = 64
"""Different sets of alternatives for which answers are kept."""
_ROW_BYTES = 11
"""Bytes of the answers for one row of nodes."""


class Question:
    """The answers to a question: which nodes have devices for claims with certain specs."""

    def __init__(self, pod: PodAllocator, table: SliceTable, texts: list[str]) -> None:
        self.pod = pod
        self._table = table
        self._texts = texts
        self._position = -1
        self._moved = -1
        """The position in the log `table.moved` up to which `_bare` is up to date."""
        self._bare: Outcomes = np.zeros(0, dtype=np.int8)
        """By row of the nodes: the outcome of counting as if no claim had any device."""
        self._are_open = False
        self._codes: CodeColumn = np.zeros(0, dtype=np.uint8)
        self._room: Int64Column = np.zeros(0, dtype=np.int64)
        self._wanted: tuple[int, tuple[int, int]] | None = None
        """The turnover of the table for which `wanted` was computed, and its answer."""
        self._losses: dict[Chosen, tuple[int, Values]] = {}
        """By alternatives that are chosen: the position in the log `table.touched` at which the losses by row were last
        updated, and the losses."""
        self._choices: dict[Chosen, int] = {}
        """By alternatives that are chosen: their number."""
        self._choice: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        """By row of the nodes: the number of the alternatives that are chosen there, or _NOT_CHOSEN."""
        self._chosen = -1
        """The position in the log `table.touched` up to which `_choice` is up to date."""

    @property
    def nbytes(self) -> int:
        """Bytes of the kept answers, about."""
        losses = sum(each.nbytes for _, each in self._losses.values())
        return self.pod.nbytes + _ROW_BYTES * len(self._codes) + self._choice.nbytes + losses

    def codes(self, nodes: NodeView) -> CodeColumn:
        """By node of the view: 0 where all claims get devices, else a code. Call `refresh` and `search` before."""
        codes = np.array(self._codes[nodes.index])
        if self._are_open:
            codes[codes == _NOT_SEARCHED] = FEW_DEVICES  # rows without a node
        see_invalid = self._table.see_invalid(len(nodes.whole))
        if see_invalid is not None:
            codes[(codes == FEW_DEVICES) & see_invalid[nodes.index]] = SEES_INVALID
        return codes

    def may_have(self, rows: Rows) -> BoolColumn:
        """For each of these rows: whether the node may have the devices once other claims give devices back.

        Call `refresh` before. Raises DeadlineExceeded while nodes are counted; of nodes that are looked at one by one,
        those for which no time is left may have the devices.
        """
        self._refresh_bare()
        bare = self._bare[rows]
        found = bare != NONE
        with suppress(DeadlineExceeded):
            for at in (bare == OPEN).nonzero()[0].tolist():  # counting cannot tell, and each node sees other devices
                self.pod.check()
                found[at] = self.pod.is_in_use(int(rows[at]))
        return found

    def room(self, nodes: NodeView) -> Int64Column:
        """By node of the view: for how many pods the node has devices, by counting; -1 where counting cannot tell."""
        return np.array(self._room[nodes.index])

    def losses(self, nodes: NodeView, chosen: Chosen = frozenset()) -> Values:
        """By node of the view: the estimated loss if the node gives its devices; right for nodes that have them.

        `chosen` has the alternatives that requests get; of other requests the first ones count.
        """
        size, touched = len(nodes.whole), self._table.touched
        position, losses = self._losses.get(chosen, (-1, np.zeros(0)))
        if touched.position != position or size != len(losses):
            is_kept = position >= 0 and size == len(losses)
            changed = touched.since(position, max(64, size // 4)) if is_kept else None
            if changed is None:
                losses = self.pod.weighed(size, None, chosen)
            elif len(rows := changed[0][changed[0] < size]):
                losses[rows] = self.pod.weighed(size, rows, chosen)
            if len(self._losses) >= _MOST_CHOICES:
                self._losses.clear()
            self._losses[chosen] = touched.position, losses
        return np.array(losses[nodes.index])

    def choices(self, nodes: NodeView, places: Rows) -> list[tuple[Chosen, Rows]]:
        """Which alternatives the claims get on the nodes at these places of the view, each set of alternatives with the
        places of nodes. The nodes have the devices; those for which no time is left are left out.
        """
        self._refresh_choices(len(nodes.whole))
        rows = nodes.rows[places]
        unknown = rows[self._choice[rows] == _NOT_CHOSEN]
        with suppress(DeadlineExceeded):
            for chosen, at in self.pod.choices(len(nodes.whole), unknown) if len(unknown) else ():
                self._choice[unknown[at]] = self._choices.setdefault(chosen, len(self._choices))
        numbers = self._choice[rows]
        named = {number: chosen for chosen, number in self._choices.items()}
        return [(named[number], places[numbers == number]) for number in np.unique(numbers[numbers >= 0]).tolist()]

    def _refresh_choices(self, size: int) -> None:
        """Forget the choices on nodes for which something has changed."""
        touched, known = self._table.touched, len(self._choice)
        if touched.position == self._chosen and size == known:
            return
        rows = _changed(touched, self._chosen, known, size)
        if rows is None or len(self._choices) > _MOST_CHOICES:
            self._choices.clear()
            self._choice = np.full(size, _NOT_CHOSEN, dtype=np.int32)
        else:
            self._choice = np.concatenate([self._choice, np.zeros(size - known, dtype=np.int32)])
            self._choice[rows] = _NOT_CHOSEN
        self._chosen = touched.position

    def wanted(self) -> tuple[int, int]:
        """How many GPUs the claims ask for, and how many thousandths of each GPU: see `units`."""
        turnover = self._table.rows.turnover
        if self._wanted is None or self._wanted[0] != turnover:
            self._wanted = turnover, self.pod.wanted()
        return self._wanted[1]

    def search(self, nodes: NodeView) -> None:
        """Search the nodes of the view that counting leaves open. Raises DeadlineExceeded.

        Nodes that were searched before the deadline are not searched again. Nodes with equal problems are searched
        once, so an error names a device of one of them.
        """
        is_open = (self._codes[nodes.index] == _NOT_SEARCHED) & nodes.alive
        if not is_open.any():
            return
        for rows, found in self.pod.verdicts(nodes.rows[is_open]):
            self._codes[rows] = self._code(found) if isinstance(found, NodeVerdict) else 0

    def refresh(self, size: int) -> bool:
        """Count the nodes again for which something has changed, for `size` rows of nodes.

        Returns whether counting leaves some nodes open.
        """
        self._refresh(size)
        return self._are_open

    def _refresh(self, size: int) -> None:
        touched, known = self._table.touched, len(self._codes)
        position = touched.position
        if position == self._position and size == known:
            return
        rows = _changed(touched, self._position, known, size)
        if rows is None or len(rows):
            counted = self.pod.counted(size, rows)  # may raise DeadlineExceeded: nothing may be changed before
            if rows is None:
                self._codes, self._room = np.zeros(size, dtype=np.uint8), np.zeros(size, dtype=np.int64)
            elif size > known:
                self._codes = np.concatenate([self._codes, np.zeros(size - known, dtype=np.uint8)])
                self._room = np.concatenate([self._room, np.zeros(size - known, dtype=np.int64)])
            self._write(rows, counted)
        self._position = position

    def _refresh_bare(self) -> None:
        """Count as if no claim had devices: only nodes whose pools have changed since are counted again."""
        moved, known, size = self._table.moved, len(self._bare), len(self._codes)
        if moved.position == self._moved and size == known:
            return
        rows = _changed(moved, self._moved, known, size)
        if rows is None:
            self._bare = self.pod.counted(size, None, True).outcomes
        elif len(rows):
            outcomes = self.pod.counted(size, rows, True).outcomes
            self._bare = np.concatenate([self._bare, np.zeros(size - known, dtype=np.int8)])
            self._bare[rows] = outcomes
        self._moved = moved.position

    def _write(self, rows: Rows | None, counted: Counted) -> None:
        """Keep the counts of the nodes in these rows; with None, of all nodes."""
        index = slice(None) if rows is None else rows
        is_open = counted.outcomes == OPEN
        self._codes[index] = np.where(is_open, _NOT_SEARCHED, counted.outcomes != FITS)
        self._room[index] = np.where(is_open, -1, counted.room)
        self._are_open = bool((self._codes == _NOT_SEARCHED).any())

    def _code(self, refusal: NodeVerdict) -> int:
        if not refusal.is_exhaustive:
            return GAVE_UP
        error, texts = refusal.error, self._texts
        if not error:
            return FEW_DEVICES
        if error not in texts and len(texts) < _MOST_TEXTS:
            texts.append(error if len(texts) < _MOST_TEXTS - 1 else _ONE_OF_MANY)
        return FIRST_TEXT + (texts.index(error) if error in texts else len(texts) - 1)


def _changed(log: Changes, position: int, known: int, size: int) -> Rows | None:
    """The rows of nodes that have changed since `position`, and the new rows from `known` to `size`; None for all."""
    changed = log.since(position, max(64, size // 4)) if position >= 0 and size >= known else None
    if changed is None:
        return None
    rows = changed[0]
    if size > known:
        rows = np.union1d(rows, np.arange(known, size))
    return rows[rows < size]
