"""One decision spelled out: per node and plugin the verdict, the reason and the score."""

from gangline.explain.parity import allocate, verdict

__all__ = ["allocate", "verdict"]
