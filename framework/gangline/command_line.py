"""The imports for authors of commands: how commands of `gangline` find a cluster, judge it, and print.

A distribution adds a command by an entry point in the group `gangline.commands`: the name of the entry point is the
name of the command, its object is a `click.Command`.
"""

from gangline.commands import options
from gangline.commands.judging import Judged, check_level, judge
from gangline.commands.options import Connection
from gangline.commands.output import console, drawn, put, table, told
from gangline.commands.profiles import choose
from gangline.commands.reaching import Reached, connected, reached
from gangline.commands.seeing import point_out_emptiness
from gangline.plurals import many

__all__ = [
    "Connection",
    "Judged",
    "Reached",
    "check_level",
    "choose",
    "connected",
    "console",
    "drawn",
    "judge",
    "many",
    "options",
    "point_out_emptiness",
    "put",
    "reached",
    "table",
    "told",
]
