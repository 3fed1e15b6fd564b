"""NVLinkTopology: prefers nodes where a pod's GPUs are linked fast and the remaining free GPUs stay linked.

GpuClaim chooses these devices and decides whether their links are sufficient, so it must run in the same profile. This
plugin compares the nodes.
"""

from __future__ import annotations

import numpy as np

from gangline import NODE, PODS, SKIP, Cycle, Handle, NodeView, ScoreColumn, Status, hookimpl
from gangline_plugins.gpu.claim import FEASIBILITY, WANT
from gangline_plugins.gpu.devices import device_table

_SPEED, _WHOLENESS = 60.0, 40.0
"""The points for the bandwidth within the set, and for the links that remain; together 100."""


class NVLinkTopology:
    """Scores nodes by the bandwidth of their best free set of devices, and by the links that remain among the others.

    It depends on the same properties of a pod as GpuClaim, which states them in its identity.
    """

    name = "NVLinkTopology"
    reads = NODE | PODS

    def __init__(self, handle: Handle) -> None:
        self._classes = device_table(handle.state).classes
        self.reads_own = (self._classes.faster,)

    @hookimpl
    def pre_score(self, cycle: Cycle) -> Status | None:
        """Skip the score for pods that want no GPUs."""
        return SKIP if cycle.get(WANT) is None else None

    @hookimpl
    def score(self, cycle: Cycle, nodes: NodeView) -> ScoreColumn:
        """The bandwidth relative to the fastest link of the cluster, and the links that remain. The bandwidth does not
        count for a single device, or if the claim ignores topology or spreads its devices.
        """
        want = cycle.read(WANT)
        gbps, kept = cycle.read(FEASIBILITY).of(want, nodes).worth()
        whole = kept.astype(np.float64)
        fastest = self._classes.fastest
        if want.count < 2 or want.rule.mode == "Ignore" or want.rule.policy == "spread" or not fastest:
            whole *= 100.0
            return whole
        whole *= _WHOLENESS
        whole += np.multiply(gbps, _SPEED / fastest, dtype=np.float64)
        return np.minimum(whole, 100.0, out=whole)
