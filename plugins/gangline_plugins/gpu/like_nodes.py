"""Chooses whole devices for many like pods: nodes with like links and the same free devices give the same ones."""

from __future__ import annotations

from typing import NamedTuple

from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.choosing import ChoiceTables
from gangline_plugins.gpu.links import LinkClass, ids_of
from gangline_plugins.gpu.node_devices import NodeDevices
from gangline_plugins.gpu.wants import Want


class _Chosen(NamedTuple):
    """The devices to give; none if the mask is 0."""

    mask: int
    ids: tuple[int, ...]
    in_row: slice | None
    """The places of the devices, if they are next to each other."""


_NONE = _Chosen(0, (), None)


class WholeDevices:
    """The devices that pods with one want get in one profile."""

    def __init__(self, want: Want, tables: ChoiceTables, profile: str) -> None:
        self._want = want
        self._tables = tables
        self._profile = profile
        self._chosen: dict[tuple[LinkClass, int], _Chosen] = {}
        """The chosen devices, by the links and the free devices of a node."""
        self._last: tuple[LinkClass | None, int, _Chosen] = None, 0, _NONE
        """The links and the free devices of the last node, and what was chosen there: mostly the next node is like it.
        """

    def take(self, uid: str, node: NodeDevices, row: int) -> Allocation | None:
        """Give a pod the healthy devices that `NodeDevices.choose` would choose, and count them as `hold` does.

        None, with nothing changed, if these are not plain whole devices, or too few of the usual ones are free.
        """
        hardware = node.hardware
        if hardware is None or node.replicas != 1 or node.mig_single:
            return None
        free = hardware.healthy & ~hardware.mig & ~node.busy
        if node.avoided:
            free &= ~node.avoided.get(self._profile, 0)
        links, had, chosen = self._last
        if had != free or links is not hardware.links:
            chosen = self._choose(hardware.links, free)
        mask, ids, in_row = chosen
        if not mask:
            return None
        uuids = hardware.uuids
        allocation = Allocation(row, ids, uuids[in_row] if in_row is not None else tuple([uuids[id] for id in ids]))
        node.take_free(uid, allocation, mask, in_row)
        return allocation

    def _choose(self, links: LinkClass, free: int) -> _Chosen:
        found = self._chosen.get((links, free))
        if found is None:
            mask = self._tables.of(links, self._want.count, self._want.rule).choose(free)
            ids, in_row = ids_of(mask), None
            if ids and ids[-1] - ids[0] == len(ids) - 1:
                in_row = slice(ids[0], ids[-1] + 1)
            found = self._chosen[links, free] = _Chosen(mask, ids, in_row)
        self._last = links, free, found
        return found
