"""Prints the output of commands: tables for people, JSON, YAML and names for programs.

On a terminal lines are folded at its edge; in a file or another program each row is one line. rich is imported when
something is printed: `gangline run`, which shares modules with commands that print, never does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gangline.process.lines import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

    from gangline.overview.claim_use import ClaimUse

_WIDE = 200
"""Characters in a line of output to a file or another program, at least."""

_LONGEST = 10_000
"""Characters in a line that is not folded, at most."""

_PADDING = re.compile(r" +(?=(\x1b\[0m)?$)")
"""Spaces at the end of a line, also before the end of bold type: on a narrow terminal they would be folded."""
_SHORTEST, _READABLE = 8, 16
"""The smallest widths, in characters, to which cells and reasons are folded."""
_NARROW = 32
"""Columns of at most so many characters are not folded if this leaves as many characters for each other column."""


def console(record: bool = False) -> Console:
    """Standard output."""
    from rich.console import Console
    from rich.text import Text

    class Screen(Console):
        """Writes what is no text for people visibly: names and messages are those of anybody."""

        def render_str(self, text: str, **how: Any) -> Text:
            """See `Console`."""
            return super().render_str(visible(text), **how)

    width = None if sys.stdout.isatty() else _WIDE
    return Screen(width=width, record=record, soft_wrap=False, highlight=False, markup=False)


def told(value: Any, form: str, names: Iterable[str], draw: Callable[[Console], None]) -> str:
    """The output of a command in the form of its option -o: `value` as `json` or `yaml`, `names` line by line, or the
    text that `draw` prints.
    """
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(value, enc_hook=_value)).decode() + "\n"
    if form == "yaml":
        return msgspec.yaml.encode(value, enc_hook=_value).decode()
    if form == "name":
        return "".join(f"{visible(name)}\n" for name in names)
    return drawn(draw, form == "wide")


def name_of(pod: str) -> str:
    """A pod NAMESPACE/NAME in the form of -o name, as kubectl prints it."""
    return f"pod/{pod.rpartition('/')[2]}"


def drawn(draw: Callable[[Console], None], wide: bool = False) -> str:
    """The text that `draw` prints; each row is one line if it is `wide`, or if the output is no terminal."""
    screen = console()
    if wide or not sys.stdout.isatty():
        _unfold(screen)
    with screen.capture() as kept:
        draw(screen)
    return "".join(f"{_PADDING.sub('', line)}\n" for line in kept.get().splitlines())


def _value(value: Any) -> Any:
    return value.value  # only enums get here


def table(*columns: str) -> Table:
    """A plain table, as kubectl prints it."""
    from rich.table import Table

    result = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        result.add_column(column, overflow="fold")
    return result


def put(screen: Console, shown: Table, narrower: Callable[[], Table] | None = None) -> None:
    """Print a table whose last column is a reason. Names and numbers are not folded if room is left for the reason.

    On a narrower screen all columns are folded, but no word of a heading is. On a still narrower screen the table that
    `narrower` makes is printed instead, or else each row as one line, which the terminal folds.
    """
    *others, last = shown.columns
    widths = [_width(column) for column in others]
    narrow = [width <= _NARROW for width in widths]
    kept = sum(width for width, short in zip(widths, narrow, strict=True) if short) + 2 * len(widths)
    if kept + _NARROW * (1 + narrow.count(False)) <= screen.width:
        for column, short in zip(others, narrow, strict=True):
            column.no_wrap = short
        screen.print(shown)
        return
    for column in shown.columns:
        column.min_width = _least(column)
    last.min_width = max(_least(last), min(_width(last), _READABLE))
    if sum(column.min_width or 0 for column in shown.columns) + 2 * len(widths) <= screen.width:
        screen.print(shown)
        return
    if narrower is not None:
        put(screen, narrower())
        return
    before = screen.size
    _unfold(screen)
    screen.print(shown, crop=False, no_wrap=True)
    screen.size = before


def _unfold(screen: Console) -> None:
    """Let lines be as long as they are. Where TERM is `dumb`, rich believes in a width only together with a height."""
    screen.size = screen.size._replace(width=_LONGEST)


def _width(column: Column) -> int:
    """The width of a column, in characters: that of its widest cell, or of its heading."""
    from rich.cells import cell_len

    return max(cell_len(visible(str(cell))) for cell in (column.header, *column.cells))


def _least(column: Column) -> int:
    """The smallest width of a column, in characters: that of the longest word of its heading, or `_SHORTEST`."""
    from rich.cells import cell_len

    return max(min(_width(column), _SHORTEST), *map(cell_len, str(column.header).split()), 1)


def claim_table(claims: Iterable[ClaimUse]) -> Table:
    """A table of ResourceClaims, with their devices or with the reason why they wait."""
    result = table("CLAIM", "TEMPLATE", "ASKS FOR", "DEVICES", "WAITS")
    for each in claims:
        result.add_row(
            each.claim or "-", each.template or "-", each.asks or "-", ", ".join(each.devices) or "-", each.waits or "-"
        )
    return result


def print_whole(shown: Table) -> None:
    """Print a table; if the output is no terminal, each row is one line, however long."""
    click.echo(drawn(lambda screen: put(screen, shown)), nl=False)
