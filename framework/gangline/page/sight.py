"""What a viewer may see: the namespaces whose pods the viewer may list. Of other namespaces only taken GPUs are shown.

A position names an edition of the picture and, by a hash, the namespaces that the viewer could see in it. If a viewer
comes back with a position and may see other namespaces now, the viewer starts anew. So the server remembers nothing
about viewers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from gangline.page.tables import EVERYBODY

MOST_NAMESPACES = 128
"""Namespaces, at most, about which the API server is asked for a viewer who may not list the pods of all namespaces."""


class PageViewer(Protocol):
    """A user who looks at the page."""

    @property
    def name(self) -> str:
        """The name of the user."""
        ...

    async def may_list_pods(self, namespace: str) -> bool:
        """Whether the user may list the pods of a namespace, or with "" of all. Raises GanglineError."""
        ...


class Everybody:
    """The viewer of a simulation, who may see everything."""

    name = ""

    async def may_list_pods(self, namespace: str) -> bool:
        """True: everybody may see a simulation."""
        return True


@dataclass(frozen=True, slots=True)
class Position:
    """The edition that a viewer has seen last, and what the viewer could see."""

    epoch: str
    number: int
    sight: str

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}.{self.sight}"


def position_of(text: str) -> Position | None:
    """The position in the text of a request; None for an invalid text."""
    epoch, _, rest = text.partition(".")
    number, _, sight = rest.partition(".")
    is_number = number.isascii() and number.isdigit() and len(number) < 16
    return Position(epoch, int(number), sight) if is_number and len(sight) <= 32 else None


async def seen_by(viewer: PageViewer, namespaces: Collection[str]) -> frozenset[str]:
    """The namespaces among these that the viewer may see, and `EVERYBODY`.

    For a viewer who may not list the pods of all namespaces, only the first `MOST_NAMESPACES` are asked about. Raises
    GanglineError.
    """
    if await viewer.may_list_pods(""):
        return frozenset((EVERYBODY, *namespaces))
    asked = sorted(namespaces)[:MOST_NAMESPACES]
    return frozenset([EVERYBODY, *[name for name in asked if await viewer.may_list_pods(name)]])


def hash_of(seen: Collection[str]) -> str:
    """A short text that is equal for equal sets of namespaces, and else differs."""
    return hashlib.sha256("\n".join(sorted(seen)).encode()).hexdigest()[:16]
