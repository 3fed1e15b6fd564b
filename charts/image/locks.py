"""Reads lock files: which packages, and which files of each may be installed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package; ``hashes`` are the SHA-256 of its files, one of which is what gets installed."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its package URL."""
        return f"pkg:pypi/{self.name.lower().replace('_', '-')}@{self.version}"


def read(path: Path) -> list[Pin]:
    """The packages of a lock file in its order. ValueError for one without a hash, or for a line that is no pin."""
    pins = []
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        found, hashes = _PIN.match(line), tuple(sorted(_HASH.findall(line)))
        if not found or not hashes:
            raise ValueError(f"{path.name}: {line.split()[0]!r} is not pinned to a version and to hashes")
        pins.append(Pin(found[1], found[2], hashes))
    return pins
