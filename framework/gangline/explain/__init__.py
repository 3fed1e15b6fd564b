"""One decision spelled out: per node and plugin the verdict, the reason and the score.

The names that this package exports are for comparisons with kube-scheduler alone: see `parity`.
"""

from gangline.explain.parity import allocate, selects, verdict

__all__ = ["allocate", "selects", "verdict"]
