"""Numbers and lists of things in messages: `1 pod`, `2 pods`, `a, b, c, d and 3 more`."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_NAMED = 4


def many(number: int, thing: str) -> str:
    """A number and the name of the thing, which takes an s unless there is one of it."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def known_nodes(names: Sequence[str]) -> str:
    """The end of a message that there is no such node: the nodes that there are."""
    return f"the nodes are {listed(sorted(names))}" if names else "there are no nodes"
