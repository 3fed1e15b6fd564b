"""Gives each write of an in-memory API server to the judge, as etcd would have recorded it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from gangline.kube.interface import EventType
from gangline.kube.resources import GPU_NODE_STATUSES, LEASES, NODES, PODS, RESOURCE_CLAIMS, Resource
from gangline.simulate import VirtualClock
from gangline.simulate.history import Change as Written
from gangline_chaos.judge import world
from gangline_chaos.judge.history import Change, Entry, Mark

_FOLDERS = {
    (each.group, each.plural): folder
    for each, folder in (
        (PODS, world.PODS),
        (NODES, world.NODES),
        (LEASES, world.LEASES),
        (RESOURCE_CLAIMS, world.CLAIMS),
        (GPU_NODE_STATUSES, world.REPORTS),
    )
}
"""The folders of etcd's keys for the objects of a kind."""


class Feed:
    """Tells changes and marks, in their order."""

    def __init__(self, clock: VirtualClock, told: Callable[[Entry], None]) -> None:
        self._clock = clock
        self._told = told
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """A hash of everything that was written: equal runs have equal digests."""
        return self._digest.hexdigest()

    def observe(self, resource: Resource[Any], written: Written) -> None:
        """A write of the server."""
        name, at = written.new.data["metadata"]["name"], self._clock.monotonic()
        self._digest.update(f"{at:.6f} {resource.plural} {written.type.value} {name}\n".encode())
        folder = _FOLDERS.get((resource.group, resource.plural))
        if folder is None:
            return
        metadata = written.new.data["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}" if resource.namespaced else metadata["name"]
        found = None if written.type is EventType.DELETED else written.new.data
        self._told(Change(self._clock.monotonic(), written.new.version, f"{folder}{name}", found))

    def mark(self, kind: str, name: str, text: str = "") -> None:
        """Something that was done to the cluster, or was seen."""
        self._told(Mark(self._clock.monotonic(), kind, name, text))
