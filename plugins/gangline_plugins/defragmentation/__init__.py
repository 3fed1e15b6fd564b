"""Defragmentation: moves running work aside so that a group that waits, or whole domains, find room at the least cost.

Everything but `applying`, `carrying` and `command` decides and does no I/O.
"""

from gangline_plugins.defragmentation.arguments import DefragmentationArgs
from gangline_plugins.defragmentation.plan import Move, Plan, Protected, Step
from gangline_plugins.defragmentation.planning import Planner

__all__ = ["DefragmentationArgs", "Move", "Plan", "Planner", "Protected", "Step"]
