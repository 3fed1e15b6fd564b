"""Measures a cluster on which pods have come and gone: the sizes of each scheduler's collections, and memory."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass

from churn.bounded import BOUNDED
from churn.cluster import Churn
from churn.reach import Reach, of_modules
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, VirtualLoop
from gangline.simulate.history import History, Revision, Watch
from gangline_fuzz.budget import resident

_SURROUNDINGS = (Churn, InMemoryServer, SimulatedClient, VirtualClock, VirtualLoop, History, Revision, Watch)
"""The types at which the count stops: objects that both schedulers share, or that belong to neither."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The state of a cluster at rest."""

    pods: int
    """How many pods have come until then."""
    sizes: Mapping[str, int]
    """The size of each collection, by scheduler, type and attribute."""
    kib: Mapping[str, int]
    """KiB of all objects that can be reached from each scheduler."""
    rss_mib: float
    """Resident memory of the process, with both schedulers and the API server, in MiB."""


def measure(churn: Churn) -> Measured:
    """Look at everything."""
    gc.collect()
    sizes: dict[str, int] = {}
    kib = {}
    for name, scheduler in churn.schedulers.items():
        failures = scheduler.metrics.failures
        # The hooks that were slow have a series each: more and more of them on a busy machine, and a bounded number.
        slow = (failures.held, failures.slow_counts)
        found = Reach({name: scheduler, f"{name} running": churn.tasks[name]}, _SURROUNDINGS, BOUNDED, slow)
        sizes |= {f"{name}: {path}": size for path, size in found.sizes.items()}
        kib[name] = found.bytes >> 10
    found = Reach(of_modules("gangline"), _SURROUNDINGS, BOUNDED)
    sizes |= {f"modules: {path}": size for path, size in found.sizes.items()}
    return Measured(churn.done["made"], sizes, kib, resident())
