"""What the authors of commands import: how commands of `gangline` find a cluster, judge it, and print.

A distribution adds a command by an entry point in the group `gangline.commands`: its name is that of the command, its
object a `click.Command`.
"""

from gangline.commands.judging import Judged, connected, judge
from gangline.commands.output import console, table
from gangline.commands.profiles import choose

__all__ = ["Judged", "choose", "connected", "console", "judge", "table"]
