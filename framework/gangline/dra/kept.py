"""The devices of a cluster and the claims that have them, up to date while slices, classes, nodes and claims change.

A change does not rebuild the table. A slice changes the rows of its pool, and a claim that gets or gives back devices
changes the rows of these devices. The next question looks again only at the nodes for which the change may matter. Only
a DeviceClass that changes ends all questions: classes change rarely. If much has changed, what the next question would
have to bring up to date is brought up to date at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice

import msgspec

from gangline.deadline import POD_SECONDS, Deadline
from gangline.dra.allocator import Allocator
from gangline.dra.asked import Asked
from gangline.dra.asking import read
from gangline.dra.preparing import MOST_CLASSES, MOST_WAITING, SECONDS, Preparation, one_of
from gangline.dra.questions import Question
from gangline.dra.selecting import Compile, Selectors, compile_selector, compile_with_lists
from gangline.dra.solving import Solver
from gangline.dra.standing import Standing
from gangline.dra.table import SliceTable
from gangline.dra.usage import DeviceId, Usage
from gangline.errors import DeadlineExceeded, InvalidObject
from gangline.model.resource_claims import ResourceClaim, ResourceClaimAllocation
from gangline.model.resource_slices import DeviceClass, ResourceSlice
from gangline.sizes import BoundedCache
from gangline.state.changes import Changes
from gangline.state.node_view import NodeView

_MOST_BYTES = 128 << 20
"""Bytes of the answers to all questions, at most."""
_MOST_SPEC_BYTES = 8 << 20
"""Bytes of the specs that were read and checked before, at most."""
_MOST_TEXT_BYTES = 4 << 20
"""Bytes of the errors in answers, at most."""


class KeptDevices:
    """The devices of a cluster and the claims that have them, with the answers to questions that are kept."""

    def __init__(self, nodes: Callable[[], NodeView], solver: Solver | None = None) -> None:
        self.changes = Changes()
        """The rows of nodes for which an answer may have changed."""
        self._nodes = nodes
        self._compile: Compile = compile_selector
        self._slices: dict[str, ResourceSlice] = {}
        self._numbers: dict[str, int] = {}
        """By name of a slice: its number in the table."""
        self._classes: dict[str, DeviceClass] = {}
        self._taken: dict[Hashable, ResourceClaimAllocation] = {}
        self._usage = Usage()
        self._standing: Standing | None = None
        """The table with the devices that are taken; None before the first question."""
        self._allocator: Allocator | None = None
        self._questions: BoundedCache[Asked, Question] = BoundedCache(_MOST_BYTES, lambda _, each: each.nbytes)
        self._texts: BoundedCache[Asked, list[str]] = BoundedCache(
            _MOST_TEXT_BYTES, lambda key, texts: 10 * len(key.key) + 500 + sum(map(len, texts)), 64
        )
        self._specs: BoundedCache[bytes, Asked] = BoundedCache(_MOST_SPEC_BYTES, lambda key, _: 10 * len(key) + 500)
        self._asked: Asked | None = None
        """The last question: most questions are asked several times in a row."""
        self._solver = solver or Solver()
        self._preparation = Preparation()

    # What changes

    def read_lists(self, is_on: bool) -> None:
        """Say whether selectors read attributes that are lists (DRAListTypeAttributes); off at the start."""
        compile_ = compile_with_lists if is_on else compile_selector
        if compile_ is not self._compile:
            self._compile = compile_
            self._standing = self._allocator = None
            self._forget_questions()

    def _forget_questions(self) -> None:
        self._questions.clear()
        self._specs.clear()
        self._asked = None
        self.changes.note_all()

    def slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """A slice was added (no `old`), changed or deleted (no `new`)."""
        each = new if new is not None else old
        if each is None:
            return
        name = each.metadata.name
        before = self._slices.pop(name, None)
        if new is not None:
            self._slices[name] = new
            if before is not None and before.spec == new.spec:
                return
            self._preparation.note(new)
        if self._standing is None:
            self.changes.note_all()
            self._prepare(())
            return
        table = self._standing.table
        self._note_slice(before)
        if before is not None:
            table.drop(self._numbers.pop(name))
        if new is not None:
            self._numbers[name] = table.put(new)
        self._note_slice(new)
        self._prepare_if_much_waits()

    def _note_slice(self, each: ResourceSlice | None) -> None:
        """Note for which nodes a slice may matter."""
        if each is None or self._standing is None:
            return
        names = self._standing.table.nodes_of(each)
        if names is None:
            self.changes.note_all()
            return
        for name in names:
            self._note_node(name)

    def _note_node(self, name: str) -> None:
        row = self._nodes().row_of(name)
        if row is not None:
            self.changes.note(row)

    def class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        """A class was added (no `old`), changed or deleted (no `new`)."""
        each = new if new is not None else old
        if each is None:
            return
        before = self._classes.pop(each.metadata.name, None)
        if new is not None:
            self._classes[new.metadata.name] = new
            if before is not None and before.spec == new.spec:
                return
        self._forget_questions()
        if new is not None and self._standing is not None:
            self._prepare([new.metadata.name])

    def node_changed(self, name: str) -> None:
        """A node was added or deleted, or its labels changed. Without slices no answer changes."""
        if not self._slices:
            return
        if self._standing is None or self._standing.table.depends_on(name):
            self.changes.note_all()
        else:
            self._note_node(name)
        if self._standing is not None:
            self._standing.table.node_changed(name)
            self._prepare_if_much_waits()

    def expect_weighing(self) -> None:
        """Say that questions will ask for losses."""
        self._preparation.weighs = True
        if self._standing is not None:
            self._prepare(())

    def _prepare_if_much_waits(self) -> None:
        """Do now what the next question would have to do, if that is much."""
        if self._standing is not None and (self._standing.table.waiting > MOST_WAITING or self._standing.table.is_worn):
            self._prepare(islice(self._classes, MOST_CLASSES))

    def _prepare(self, classes: Iterable[str]) -> None:
        """Bring the table up to date, the columns that questions will read, and those of these classes."""
        allocator = self._current()[1]
        for name in classes:
            with suppress(InvalidObject, DeadlineExceeded), allocator.within(Deadline(SECONDS)):
                self._question(self.asked([one_of(name)])).pod.prepare()
        with suppress(DeadlineExceeded), allocator.within(Deadline(SECONDS)):
            self._preparation.prepare(allocator, len(self._nodes().whole))

    def take(self, key: Hashable, allocation: ResourceClaimAllocation) -> None:
        """The claim with this key now has the devices of this allocation, and no others."""
        before = self._taken.get(key)
        if before is allocation:
            return
        if before is not None:
            self._count(before, False)
        self._taken[key] = allocation
        self._count(allocation, True)

    def take_all(self, taken: Mapping[Hashable, ResourceClaimAllocation]) -> None:
        """As `take` for each of these claims, none of which has devices."""
        self._taken.update(taken)
        results = [each for allocation in taken.values() for each in allocation.devices.results]
        if self._standing is not None:
            self._standing.take(results, self.changes)
        else:
            self._usage.add(results)

    def give(self, key: Hashable) -> None:
        """The claim with this key no longer has devices."""
        before = self._taken.pop(key, None)
        if before is not None:
            self._count(before, False)

    def close(self, devices: Iterable[DeviceId]) -> None:
        """Somebody without a claim has these devices: claims do not get them until `open` is called as often."""
        self._set_closed(devices, 1)

    def open(self, devices: Iterable[DeviceId]) -> None:
        """Undo `close`."""
        self._set_closed(devices, -1)

    def _set_closed(self, devices: Iterable[DeviceId], sign: int) -> None:
        for device in devices:
            if self._standing is not None:
                self._standing.close(device, sign, self.changes)
            else:
                self._usage.close(device, sign)

    def is_used(self, device: DeviceId) -> bool:
        """Whether a claim has the device or a share of it."""
        return self._usage.is_used(device)

    def _count(self, allocation: ResourceClaimAllocation, is_taken: bool) -> None:
        results = allocation.devices.results
        if self._standing is not None:
            (self._standing.take if is_taken else self._standing.give)(results, self.changes)
        elif is_taken:
            self._usage.add(results)
        else:
            self._usage.remove(results)

    # Kept answers

    def _within(self, deadline: Deadline | None = None) -> AbstractContextManager[None]:
        """A block in which answers end with DeadlineExceeded after `deadline`, by default after POD_SECONDS."""
        return self._current()[1].within(deadline or Deadline(POD_SECONDS))

    def asked(self, claims: Sequence[ResourceClaim]) -> Asked:
        """The question that these claims ask. Raises InvalidObject for claims that no node can satisfy."""
        specs = tuple([claim.spec for claim in claims])
        if self._asked is not None and specs == self._asked.specs:  # comparing is quicker than encoding
            return self._asked
        key = _encode(specs)
        found = self._specs.get(key)
        if found is None:
            read(claims, self._classes)
            found = self._specs.put(key, Asked(key, specs))
        self._asked = found
        return found

    def _question(self, asked: Asked) -> Question:
        """The answers to a question, kept or new. Raises InvalidObject."""
        return self._asking(asked)[0]

    def _asking(self, asked: Asked) -> tuple[Question, Allocator]:
        """As `_question`, and the allocator whose `within` limits the time of the answers."""
        standing, allocator = self._current()
        found = self._questions.get(asked)
        if found is None:
            texts = self._texts.get(asked)
            if texts is None:
                texts = self._texts.put(asked, [])
            found = self._questions.put(asked, Question(allocator.ask(asked.claims()), standing.table, texts))
        return found, allocator

    def _current(self) -> tuple[Standing, Allocator]:
        """The table with the devices that are taken, and its allocator, after all changes so far."""
        if self._standing is not None and self._allocator is not None and not self._standing.table.is_worn:
            if self._standing.table.waiting:
                self._standing.table.settle(self._nodes().whole)
            return self._standing, self._allocator
        nodes = self._nodes().whole
        names = sorted(self._slices)
        table = SliceTable([self._slices[name] for name in names], nodes, by_name=True)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._questions.clear()
        self._standing = Standing(table, self._usage)
        self._allocator = Allocator(self._standing, self._classes, Selectors(table, self._compile), solver=self._solver)
        return self._standing, self._allocator


_encode = msgspec.json.Encoder(order="deterministic").encode
