"""The imports for authors of commands: how commands of `gangline` find a cluster, judge it, and print.

A distribution adds a command by an entry point in the group `gangline.commands`: the name of the entry point is the
name of the command, its object is a `click.Command`.
"""

from gangline.commands import options
from gangline.commands.judging import Judged, connected, judge
from gangline.commands.output import console, table
from gangline.commands.profiles import choose

__all__ = ["Judged", "choose", "connected", "console", "judge", "options", "table"]
