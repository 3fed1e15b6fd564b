"""One decision spelled out: per node and plugin the verdict, the reason and the score."""

from gangline.explain.parity import allocate, selects, verdict

__all__ = ["allocate", "selects", "verdict"]
