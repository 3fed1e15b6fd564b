"""Defragmentation: moves running work aside so that a group that waits, or whole domains, find room at the least cost.

Everything but `applying`, `following`, `command` and the background work of `plugin` decides and does no I/O.
"""

from gangline_plugins.defragmentation.arguments import DefragmentationArgs
from gangline_plugins.defragmentation.plan import Move, Plan, Protected, Step
from gangline_plugins.defragmentation.planning import Planner
from gangline_plugins.defragmentation.plugin import Defragmentation

__all__ = ["Defragmentation", "DefragmentationArgs", "Move", "Plan", "Planner", "Protected", "Step"]
