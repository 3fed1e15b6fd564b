"""Reads the annotation gpu-scheduling-map: for each pod of a workload, by its index, a node and the devices there.

The annotation holds lines INDEX=NODE:DEVICES. A line that cannot be read is reported and skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from gangline.model import ObjectMeta
from gangline.wire.custom_resources import COMPLETION_INDEX, POD_INDEX

RANDOM_NAMES = ("ReplicaSet", "ReplicationController", "DaemonSet", "Job")
"""Kinds whose pods have names that end in random characters; these characters may all be digits."""

MOST_FAULTS = 20
"""Skipped lines that are kept with their reasons. A map may have 100,000 of them, and several maps are remembered."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_DIGITS = re.compile(r"[0-9]{1,18}")


class MapEntry(msgspec.Struct, frozen=True):
    """The node (name or alias) and the devices of one pod; the devices as in the text, for example ``0,1``."""

    node: str
    devices: str


class Fault(msgspec.Struct, frozen=True):
    """A skipped line; line numbers start at 1."""

    number: int
    line: str
    why: str

    def __str__(self) -> str:
        return f"line {self.number}, {self.line!r}: {self.why}"


class SchedulingMap(msgspec.Struct, frozen=True):
    """A whole annotation: the entries by index, and the first of the skipped lines."""

    entries: Mapping[int, MapEntry]
    faults: tuple[Fault, ...] = ()
    skipped: int = 0
    """The number of all skipped lines."""


@lru_cache(maxsize=8)
def parse(text: str) -> SchedulingMap:
    """The map in an annotation. Blank lines are ignored; the last of several lines for one index counts."""
    entries: dict[int, MapEntry] = {}
    faults: list[Fault] = []
    skipped = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not (bare := line.strip()):
            continue
        parsed = _parse_line(bare)
        if isinstance(parsed, str):
            skipped += 1
            if skipped <= MOST_FAULTS:
                faults.append(Fault(number, bare, parsed))
        else:
            index, entry = parsed
            entries[index] = entry
    return SchedulingMap(entries, tuple(faults), skipped)


def pod_index(metadata: ObjectMeta) -> int | None:
    """The index of a pod in its workload; None if it has none, or none yet because it has no name yet.

    A Job and a StatefulSet write it in a label or an annotation. Else it is what follows the generateName, or the last
    dash, in the name, unless the end of the name is random.
    """
    for source in (metadata.labels, metadata.annotations):
        for key in (COMPLETION_INDEX, POD_INDEX):
            if source and _DIGITS.fullmatch(index := source.get(key, "")):
                return int(index)
    if any(owner.controller and owner.kind in RANDOM_NAMES for owner in metadata.owner_references):
        return None
    return _index_in_name(metadata.name, metadata.generate_name)


def _parse_line(line: str) -> tuple[int, MapEntry] | str:
    """The index and entry of a line, or why the line cannot be read."""
    index, equals, place = (part.strip() for part in line.partition("="))
    if not equals:
        return "there is no '=' after the index"
    if not _INTEGER.fullmatch(index):
        return f"the index {index!r} is not an integer"
    node, colon, devices = (part.strip() for part in place.partition(":"))
    if not colon:
        return "there is no ':' between the node and its devices"
    if not node:
        return "it names no node"
    return int(index), MapEntry(node, devices)


def _index_in_name(name: str, prefix: str) -> int | None:
    if prefix and name.startswith(prefix) and _DIGITS.fullmatch(end := name[len(prefix) :]):
        return int(end)
    _, dash, end = name.rpartition("-")
    return int(end) if dash and _DIGITS.fullmatch(end) else None
