"""Prints the output of commands: tables for people, JSON for programs; wide if the output is no terminal.

rich is imported when something is printed: `gangline run`, which shares modules with commands that print, never does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gangline.overview.claim_use import ClaimUse

_WIDE = 200
"""Width of output to a file or another program, so that no line is cut."""

_LONGEST = 10_000
"""Width of the longest line."""


def console(record: bool = False) -> Console:
    """Standard output."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WIDE, record=record, soft_wrap=False, highlight=False)


def table(*columns: str) -> Table:
    """A plain table, as kubectl prints it."""
    from rich.table import Table

    result = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        result.add_column(column, overflow="fold")
    return result


def claim_table(claims: Iterable[ClaimUse]) -> Table:
    """ResourceClaims with what they have or wait for."""
    result = table("CLAIM", "TEMPLATE", "ASKS FOR", "DEVICES", "WAITS")
    for each in claims:
        result.add_row(
            each.claim or "-", each.template or "-", each.asks or "-", ", ".join(each.devices) or "-", each.waits or "-"
        )
    return result


def print_whole(shown: Table) -> None:
    """Print a table; if the output is no terminal, each row is one line, however long."""
    screen = console()
    if not sys.stdout.isatty():
        screen.width = max(_WIDE, screen.measure(shown, options=screen.options.update_width(_LONGEST)).maximum)
    screen.print(shown)
