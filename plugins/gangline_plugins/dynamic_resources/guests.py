"""The devices that are meant for pods nominated to a node: choices for other pods leave them alone where they can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from gangline import NodeView, PodInfo, State
from gangline.dra.live import Devices
from gangline_plugins.dynamic_resources.claims import Claims
from gangline_plugins.dynamic_resources.entries import Allocation

Nominations = Mapping[str, Mapping[str, PodInfo]]
Solve = Callable[[PodInfo, Claims, int], Sequence[Allocation] | None]
"""From a pod, claims and a row to the devices that the row's node gives the claims; None if it lacks devices."""
_NOBODY = nullcontext(False)


class Guests:
    """The nominated pods with claims of their own."""

    def __init__(
        self,
        state: State,
        devices: Devices,
        nodes: Callable[[], NodeView],
        lacking: Callable[[PodInfo], Claims],
        solve: Solve,
    ) -> None:
        """`lacking` gives the claims of a pod that have no devices yet."""
        self._state = state
        self._devices = devices
        self._nodes = nodes
        self._lacking = lacking
        self._solve = solve
        self.nominated: Callable[[], Nominations] = dict
        """Returns the nominations. The plugin sets this, because only its handle knows the nominations."""

    def provided(self, pod: PodInfo, row: int) -> AbstractContextManager[bool]:
        """In this block, nominated pods of the same or a higher priority have their devices on the node of a row.

        If too few devices are free, devices that are about to come free are given too. Yields whether any devices were
        given.
        """
        nominated = self.nominated()
        return self._provided(nominated, pod, row) if nominated else _NOBODY

    @contextmanager
    def _provided(self, nominated: Nominations, pod: PodInfo, row: int) -> Iterator[bool]:
        allocations: list[Allocation] = []
        for guest in nominated.get(self._nodes().name_of(row), {}).values():
            if guest.uid != pod.uid and guest.row < 0 and guest.priority >= pod.priority:
                self._provide(guest, row, allocations)
        try:
            yield bool(allocations)
        finally:
            for number in range(len(allocations)):
                self._devices.give((self, number))

    def _provide(self, guest: PodInfo, row: int, allocations: list[Allocation]) -> None:
        claims = self._lacking(guest)
        if not claims:
            return
        found = self._solve(guest, claims, row)
        if found is None:
            with self._state.foreseen():
                found = self._solve(guest, claims, row) or ()
        for allocation in found:
            self._devices.take((self, len(allocations)), allocation)
            allocations.append(allocation)
