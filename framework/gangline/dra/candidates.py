"""Which devices the claims of a pod may get, in columns over the table.

The columns do not depend on which devices claims have, so the columns are kept, and only rows whose devices change are
evaluated again. `cutting` and `counting` then look at which of the devices are taken.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline.dra.asking import Alternative, Ask
from gangline.dra.capacities import Amount, consumption
from gangline.dra.reading import HAS_POLICY
from gangline.dra.rows import RowColumn, RowNumbers, kinds
from gangline.dra.selecting import FAILURE, YES, Selectors
from gangline.dra.standing import Standing
from gangline.status import BoolColumn

MEANT = 1
"""A flag: the request means the device: all selectors hold, and the device could give the requested capacities."""
USABLE = 2
"""A flag: the device is MEANT, and the request tolerates its taints."""
FAILS = 4
"""A flag: a selector fails with an error for the device."""

Flags = NDArray[np.uint8]
_Consumption = dict[str, tuple[Amount, int]]


class Candidates:
    """The devices for the claims of one pod."""

    def __init__(self, ask: Ask, standing: Standing, selectors: Selectors) -> None:
        self.ask = ask
        self.standing = standing
        self.table = standing.table
        self.alternatives = ask.alternatives
        self.properties = selectors.properties
        self._selectors = selectors
        alike: dict[Hashable, int] = {}
        keys = [
            msgspec.json.encode((each.expressions, each.tolerations, each.capacity), order="deterministic")
            for each in self.alternatives
        ]
        self.kind_of = [alike.setdefault(key, len(alike)) for key in keys]
        """By alternative: the number of its kind. Alternatives of one kind may be given the same devices."""
        self.firsts = [self.kind_of.index(kind) for kind in range(len(alike))]
        """By kind: the number of its first alternative."""
        self._of_kind = [self.alternatives[first] for first in self.firsts]
        self._consumption: list[dict[int, _Consumption | None]] = [{} for _ in alike]
        """By kind and code of capacities: what a share of the device consumes; None if the device cannot give it."""
        self._columns = [self._column(kind) for kind in range(len(alike))]

    def _column(self, kind: int) -> RowColumn[np.uint8]:
        return RowColumn(self.table.rows, np.uint8, lambda rows: self._evaluate(kind, rows))

    def flags(self, number: int) -> Flags:
        """By row: the flags MEANT, USABLE and FAILS of the device for the alternative with this number."""
        return self._columns[self.kind_of[number]].values

    def matter(self, rows: RowNumbers | slice) -> BoolColumn:
        """For each of the given rows: whether the device has a flag for some alternative."""
        found = np.array(self._columns[0].values[rows]) if self._columns else np.zeros_like(self.table.node[rows])
        for column in self._columns[1:]:
            found |= column.values[rows]
        return found > 0

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return sum(column.nbytes for column in self._columns)

    def check(self) -> None:
        """Raise DeadlineExceeded if the time of the question has passed: see `Selectors.within`."""
        self._selectors.check()

    def _evaluate(self, kind: int, rows: RowNumbers) -> Flags:
        alternative = self._of_kind[kind]
        verdicts = self._selectors.verdicts_on(alternative.expressions, rows)
        meant = verdicts == YES
        judged = meant if alternative.capacity else meant & (self.table.traits_on(rows) & HAS_POLICY > 0)
        places = np.flatnonzero(judged)
        if len(places):
            codes, first = kinds([self.properties.capacities.codes[rows[places]]])
            of_kind = [self._consumed(kind, alternative, row) is not None for row in rows[places[first]].tolist()]
            meant[places] = np.array(of_kind, dtype=np.bool_)[codes]
        usable = meant & self.properties.tolerated(alternative.tolerations, rows)
        found: Flags = MEANT * meant.view(np.uint8)
        found |= USABLE * usable.view(np.uint8)
        found |= FAILS * (verdicts >= FAILURE).view(np.uint8)
        return found

    def _consumed(self, kind: int, alternative: Alternative, row: int) -> _Consumption | None:
        code = self.properties.capacities.codes.item(row)
        found = self._consumption[kind]
        if code not in found:
            found[code] = consumption(self.table.devices[row].capacity, alternative.capacity)
        return found[code]

    def consumed(self, number: int, row: int) -> _Consumption:
        """By capacity: what a share of a device consumes for an alternative, and what the device has."""
        return self._consumed(self.kind_of[number], self.alternatives[number], row) or {}

    def suffices(self, number: int, row: int) -> bool:
        """Whether a device that is MEANT has enough capacity for one more share."""
        before = self.standing.consumed_before(row)
        wanted = self.consumed(number, row)
        return all(amount.thousandths + before.get(name, 0) <= has for name, (amount, has) in wanted.items())

    def suffice(self, number: int, rows: RowNumbers) -> BoolColumn:
        """As `suffices`, for each of some rows, which are not none."""
        codes, first = kinds([self.properties.capacities.codes[rows], self.standing.consumed[rows]])
        return np.array([self.suffices(number, row) for row in rows[first].tolist()], dtype=np.bool_)[codes]

    def complaint(self, number: int, row: int) -> str:
        """The message that says which selector of an alternative fails for the device in this row, and why."""
        alternative = self.alternatives[number]
        failed, why = self._failure(number, row)
        of_class = len(alternative.device_class.spec.selectors)
        if failed < of_class:
            return f"class {alternative.device_class.metadata.name}: selector #{failed}: {why}"
        return f"{self.ask.named(alternative.claim)}: selector #{failed - of_class}: {why}"

    def _failure(self, number: int, row: int) -> tuple[int, str]:
        """The number of the first selector of an alternative that fails for the device in this row, and why."""
        expressions = self.alternatives[number].expressions
        verdicts = [self._selectors.verdict_on(each, row) for each in expressions]
        failed = next(i for i, verdict in enumerate(verdicts) if verdict >= FAILURE)
        return failed, self._selectors.failures[verdicts[failed] - FAILURE]
