"""The devices with taints that end the work of pods, as slices and the DeviceTaintRules that count say.

These are taints of the effect NoExecute, and the taint of devices that the agent reports as unhealthy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from gangline import custom_resources, model
from gangline.dra.tolerating import NO_EXECUTE
from gangline.dra.usage import DeviceId

Taints = tuple[model.DeviceTaint, ...]
Pool = tuple[str, str]
"""Driver and name."""


class TaintedDevices:
    """Lists the devices with such taints in all slices but those of an older generation of their pool."""

    def __init__(self) -> None:
        self._slices: defaultdict[Pool, dict[str, dict[DeviceId, Taints]]] = defaultdict(dict)
        """The devices with such taints, by pool and by the name of their slice."""
        self._number: Counter[DeviceId] = Counter()
        """In how many slices a device has such a taint."""
        self._generations: defaultdict[Pool, dict[str, int]] = defaultdict(dict)
        """The generation of each slice, by pool and by the name of the slice."""
        self._listeners: list[Callable[[], None]] = []

    def follow(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener after each change of such taints; returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def slice_changed(self, old: model.ResourceSlice | None, new: model.ResourceSlice | None) -> None:
        """A slice was added (`old` is None), has changed, or was deleted (`new` is None).

        A slice of a newer generation makes the older slices of its pool count no more; without it they count again.
        """
        pools = {_pool(each) for each in (old, new) if each is not None}
        before = {pool: self._counting(pool) for pool in pools}
        if old is not None:
            self._drop(old)
        if new is not None:
            self._put(new)
        if any(self._counting(pool) != taints for pool, taints in before.items()):
            for listener in self._listeners:
                listener()

    def _drop(self, each: model.ResourceSlice) -> None:
        name, pool = each.metadata.name, _pool(each)
        self._generations[pool].pop(name, None)
        if not self._generations[pool]:
            del self._generations[pool]
        for device in self._slices[pool].pop(name, {}):
            self._number[device] -= 1
            if not self._number[device]:
                del self._number[device]
        if not self._slices[pool]:
            del self._slices[pool]

    def _put(self, each: model.ResourceSlice) -> None:
        name, pool = each.metadata.name, _pool(each)
        self._generations[pool][name] = each.spec.pool.generation
        devices = {(*pool, device.name): taints for device in each.spec.devices if (taints := _ending(device))}
        if devices:
            self._number.update(devices.keys())
            self._slices[pool][name] = devices

    def _counting(self, pool: Pool) -> dict[DeviceId, Taints]:
        """The devices of a pool with such taints, in slices of its newest generation."""
        slices = self._slices.get(pool)
        if not slices:
            return {}
        generations = self._generations[pool]
        newest = max(generations.values())
        return {id: taints for name, of in slices.items() if generations[name] == newest for id, taints in of.items()}

    def has(self, device: DeviceId) -> bool:
        """Whether a device may have a taint that ends pods."""
        return device in self._number

    def all(self) -> Iterator[tuple[DeviceId, Taints]]:
        """All devices that have taints which end pods, with these taints."""
        for pool in self._slices:
            yield from self._counting(pool).items()


def _pool(each: model.ResourceSlice) -> Pool:
    return each.spec.driver, each.spec.pool.name


def _ending(device: model.Device) -> Taints:
    """The taints of a device that end the work of pods."""
    return tuple(
        [taint for taint in device.taints if taint.effect == NO_EXECUTE or taint.key == custom_resources.UNHEALTHY]
    )
