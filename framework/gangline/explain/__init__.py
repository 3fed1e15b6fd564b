"""One decision spelled out: per node and plugin the verdict, the reason and the score."""

from gangline.explain.parity import selects, verdict

__all__ = ["selects", "verdict"]
