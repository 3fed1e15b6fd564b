"""NVLinkTopology: prefers nodes on which a pod's GPUs are linked fast and whose other free GPUs stay linked.

Which devices those are, and whether their links are good enough, is decided with the claim (`GpuClaim`, which must run
in the same profile); here nodes are compared.
"""

from __future__ import annotations

import numpy as np

from gangline import NODE, PODS, SKIP, Cycle, Handle, NodeView, ScoreColumn, Status, hookimpl
from gangline_plugins.gpu.claim import FEASIBILITY, WANT
from gangline_plugins.gpu.devices import device_table

_SPEED, _WHOLENESS = 60.0, 40.0
"""What the bandwidth within the set counts, and what is left for others; 100 together."""


class NVLinkTopology:
    """Scores by the bandwidth of the best free set, and by what it leaves.

    Of a pod it reads what GpuClaim reads, which says so.
    """

    name = "NVLinkTopology"
    reads = NODE | PODS

    def __init__(self, handle: Handle) -> None:
        self._classes = device_table(handle.state).classes
        self.reads_own = (self._classes.faster,)

    @hookimpl
    def pre_score(self, cycle: Cycle) -> Status | None:
        """Only pods that want GPUs."""
        return SKIP if cycle.get(WANT) is None else None

    @hookimpl
    def score(self, cycle: Cycle, nodes: NodeView) -> ScoreColumn:
        """Bandwidth compared with the fastest link of the cluster; links that are not cut. Bandwidth within one device,
        or where the claim ignores topology, is no matter."""
        want = cycle.read(WANT)
        fits = cycle.read(FEASIBILITY).of(want, nodes)
        whole = fits.kept[nodes.index].astype(np.float64)
        fastest = self._classes.fastest
        if want.count < 2 or want.rule.mode == "Ignore" or want.rule.policy == "spread" or not fastest:
            whole *= 100.0
            return whole
        whole *= _WHOLENESS
        whole += np.multiply(fits.gbps[nodes.index], _SPEED / fastest, dtype=np.float64)
        return np.minimum(whole, 100.0, out=whole)
