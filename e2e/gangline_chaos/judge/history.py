"""What a history consists of, and how it is kept on disk: one JSON text for each line, compressed by gzip."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

Object = dict[str, Any]
"""An object of Kubernetes as etcd has it."""


class Change(NamedTuple):
    """A key of etcd was written, or deleted when there is no object."""

    at: float
    """Seconds since the record began."""
    revision: int
    key: str
    object: Object | None


class Mark(NamedTuple):
    """An event of the run itself: a fault begins or ends, or a process has ended."""

    at: float
    kind: str
    """`begin` and `end` of a fault, `ended` for a process, `quiet` when everything has settled."""
    name: str
    text: str = ""


Entry = Change | Mark


class HistoryFile:
    """A file to which a history is written, entry by entry."""

    def __init__(self, path: Path) -> None:
        self._file = gzip.open(path, "wt", compresslevel=3, encoding="utf-8")  # noqa: SIM115  # __exit__ closes the file

    def add(self, entry: Entry) -> None:
        """Write an entry."""
        self._file.write(json.dumps([type(entry).__name__, *entry], separators=(",", ":")) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read(path: Path) -> Iterator[Entry]:
    """The entries of a file, in their order."""
    kinds: dict[str, type[Change] | type[Mark]] = {"Change": Change, "Mark": Mark}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            kind, *fields = json.loads(line)
            yield kinds[kind](*fields)
