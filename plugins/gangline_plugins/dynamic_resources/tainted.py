"""The devices with taints that end the work of pods, as slices and the DeviceTaintRules that count say.

These are taints of the effect NoExecute, and the taint of devices that the agent reports as unhealthy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gangline import custom_resources, model
from gangline.dra.tolerating import NO_EXECUTE
from gangline.dra.usage import DeviceId

Taints = tuple[model.DeviceTaint, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Tainted:
    """The devices of a slice that have such taints."""

    pool: tuple[str, str]
    generation: int
    devices: dict[DeviceId, Taints]


class TaintedDevices:
    """Follows slices, and knows these devices. Slices of an older generation of their pool do not count."""

    def __init__(self) -> None:
        self._slices: dict[str, _Tainted] = {}
        """By name of a slice, if a device of it has such a taint."""
        self._number: Counter[DeviceId] = Counter()
        """In how many slices a device has such a taint."""
        self._generations: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        """By pool and name of a slice."""
        self._listeners: list[Callable[[], None]] = []

    def follow(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener after each change of such taints; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def slice_changed(self, old: model.ResourceSlice | None, new: model.ResourceSlice | None) -> None:
        """A slice came (no `old`), changed, or went (no `new`)."""
        before = self._drop(old) if old is not None else None
        after = self._put(new) if new is not None else None
        if before is None and after is None:
            return
        if before is None or after is None or before.devices != after.devices or before.pool != after.pool:
            for listener in self._listeners:
                listener()

    def _drop(self, each: model.ResourceSlice) -> _Tainted | None:
        name, pool = each.metadata.name, (each.spec.driver, each.spec.pool.name)
        self._generations[pool].pop(name, None)
        if not self._generations[pool]:
            del self._generations[pool]
        found = self._slices.pop(name, None)
        if found is not None:
            self._number.subtract(found.devices.keys())
            self._number += Counter()  # drops those that are 0
        return found

    def _put(self, each: model.ResourceSlice) -> _Tainted | None:
        name, pool, generation = each.metadata.name, (each.spec.driver, each.spec.pool.name), each.spec.pool.generation
        self._generations[pool][name] = generation
        devices = {(*pool, device.name): taints for device in each.spec.devices if (taints := _ending(device))}
        if not devices:
            return None
        self._number.update(devices.keys())
        found = self._slices[name] = _Tainted(pool, generation, devices)
        return found

    def has(self, device: DeviceId) -> bool:
        """Whether a device may have such a taint."""
        return device in self._number

    def all(self) -> Iterator[tuple[DeviceId, Taints]]:
        """These devices, and their taints that end pods."""
        for each in self._slices.values():
            if each.generation == max(self._generations[each.pool].values()):
                yield from each.devices.items()


def _ending(device: model.Device) -> Taints:
    """The taints of a device that end the work of pods."""
    return tuple(
        [taint for taint in device.taints if taint.effect == NO_EXECUTE or taint.key == custom_resources.UNHEALTHY]
    )
