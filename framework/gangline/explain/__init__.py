"""One decision in full: for each node and plugin the verdict, the reason and the score.

The names that this package exports are only for comparisons with kube-scheduler: see `parity`.
"""

from gangline.explain.parity import allocate, selects, verdict

__all__ = ["allocate", "selects", "verdict"]
