"""Which row of the resource columns each resource has."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from gangline.state import requests
from gangline.state.pods import PodClass
from gangline.status import read_only

MOST_OFFERED = 1024
"""Resources that can have a row at the same time. Further ones count as offered by no node; a large cluster has
dozens."""
_MOST_INDICES = 1024


class ResourceAxis:
    """Maps resource names to rows of the resource columns.

    A resource has a row while some node offers it. Pods may request any name, but a resource that no node offers gets
    no row: `row` returns the empty row NOTHING for it. So pods cannot make the columns grow. When the last node with a
    resource goes, its row becomes free. Pod classes hold the rows of what they request; the axis updates these rows.
    """

    NOTHING = 4

    def __init__(self) -> None:
        self.names: list[str] = [requests.CPU, requests.MEMORY, requests.EPHEMERAL_STORAGE, requests.PODS, ""]
        """The resource of each row; "" for NOTHING and for free rows."""
        self._rows = {name: row for row, name in enumerate(self.names) if name}
        self._lasting = frozenset(self._rows)
        self._offers: Counter[str] = Counter()
        self._free: list[int] = []
        self._users: dict[str, weakref.WeakSet[PodClass]] = {}
        """For each resource without a permanent row the pod classes that request it."""
        self._indices: dict[tuple[str, ...], slice | NDArray[np.intp]] = {}
        self._places: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._on_growth: list[Callable[[], None]] = []
        self._tidied = _MOST_INDICES

    def row(self, name: str) -> int:
        """The row of a resource; NOTHING if no node offers it."""
        return self._rows.get(name, self.NOTHING)

    def rows(self, names: tuple[str, ...]) -> slice | NDArray[np.intp]:
        """The rows of several resources; a slice if they are consecutive, so that no copy is made."""
        found = self._indices.get(names)
        if found is None:
            rows = [self.row(name) for name in names]
            together = rows == list(range(rows[0], rows[0] + len(rows))) if rows else False
            found = slice(rows[0], rows[-1] + 1) if together else np.array(rows, dtype=np.intp)
            if len(self._indices) >= _MOST_INDICES:
                self._indices.clear()
            self._indices[names] = found
        return found

    def places(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """As `rows`, as plain numbers."""
        found = self._places.get(names)
        if found is None:
            if len(self._places) >= _MOST_INDICES:
                self._places.clear()
            found = self._places[names] = tuple([self.row(name) for name in names])
        return found

    def offer(self, name: str) -> None:
        """One more set of resources that nodes offer has this resource; counted until `withdraw`."""
        self._offers[name] += 1

    def give_row(self, name: str) -> bool:
        """Give an offered resource a row if it has none and there is room; returns whether that was done."""
        if name in self._rows or len(self._rows) >= MOST_OFFERED:
            return False
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
        self._rows[name] = row
        self._forget_indices()
        for tell in self._on_growth:
            tell()
        self._bring_up_to_date(name)
        return True

    def withdraw(self, name: str) -> int | None:
        """Undo one `offer`; returns the row that becomes free and has to be emptied, if any."""
        self._offers[name] -= 1
        if self._offers[name] > 0:
            return None
        del self._offers[name]
        if name in self._lasting or name not in self._rows:
            return None
        row = self._rows.pop(name)
        self.names[row] = ""
        self._free.append(row)
        self._forget_indices()
        self._bring_up_to_date(name)
        return row

    def follow(self, cls: PodClass) -> None:
        """Keep the rows of a class up to date from now on."""
        self._locate(cls)
        for name in cls.requests.real:
            if name not in self._lasting:
                users = self._users.get(name)
                if users is None:
                    users = self._users[name] = weakref.WeakSet()
                users.add(cls)
        if len(self._users) > 2 * self._tidied:
            self._users = {name: users for name, users in self._users.items() if users}
            self._tidied = max(_MOST_INDICES, len(self._users))

    def users(self, name: str) -> Collection[PodClass]:
        """The pod classes that request a resource without a permanent row."""
        return self._users.get(name, ())

    def on_growth(self, tell: Callable[[], None]) -> None:
        """Call `tell` whenever there is a new row."""
        self._on_growth.append(tell)

    def __len__(self) -> int:
        return len(self.names)

    def _forget_indices(self) -> None:
        self._indices.clear()
        self._places.clear()

    def _bring_up_to_date(self, name: str) -> None:
        for cls in self.users(name):
            self._locate(cls)

    def _locate(self, cls: PodClass) -> None:
        asked = {**cls.requests.real, requests.PODS: 1}
        known = {self._rows[name]: amount for name, amount in asked.items() if name in self._rows}
        cls.takes = tuple(known.items())
        cls.resources = read_only(np.array(list(known), dtype=np.intp))
        cls.amounts = read_only(np.array(list(known.values()), dtype=np.int64))
