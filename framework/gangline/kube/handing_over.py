"""The record that a leader leaves to the next leader when it stops: resourceVersions that cover all its writes.

The next leader has watched the cluster all the time. Once its watches have reached these versions, it has seen every
write of the leaders before it, and need not list the objects again. The record has for each kind the version of the
last object that the old leader's own watch has delivered. A kind is left out while this watch has not delivered all
writes of the old leader itself.

resourceVersions of one kind are compared as numbers, as Kubernetes allows since 1.35; etcd has never used other
versions. A version that is not a number is never in the record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gangline.kube.resources import Resource

ANNOTATION = "gangline.dev/handed-over"
"""The annotation of the Lease of an election that has the record, while nobody holds the Lease."""
_TEXT = re.compile(r"[a-z]{1,63}=\d{1,20}(?:,[a-z]{1,63}=\d{1,20}){0,15}", re.ASCII)
_LARGEST = (1 << 63) - 1
"""The largest resourceVersion: etcd counts so far."""
_MOST_DIGITS = len(str(_LARGEST))


class Writes:
    """The highest resourceVersion that this process has written, by kind."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def note(self, resource: Resource[Any], version: str) -> None:
        """An object was written, and has this version now."""
        self._last[resource.key] = max(self._last.get(resource.key, 0), number(version))

    def last(self, resource: Resource[Any]) -> int:
        """The highest resourceVersion that was written of a kind; 0 if none was."""
        return self._last.get(resource.key, 0)


def number(version: str) -> int:
    """A resourceVersion as a number; 0 if it is not a number, or one that etcd never reaches."""
    is_number = version.isdecimal() and version.isascii() and len(version) <= _MOST_DIGITS
    return found if is_number and (found := int(version)) <= _LARGEST else 0


def said(versions: Mapping[str, int]) -> str:
    """The record as a text: the versions by kind."""
    return ",".join(f"{kind}={version}" for kind, version in versions.items())


def read(text: str) -> dict[str, int]:
    """The versions by kind in the text of a record; empty for any other text."""
    if not _TEXT.fullmatch(text):
        return {}
    return {kind: int(version) for kind, _, version in (each.partition("=") for each in text.split(","))}
