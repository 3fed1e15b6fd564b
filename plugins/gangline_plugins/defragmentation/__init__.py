"""Defragmentation: moves running pods to other nodes, at the least cost, so that a waiting group or whole domains find
room.

Only `applying`, `following`, `command` and the background work of `plugin` do I/O; the other modules decide.
"""

from gangline_plugins.defragmentation.arguments import DefragmentationArgs
from gangline_plugins.defragmentation.plan import Move, MovePlan, MoveStep, Protected
from gangline_plugins.defragmentation.planning import Planner
from gangline_plugins.defragmentation.plugin import Defragmentation

__all__ = ["Defragmentation", "DefragmentationArgs", "Move", "MovePlan", "MoveStep", "Planner", "Protected"]
