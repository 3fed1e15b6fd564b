"""What the devices of a cluster have for claims: the questions that decisions ask.

Every question ends: with an answer that its docstring names, or with DeadlineExceeded, where the time for it is over.
How the devices are kept up to date is in `kept`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from gangline.deadline import POD_SECONDS, Deadline
from gangline.dra.allocator import Allocations, NodeVerdict, Order, SharedOn
from gangline.dra.asked import Asked, named
from gangline.dra.kept import KeptDevices
from gangline.dra.preparing import one_of
from gangline.dra.questions import FIRST_TEXT, GAVE_UP, SEES_INVALID
from gangline.dra.reading import SHAREABLE
from gangline.dra.sharing import Values
from gangline.dra.stock import DeviceStock
from gangline.dra.supply import Supply
from gangline.dra.table import SEVERAL
from gangline.dra.units import MOST_UNITS
from gangline.dra.weighing import Chosen
from gangline.errors import DeadlineExceeded, InvalidObject
from gangline.model.resource_claims import ResourceClaim
from gangline.state.node_view import Int64Column, NodeView, Rows
from gangline.status import BoolColumn, CodeColumn

NO_DEVICES = "cannot allocate all claims"
TIMED_OUT = "timed out trying to allocate devices"
"""The message for a node on which the search for devices was given up."""
INVALID_POOLS = "invalid resource pools were encountered"
"""The message for a node without the devices for which some pool contradicts itself: this may be the reason."""
Places = NDArray[np.int64]
"""Positions in a view of nodes."""


class Devices(KeptDevices):
    """The devices of a cluster, and the claims that have them."""

    # Questions

    def codes(self, asked: Asked, nodes: NodeView, deadline: Deadline | None = None) -> CodeColumn:
        """By node of the view: 0 where all claims get devices, else a code that `reason` explains.

        Raises InvalidObject and, after `deadline` or POD_SECONDS, DeadlineExceeded; the answers so far are kept.
        """
        question, deadline = self._question(asked), deadline or Deadline(POD_SECONDS)
        with self._within(deadline):
            try:
                if question.refresh(len(nodes.whole)):
                    question.search(nodes)
            finally:
                self._questions.measure(asked)
        return question.codes(nodes)

    def may_have(self, asked: Asked, rows: Rows, deadline: Deadline | None = None) -> BoolColumn:
        """For each of these rows of nodes that lack devices: whether a node may have them once other claims end.

        False is certain, True is not: after `deadline` or POD_SECONDS, nodes that were not looked at may have them.
        Raises InvalidObject.
        """
        question = self._question(asked)
        try:
            with self._within(deadline):
                question.refresh(len(self._nodes().whole))
                return question.may_have(rows)
        except DeadlineExceeded:
            return np.ones(len(rows), dtype=np.bool_)

    def reason(self, asked: Asked, code: int, claims: Sequence[ResourceClaim]) -> str:
        """The message for a code, with the names of these claims. Codes from FIRST_TEXT on are errors."""
        if code == GAVE_UP:
            return TIMED_OUT
        texts = self._texts.get(asked) or []
        number = code - FIRST_TEXT
        if 0 <= number < len(texts):
            return named(texts[number], claims)
        return INVALID_POOLS if code == SEES_INVALID else NO_DEVICES

    def allocate(
        self,
        asked: Asked,
        claims: Sequence[ResourceClaim],
        row: int,
        order: Order = "upstream",
        shared_on: SharedOn | None = None,
    ) -> NodeVerdict:
        """The allocations of these claims on the node in this row. Raises InvalidObject and DeadlineExceeded.

        `claims` have the specs of `asked`. `shared_on` has for some claims the nodes that must reach their devices.
        """
        question, allocator = self._asking(asked)
        with allocator.within(Deadline(POD_SECONDS)):
            verdict = question.pod.on(row, self._nodes().name_of(row), claims, order, shared_on)
        return replace(verdict, error=named(verdict.error, claims)) if verdict.error else verdict

    def allocate_each(
        self, asked: Asked, claims: Sequence[Sequence[ResourceClaim]], rows: Sequence[int], order: Order = "upstream"
    ) -> list[Allocations] | None:
        """As `allocate` for many pods, each on another row, and each taking its devices before the next one is asked
        about; None if that has to be done one by one. Raises InvalidObject and DeadlineExceeded.
        """
        question, allocator = self._asking(asked)
        names = list(map(self._nodes().name_of, rows))
        with allocator.within(Deadline(POD_SECONDS)):
            return question.pod.on_each(rows, names, claims, order)

    def choices(self, asked: Asked, nodes: NodeView, deadline: Deadline | None = None) -> list[tuple[Chosen, Places]]:
        """Which alternatives the claims get, each set of them with the positions of nodes of the view.

        Nodes that do not have the devices are left out, and those that are not looked at before `deadline` or
        POD_SECONDS. Raises InvalidObject.
        """
        deadline = deadline or Deadline(POD_SECONDS)
        with suppress(DeadlineExceeded), self._within(deadline):
            places = np.flatnonzero((self.codes(asked, nodes, deadline) == 0) & nodes.alive)
            found = self._question(asked).choices(nodes, places)
            self._questions.measure(asked)
            return found
        return []

    def reached(self, asked: Asked, nodes: NodeView) -> tuple[list[BoolColumn], BoolColumn]:
        """Columns over the view: the sets of nodes that may use one free device together, and the nodes with their own.

        Raises InvalidObject and DeadlineExceeded.
        """
        question = self._question(asked)
        with self._within():
            sets, alone = question.pod.reached(len(nodes.whole))
        return [each[nodes.index] for each in sets], alone[nodes.index]

    def room(self, asked: Asked, nodes: NodeView, deadline: Deadline | None = None) -> Int64Column | None:
        """By node: the most pods with their own claims like these that fit; None if that is not known, or not before
        `deadline` or POD_SECONDS. Raises InvalidObject.
        """
        question = self._question(asked)
        try:
            with self._within(deadline):
                question.refresh(len(nodes.whole))
        except DeadlineExceeded:
            return None
        found = question.room(nodes)
        if (found >= 0).all():
            return found
        wanted = asked.least
        standing = self._current()[0]
        if wanted is None or standing.has_several_users:
            return None
        free = standing.free(len(nodes.whole))[nodes.index]
        return np.where(found >= 0, found, free // wanted)

    def least(self, asked: Asked) -> int:
        """The smallest number of devices that satisfies the claims. Raises InvalidObject."""
        return self._question(asked).pod.least

    def supply(self, kinds: Sequence[Asked], size: int, deadline: Deadline | None = None) -> Supply | None:
        """The devices that the first `size` nodes have for claims that ask one of these questions.

        None if several nodes or several claims may use one of the devices, or somebody without a claim has one that may
        come free: then counting devices says too little.
        Raises InvalidObject and DeadlineExceeded.
        """
        standing = self._current()[0]
        table = standing.table
        usable = np.zeros(len(table), dtype=np.bool_)
        with self._within(deadline):
            for asked in kinds:
                usable |= self._question(asked).pod.usable()
        if (usable & ((table.node == SEVERAL) | (table.traits & SHAREABLE > 0))).any():
            return None
        if any(usable[row] for device in standing.usage.closed for row in table.index.get(device, ())):
            return None
        return Supply(standing, usable, size)

    def losses(
        self, asked: Asked, nodes: NodeView, chosen: Chosen = frozenset(), deadline: Deadline | None = None
    ) -> Values:
        """By node of the view: what is lost if it serves these claims, about; zeros if that is not known before
        `deadline` or POD_SECONDS. Raises InvalidObject.

        `chosen` has the alternatives that requests get on all of these nodes; of other requests the first ones count.
        """
        question = self._question(asked)
        try:
            with self._within(deadline):
                return question.losses(nodes, chosen)
        except DeadlineExceeded:
            return np.zeros(len(nodes))
        finally:
            self._questions.measure(asked)

    def stock(self, device_class: str, nodes: NodeView, deadline: Deadline | None = None) -> DeviceStock:
        """By node of the view: the devices of a DeviceClass; zeros if there is no such class, or if they are not
        counted before `deadline` or POD_SECONDS.
        """
        try:
            question = self._question(self.asked([one_of(device_class)]))
            with self._within(deadline):
                return question.pod.stock(nodes.rows)
        except (InvalidObject, DeadlineExceeded):
            return DeviceStock(np.zeros(len(nodes), dtype=np.int64), np.zeros(len(nodes), dtype=np.int64))

    # GPUs

    @property
    def is_empty(self) -> bool:
        """Whether no driver offers devices."""
        return not self._slices

    def gpus(self, nodes: NodeView, deadline: Deadline | None = None) -> tuple[Int64Column, Int64Column]:
        """Thousandths of the GPUs that drivers offer: by node of the view, all; by node and GPU, the free ones.

        Zeros if they are not counted before `deadline` or POD_SECONDS.
        """
        units, size = self._current()[1].units, len(nodes.whole)
        try:
            with self._within(deadline):
                return units.total(size)[nodes.index], units.free(size)[nodes.index]
        except DeadlineExceeded:
            return np.zeros(len(nodes), dtype=np.int64), np.zeros((len(nodes), MOST_UNITS), dtype=np.int64)

    def gpus_wanted(self, asked: Asked, deadline: Deadline | None = None) -> tuple[int, int]:
        """How many GPUs the claims ask for, and the thousandths of each. Raises InvalidObject and DeadlineExceeded."""
        question = self._question(asked)
        with self._within(deadline):
            return question.wanted()
