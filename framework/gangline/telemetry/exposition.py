"""The page of metrics as text; it is written at most every few seconds, and served unchanged in between.

prometheus_client writes small metrics. A metric with thousands of series writes its lines itself, and reads only values
that no other thread changes meanwhile: the page is written in another thread than decisions are made.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics

from gangline.telemetry.encodings import gzip_accepted

MAX_AGE = 2.0
"""Seconds for which a page is served again."""


class Family(Protocol):
    """A metric that writes its own lines; they are the same in both text formats."""

    def lines(self) -> Iterable[str]:
        """Whole families: # HELP, # TYPE and samples, each ended by a newline."""
        ...


class Page(msgspec.Struct, frozen=True):
    """A body and its headers."""

    body: bytes
    headers: Mapping[str, str]


class _Format(msgspec.Struct, frozen=True):
    content_type: str
    encode: Callable[[CollectorRegistry], bytes]
    end: bytes = b""


_PLAIN = _Format(CONTENT_TYPE_PLAIN_0_0_4, generate_latest)
_OPEN = _Format(openmetrics.CONTENT_TYPE_LATEST, openmetrics.generate_latest, b"# EOF\n")


class _Written(msgspec.Struct, frozen=True):
    at: float
    text: bytes
    zipped: bytes


class Exposition:
    """Every metric of one process."""

    def __init__(
        self,
        registry: CollectorRegistry,
        families: Sequence[Family] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._families = families
        self._clock = clock
        self._kept: dict[str, _Written] = {}

    def page(self, accept: str, accept_encoding: str) -> Page:
        """The page in the format that the headers of a request ask for, at most `MAX_AGE` old."""
        form = _OPEN if "application/openmetrics-text" in accept else _PLAIN
        written = self._kept.get(form.content_type)
        if written is None or self._clock() - written.at >= MAX_AGE:
            written = self._kept[form.content_type] = self._write(form)
        headers = {"Content-Type": form.content_type, "Vary": "Accept, Accept-Encoding"}
        if gzip_accepted(accept_encoding):
            return Page(written.zipped, {**headers, "Content-Encoding": "gzip"})
        return Page(written.text, headers)

    def _write(self, form: _Format) -> _Written:
        at = self._clock()
        small = form.encode(self._registry).removesuffix(form.end)
        large = "".join(line for family in self._families for line in family.lines()).encode()
        text = small + large + form.end
        return _Written(at, text, gzip.compress(text, compresslevel=1, mtime=0))


def head(name: str, kind: str, help: str) -> str:
    """The first two lines of a family."""
    explained = help.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f"# HELP {name} {explained}\n# TYPE {name} {kind}\n"


def labels(names: Sequence[str], values: Sequence[str]) -> str:
    """Label pairs as they stand between braces."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True))


def escaped(value: str) -> str:
    """A label value between quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value
