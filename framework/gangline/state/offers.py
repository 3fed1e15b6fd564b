"""Which resources each node offers.

The resource axis is told of a set of resources when the first node offers this set, and when the last such node goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gangline.state.resource_axis import ResourceAxis

_NOTHING: frozenset[str] = frozenset()


class Offers:
    """The names of the resources in each row of the nodes."""

    def __init__(self, axis: ResourceAxis) -> None:
        self._axis = axis
        self._rows: list[frozenset[str]] = []
        self._alike: Counter[frozenset[str]] = Counter()
        """How many rows offer the same set of resources."""

    def add_row(self) -> None:
        """Add a row, which offers nothing yet."""
        self._rows.append(_NOTHING)
        self._alike[_NOTHING] += 1

    def at(self, row: int) -> frozenset[str]:
        """The resources that a row offers."""
        return self._rows[row]

    def change(self, row: int, names: frozenset[str]) -> Iterator[int]:
        """A row offers these resources now; yields the rows of the axis that become free and have to be emptied."""
        before = self._rows[row]
        if names == before:
            return
        self._rows[row] = names
        self._alike[names] += 1
        if self._alike[names] == 1:
            for resource in names:
                self._axis.offer(resource)
        self._alike[before] -= 1
        if not self._alike[before]:
            del self._alike[before]
            for resource in before:
                free = self._axis.withdraw(resource)
                if free is not None:
                    yield free
