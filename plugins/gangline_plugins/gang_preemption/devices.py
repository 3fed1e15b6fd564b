"""The GPUs that claims hand out, as one more resource of the arithmetic, in thousandths of a device.

Pods with a claim have no GPU request, so requests do not show these GPUs. The arithmetic counts whole devices and
fractions. Everything else that a claim may ask for is left to the filters; MIG instances are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gangline import Handle, PodInfo, custom_resources
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.wants import Want

_WHOLE = 1000
PLENTY = 2**40
"""Thousandths that count as free on a node whose devices are not known."""


class GangDevices:
    """The devices of all nodes at one moment."""

    def __init__(self, handle: Handle, size: int) -> None:
        self._table = device_table(handle.state)
        columns = self._table.columns
        self._usable = (columns.healthy & ~columns.mig)[:size].tolist()
        whole = np.array([mask.bit_count() * _WHOLE for mask in self._usable], dtype=np.int64)
        self.free: NDArray[np.int64] = np.full(size, PLENTY, dtype=np.int64)
        known = columns.known[:size]
        self.free[: len(known)][known] = whole[known]
        for pod in handle.state.pods.values():
            held = self.held(pod)
            if held:
                self.free[pod.row] -= held

    def held(self, pod: PodInfo) -> int:
        """The thousandths of usable devices that become free when the pod goes."""
        found = self._table.allocation(pod.uid)
        if found is None or found.exclusivity == "MIG" or not 0 <= found.row < len(self._usable):
            return 0
        usable = self._usable[found.row]
        shares = found.milli or (_WHOLE,) * len(found.ids)
        return sum(share for id, share in zip(found.ids, shares, strict=False) if usable >> id & 1)

    def asked(self, pod: PodInfo) -> int:
        """The least that the pod asks for, in thousandths of a device."""
        want = self._table.wants.of(pod) if custom_resources.CLAIM in pod.annotations else None
        if not isinstance(want, Want) or want.exclusivity == "MIG":
            return 0
        return want.count * (want.milli if want.exclusivity == "Shared" else _WHOLE)


def devices_for(handle: Handle, members: Iterable[PodInfo], size: int) -> GangDevices | None:
    """The devices of all nodes; None if none of these pods has a claim."""
    return GangDevices(handle, size) if any(custom_resources.CLAIM in pod.annotations for pod in members) else None
