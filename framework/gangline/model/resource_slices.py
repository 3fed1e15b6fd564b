"""The devices of drivers: ResourceSlices and DeviceClasses of dynamic resource allocation (resource.k8s.io/v1)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gangline.model.base import Object, ObjectMeta, Quantity
from gangline.model.selecting import NodeSelector

MOST_VALUES = 48
"""Values of the attributes of one device; the API takes no more."""
_Most = msgspec.Meta(max_length=MOST_VALUES)


class DeviceAttribute(Object):
    """The value of an attribute. Exactly one field is set; a list needs the feature gate DRAListTypeAttributes."""

    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: Annotated[list[int], _Most] | None = None
    bools: Annotated[list[bool], _Most] | None = None
    strings: Annotated[list[str], _Most] | None = None
    versions: Annotated[list[str], _Most] | None = None


class CapacityRange(Object):
    """The amounts of a capacity that may be consumed: from `min` to `max` in steps."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Object):
    """How much of a capacity an allocation consumes, when several allocations may share the device."""

    default: Quantity | None = None
    valid_values: list[Quantity] = []
    valid_range: CapacityRange | None = None


class DeviceCapacity(Object):
    """The amount of one capacity that a device has."""

    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class Counter(Object):
    """An amount that the devices of a pool share."""

    value: Quantity


class CounterSet(Object):
    """Counters that the devices of a pool may consume."""

    name: str
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Object):
    """What a device consumes of a counter set while it is allocated."""

    counter_set: str
    counters: dict[str, Counter] = {}


class DeviceTaint(Object):
    """A taint of a device."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class Device(Object):
    """One device of a slice."""

    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[DeviceCounterConsumption] = []
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] = []
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None


class ResourcePool(Object):
    """The pool that a slice belongs to."""

    name: str
    resource_slice_count: int
    generation: int = 0


class ResourceSliceSpec(Object):
    """spec of a ResourceSlice."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []


class ResourceSlice(Object):
    """Some devices, or some counters, of a pool."""

    metadata: ObjectMeta
    spec: ResourceSliceSpec
    api_version: str = "resource.k8s.io/v1"
    kind: str = "ResourceSlice"


class CelDeviceSelector(Object):
    """A CEL expression that is true for the devices that are selected."""

    expression: str


class DeviceSelector(Object):
    """A selector of devices; `cel` is its only form."""

    cel: CelDeviceSelector | None = None


class OpaqueDeviceConfiguration(Object):
    """Parameters that only the driver reads."""

    driver: str
    parameters: Any = None


class DeviceClassConfiguration(Object):
    """Configuration that a class gives to the drivers of its devices."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Object):
    """spec of a DeviceClass."""

    selectors: list[DeviceSelector] = []
    config: list[DeviceClassConfiguration] = []
    extended_resource_name: str | None = None


class DeviceClass(Object):
    """Devices that administrators offer under one name."""

    metadata: ObjectMeta
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)
    api_version: str = "resource.k8s.io/v1"
    kind: str = "DeviceClass"
