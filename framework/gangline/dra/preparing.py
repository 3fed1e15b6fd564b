"""The table and the columns that questions will read, made while slices arrive: no decision makes them for all devices.

Which columns questions will read is a guess: those of the selectors of the first classes, and of the attributes and
capacities of devices. A wrong guess costs time, and changes no answer.
"""

from __future__ import annotations

from gangline.dra.allocator import Allocator
from gangline.dra.properties import Properties
from gangline.model.base import ObjectMeta
from gangline.model.resource_claims import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from gangline.model.resource_slices import ResourceSlice

MOST_WAITING = 32
"""If more pools than this have changed, the table and the columns are brought up to date before the next question."""
MOST_CLASSES = 8
"""Classes whose devices are looked up beforehand."""
SECONDS = 0.05
"""Seconds for which devices of a class are looked up, or columns made, beforehand; the next question does the rest."""
_MOST_NAMES = 64
"""Attributes, and capacities, whose columns are made beforehand."""
_MOST_VALUES = 4096
"""An attribute with more values than this tells devices apart, like a UUID: few questions read it."""


class Preparation:
    """Makes columns beforehand."""

    def __init__(self) -> None:
        self.weighs = False
        """Whether questions will weigh nodes by what is lost with their devices (the order `best`)."""
        self._attributes: dict[str, bool] = {}
        """By name: whether the column is made beforehand."""
        self._capacities: dict[str, bool] = {}

    def note(self, each: ResourceSlice) -> None:
        """A slice came. Its first device tells which attributes and capacities the devices have."""
        for device in each.spec.devices[:1]:
            for names, held in ((self._attributes, device.attributes), (self._capacities, device.capacity)):
                if len(names) < _MOST_NAMES:
                    for name in held:
                        names.setdefault(name if "/" in name else f"{each.spec.driver}/{name}", True)

    def prepare(self, allocator: Allocator, size: int) -> None:
        """Bring the columns up to date, for `size` rows of nodes. Raises DeadlineExceeded."""
        for names, column in ((self._attributes, Properties.attribute), (self._capacities, Properties.capacity)):
            for name, is_made in names.items():
                if is_made and column(allocator.properties, name).values.max(initial=0) > _MOST_VALUES:
                    names[name] = False
        if self.weighs:
            _ = allocator.losses.values
            allocator.units.total(size)


def one_of(device_class: str) -> ResourceClaim:
    """A claim of one device of a class."""
    request = DeviceRequest("device", ExactDeviceRequest(device_class, allocation_mode="ExactCount", count=1))
    return ResourceClaim(ObjectMeta(), ResourceClaimSpec(DeviceClaim([request])))
