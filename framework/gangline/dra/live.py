"""The devices of a cluster and what is taken of them, kept up to date while slices, classes, nodes and claims change.

The table is made again when a slice or a node has changed, and what is taken of it when a claim has. Between two
changes, equal questions share one answer for each node that was asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from gangline.dra.allocator import Allocator, PodAllocator, Verdict
from gangline.dra.asking import read
from gangline.dra.counting import FITS, OPEN
from gangline.dra.selecting import Selectors
from gangline.dra.standing import Standing
from gangline.dra.table import DeviceTable
from gangline.dra.usage import Usage
from gangline.model.base import ObjectMeta
from gangline.model.resource_claims import (
    ResourceClaim,
    ResourceClaimAllocation,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from gangline.model.resource_slices import DeviceClass, ResourceSlice
from gangline.state.changes import Changes
from gangline.state.node_view import Int64Column, NodeView
from gangline.status import CodeColumn

NO_DEVICES = "cannot allocate all claims"
_MOST_KEPT = 64
"""Questions whose answers are kept."""
_MOST_TEXTS = 250
"""Different errors of one question that are told apart."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the claims of a pod ask for; equal for claims of equal specs."""

    key: bytes
    specs: tuple[ResourceClaimSpec, ...] = field(compare=False, repr=False)


class _Answers:
    """The answers to one question while nothing changes."""

    def __init__(self, allocator: PodAllocator, size: int) -> None:
        self.allocator = allocator
        self.outcomes = allocator.everywhere(size)


class Devices:
    """The devices of a cluster, and what claims have of them."""

    def __init__(self, nodes: Callable[[], NodeView]) -> None:
        self.changes = Changes()
        """The rows of nodes for which an answer may have changed."""
        self._nodes = nodes
        self._slices: dict[str, ResourceSlice] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._taken: dict[Hashable, ResourceClaimAllocation] = {}
        self._table: DeviceTable | None = None
        self._selectors: Selectors | None = None
        self._standing: Standing | None = None
        self._answers: dict[Asked, _Answers] = {}
        self._texts: dict[Asked, list[str]] = {}

    # What changes

    def slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """A slice came (no `old`), changed, or went (no `new`)."""
        if old is not None:
            self._slices.pop(old.metadata.name, None)
        if new is not None:
            self._slices[new.metadata.name] = new
        self._table_changed()

    def class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        """A class came (no `old`), changed, or went (no `new`)."""
        if old is not None:
            self._classes.pop(old.metadata.name, None)
        if new is not None:
            self._classes[new.metadata.name] = new
        self._answers.clear()
        self.changes.note_all()

    def node_changed(self, name: str) -> None:
        """A node came, went, or its labels changed."""
        self._table_changed()

    def take(self, key: Hashable, allocation: ResourceClaimAllocation) -> None:
        """A claim has these devices, and no others any more."""
        before = self._taken.get(key)
        if before is allocation:
            return
        self._taken[key] = allocation
        self._usage_changed(*(each for each in (before, allocation) if each is not None))

    def give(self, key: Hashable) -> None:
        """A claim has no devices any more."""
        before = self._taken.pop(key, None)
        if before is not None:
            self._usage_changed(before)

    def _table_changed(self) -> None:
        self._table = self._selectors = self._standing = None
        self._answers.clear()
        self.changes.note_all()

    def _usage_changed(self, *allocations: ResourceClaimAllocation) -> None:
        self._standing = None
        self._answers.clear()
        if self._table is None:
            return  # all rows are noted already
        for allocation in allocations:
            for result in allocation.devices.results:
                for row in self._table.index.get((result.driver, result.pool, result.device), ()):
                    node = int(self._table.node[row])
                    if node < 0:
                        self.changes.note_all()
                        return
                    self.changes.note(node)

    # Questions

    def asked(self, claims: Sequence[ResourceClaim]) -> Asked:
        """The question that these claims ask. Raises InvalidObject: no node can have anything for such claims."""
        read(claims, self._classes)
        specs = tuple(claim.spec for claim in claims)
        return Asked(msgspec.json.encode(specs, order="deterministic"), specs)

    def codes(self, asked: Asked, nodes: NodeView) -> CodeColumn:
        """By node of the view: 0 where all claims get devices, else a code: see `reason`. Raises InvalidObject."""
        answers = self._answers_to(asked)
        outcomes = answers.outcomes[nodes.index]
        codes = (outcomes != FITS).astype(np.uint8)
        rows, names = nodes.rows, nodes.whole.names
        for at in np.flatnonzero((outcomes == OPEN) & nodes.alive).tolist():
            row = int(rows[at])
            verdict = answers.allocator.on(row, names[row])
            codes[at] = 0 if verdict.allocations is not None else self._code(asked, verdict.error)
        return codes

    def _code(self, asked: Asked, error: str) -> int:
        if not error:
            return 1
        if asked not in self._texts:
            while len(self._texts) >= _MOST_KEPT:
                del self._texts[next(iter(self._texts))]
        texts = self._texts.setdefault(asked, [])
        if error not in texts and len(texts) < _MOST_TEXTS:
            texts.append(error)
        return 2 + texts.index(error) if error in texts else 2 + len(texts) - 1

    def reason(self, asked: Asked, code: int) -> tuple[str, bool]:
        """What a code says, and whether it is an error that fails the pod wherever it goes."""
        texts = self._texts.get(asked, [])
        return (texts[code - 2], True) if 0 <= code - 2 < len(texts) else (NO_DEVICES, False)

    def allocate(self, asked: Asked, claims: Sequence[ResourceClaim], row: int) -> Verdict:
        """What the node of a row has for these claims, device by device. Raises InvalidObject.

        `claims` ask for what `asked` says.
        """
        name = self._nodes().whole.names[row]
        if self._answers_to(asked).outcomes[row] == 0:
            return Verdict()
        return self._allocator(claims).on(row, name)

    def room(self, asked: Asked, nodes: NodeView) -> Int64Column | None:
        """At most how many pods with own claims of this kind fit on each node; None if that is not known."""
        wanted = _least(asked)
        if wanted is None:
            return None
        standing = self._current()
        table = standing.table
        if table.shareable.any() or bool((table.node < 0).any()):
            return None
        free = (table.node >= 0) & ~standing.taken
        counts = np.bincount(table.node[free], minlength=len(nodes.whole))
        return (counts[nodes.index] // wanted).astype(np.int64)

    def _answers_to(self, asked: Asked) -> _Answers:
        """Raises InvalidObject."""
        self._current()
        found = self._answers.get(asked)
        if found is None:
            claims = [
                ResourceClaim(ObjectMeta(f"claim-{number}"), spec, ResourceClaimStatus())
                for number, spec in enumerate(asked.specs)
            ]
            while len(self._answers) >= _MOST_KEPT:
                del self._answers[next(iter(self._answers))]
            found = self._answers[asked] = _Answers(self._allocator(claims), len(self._nodes().whole))
        return found

    def _allocator(self, claims: Sequence[ResourceClaim]) -> PodAllocator:
        standing = self._current()
        assert self._selectors is not None
        return Allocator(standing, self._classes, self._selectors).ask(claims)

    def _current(self) -> Standing:
        """The devices as they stand now."""
        if self._table is None:
            self._table = DeviceTable([self._slices[name] for name in sorted(self._slices)], self._nodes().whole)
            self._selectors = Selectors(self._table)
            self._standing = None
        if self._standing is None:
            usage = Usage()
            for allocation in self._taken.values():
                usage.add(ResourceClaim(ObjectMeta(""), status=ResourceClaimStatus(allocation)))
            self._standing = Standing(self._table, usage)
        return self._standing


def _least(asked: Asked) -> int | None:
    """How many devices the claims take at least, each for one claim alone; None if that is not known."""
    wanted = 0
    for spec in asked.specs:
        for request in spec.devices.requests:
            if (
                request.exactly is None
                or request.exactly.allocation_mode != "ExactCount"
                or request.exactly.admin_access
            ):
                return None
            wanted += request.exactly.count
    return wanted or None
