"""What a leader that stops leaves to the next one: up to which resourceVersions everything of its term is told.

The next leader has watched the cluster all the time. Once its watches have reached these versions, it has seen every
write of the leaders before it, and need not list anything anew. Of each kind the number is that of the last object that
the old leader's own watch has told; a kind is left out while this watch lacks a write of the old leader itself.

resourceVersions of one kind are compared as numbers, as Kubernetes allows since 1.35; etcd has never given others. A
version that is not a number is left to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gangline.kube.resources import Resource

ANNOTATION = "gangline.dev/handed-over"
"""Of the Lease of an election, while nobody holds it."""
_TEXT = re.compile(r"[a-z]{1,63}=\d{1,20}(?:,[a-z]{1,63}=\d{1,20}){0,15}", re.ASCII)
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)


class Writes:
    """The highest resourceVersion that this process has written, by kind."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def note(self, resource: Resource[Any], version: str) -> None:
        """An object was written, and has this version now."""
        self._last[resource.key] = max(self._last.get(resource.key, 0), number(version))

    def last(self, resource: Resource[Any]) -> int:
        """0 if nothing was written."""
        return self._last.get(resource.key, 0)


def number(version: str) -> int:
    """A resourceVersion as a number; 0 if it is none."""
    return int(version) if _NUMBER.fullmatch(version) else 0


def said(versions: Mapping[str, int]) -> str:
    """The versions by kind as a text."""
    return ",".join(f"{kind}={version}" for kind, version in versions.items())


def read(text: str) -> dict[str, int]:
    """The versions by kind in a text; none if it is no such text."""
    if not _TEXT.fullmatch(text):
        return {}
    return {kind: int(version) for kind, _, version in (each.partition("=") for each in text.split(","))}
