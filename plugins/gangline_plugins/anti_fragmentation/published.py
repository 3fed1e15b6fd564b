"""The score exactly as its authors compute it, including rounding errors.

Their score is a whole number, and a gain of exactly 0 lies between two of these numbers. So the rounding errors of
their sums decide. If the gain is not 0, the order of addition does not matter.

Source: pkg/utils/frag.go of hkust-adsl/kubernetes-scheduler-simulator.
"""

from __future__ import annotations

import numpy as np

from gangline import BoolColumn
from gangline_plugins.anti_fragmentation.capacity import Amounts
from gangline_plugins.anti_fragmentation.gradient import Values
from gangline_plugins.anti_fragmentation.typical import Typical

_LACKS_BOTH, _LACKS_GPU, _FITS, _LACKS_CPU, _CPU_POD_FITS, _CPU_POD_LACKS, _NOT_ALLOWED = range(7)


def score(gain: Values) -> Values:
    """0 to 100 in whole numbers, for a gain in thousandths of a GPU."""
    return np.trunc(1.0 / (1.0 + np.exp(-(gain / 1000.0))) * 100.0)


def fragmentation(kinds: Typical, allowed: BoolColumn, cpu: Amounts, free: Amounts) -> Values:
    """The fragmentation in thousandths of a GPU, for states x 16 devices; `allowed` is states x kinds."""
    wanted = np.array([(kind.cpu, kind.count, kind.milli) for kind, _ in kinds], dtype=np.int64)
    popularity = np.array([popularity for _, popularity in kinds])
    room = free[:, None, :] >= wanted[:, 2, None]
    has_gpu = room.sum(axis=2) >= wanted[:, 1]
    has_cpu = cpu[:, None] >= wanted[:, 0]
    lost = np.where(room, 0, free[:, None, :]).sum(axis=2)
    cause = np.where(has_cpu, np.where(has_gpu, _FITS, _LACKS_GPU), np.where(has_gpu, _LACKS_CPU, _LACKS_BOTH))
    cause = np.where(allowed, cause, _NOT_ALLOWED)
    cause = np.where(wanted[:, 1] == 0, np.where(has_cpu, _CPU_POD_FITS, _CPU_POD_LACKS), cause)
    amount = popularity * np.where(cause == _FITS, lost, free.sum(axis=1)[:, None])
    cause = np.where(cause == _FITS, _LACKS_GPU, cause)
    total = np.zeros(len(free))
    for each in (_LACKS_BOTH, _LACKS_GPU, _LACKS_CPU, _CPU_POD_FITS, _CPU_POD_LACKS, _NOT_ALLOWED):
        total += np.where(cause == each, amount, 0.0).cumsum(axis=1)[:, -1]  # one after the other, as they do
    return total
