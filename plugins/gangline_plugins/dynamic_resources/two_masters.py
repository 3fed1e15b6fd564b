"""Notices GPUs with two masters: the agent of their node reports them for GpuClaims, and a ResourceSlice offers them.

This scheduler gives such a GPU out once (`twin_gpus`). But a device plugin, or another scheduler, knows of one way
only. What the report and the slice have in common is the UUID of the GPU.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from gangline import Handle, custom_resources, model, resources
from gangline_plugins.telling import Told

log = logging.getLogger(__name__)
REASON = "TwoDeviceMasters"
"""The reason of the event on the node."""
_ATTRIBUTES = ("uuid", "parentUUID")
"""The attributes of a device that name a GPU; the second one names that of a part."""
_PAUSE = 1.0
"""Seconds to wait for all slices and reports of a node, so that one event names all of its GPUs."""
_NOTHING: frozenset[str] = frozenset()


class _Object(Protocol):
    metadata: model.ObjectMeta


T = TypeVar("T", bound=_Object)


class _Naming(Generic[T]):
    """The UUIDs that the objects of one kind name."""

    def __init__(self, read: Callable[[T], Iterable[str]], changed: Callable[[Iterable[str]], None]) -> None:
        self._read = read
        self._changed = changed
        self._named: dict[str, frozenset[str]] = {}
        self.by_uuid: dict[str, dict[str, None]] = {}
        """The names of the objects that name a UUID, by the UUID."""

    def on_upsert(self, obj: T) -> None:
        """An object was added or has changed."""
        self._set(obj.metadata.name, frozenset(uuid for uuid in self._read(obj) if uuid))

    def first(self, uuid: str) -> str:
        """The first object that names a UUID."""
        return next(iter(self.by_uuid[uuid]))

    def on_remove(self, obj: T) -> None:
        """An object was deleted."""
        self._set(obj.metadata.name, _NOTHING)

    def _set(self, name: str, uuids: frozenset[str]) -> None:
        before = self._named.pop(name, _NOTHING)
        if uuids:
            self._named[name] = uuids
        if before == uuids:
            return
        for uuid in uuids - before:
            self.by_uuid.setdefault(uuid, {})[name] = None
        for uuid in before - uuids:
            del self.by_uuid[uuid][name]
            if not self.by_uuid[uuid]:
                del self.by_uuid[uuid]
        self._changed(before ^ uuids)


class TwoMasters:
    """Counts these GPUs, and says so once in an event of each node that has some."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._told = handle.state.shared(Told)
        self._count = handle.gauge(
            "gangline_gpus_with_two_masters",
            "GPUs that the agent of their node reports and that a ResourceSlice offers too.",
        )
        self._both: set[str] = set()
        self._changed = asyncio.Event()
        self._reports: _Naming[custom_resources.GpuNodeStatus] = _Naming(_reported, self._compare)
        self._slices: _Naming[model.ResourceSlice] = _Naming(_offered, self._compare)
        handle.state.store(resources.GPU_NODE_STATUSES).subscribe(self._reports)
        handle.state.store(resources.RESOURCE_SLICES).subscribe(self._slices)
        handle.run(self.run)

    async def run(self) -> None:
        """Count and tell until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_PAUSE)
            self._changed.clear()
            self.tell()

    def tell(self) -> None:
        """Show how many GPUs there are now, and tell of nodes of which nobody was told so far."""
        self._count.set(len(self._both))
        for node, uuids in self._by_node().items():
            first = min(uuids)
            which = f"{first} is" if len(uuids) == 1 else f"{first} and {len(uuids) - 1} others are"
            note = (
                f"GPU {which} in the node's GpuNodeStatus and in ResourceSlice {self._slices.first(first)} too: a "
                "device plugin or another scheduler may give out the GPU a second time"
            )
            if self._told.is_first(node, REASON, ""):
                log.warning("node %s: %s", node, note)
                regarding = model.TypedReference("Node", "", node, "", "v1")
                self._handle.recorder.about(regarding, self._handle.profile, "Warning", REASON, note, "Scheduling")

    def _by_node(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for uuid in self._both:
            found.setdefault(self._reports.first(uuid), []).append(uuid)
        return found

    def _compare(self, uuids: Iterable[str]) -> None:
        before = len(self._both)
        for uuid in uuids:
            if uuid in self._reports.by_uuid and uuid in self._slices.by_uuid:
                self._both.add(uuid)
            else:
                self._both.discard(uuid)
        if self._both or before:
            self._changed.set()


def _reported(report: custom_resources.GpuNodeStatus) -> Iterable[str]:
    return (device.uuid for device in report.status.devices)


def _offered(each: model.ResourceSlice) -> Iterable[str]:
    for device in each.spec.devices:
        for name in _ATTRIBUTES:
            value = device.attributes.get(name) or device.attributes.get(f"{each.spec.driver}/{name}")
            if value is not None:
                yield value.string or ""
