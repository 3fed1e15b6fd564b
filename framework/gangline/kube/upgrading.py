"""Objects of resource.k8s.io/v1beta1 in the shape of v1, as JSON data. v1beta2 has the shape of v1 already.

Data that is malformed, or in the newer shape already, is not changed. The status of a claim has the same shape in all
versions. Slices are also written, so there is a function for the other direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Upgrade = Callable[[Any], Any]
_OF_REQUESTS = ("name", "exactly", "firstAvailable")


def slice_upgraded(data: Any) -> Any:
    """A ResourceSlice in the shape of v1: the fields of a device are no longer under `basic`."""
    return _within(data, ("spec", "devices"), lambda devices: _each(devices, _device))


def slice_downgraded(data: Any) -> Any:
    """A ResourceSlice of v1 in the shape of v1beta1."""
    return _within(data, ("spec", "devices"), lambda devices: _each(devices, _basic))


def claim_upgraded(data: Any) -> Any:
    """A ResourceClaim in the shape of v1: the fields of a request without alternatives are under `exactly`."""
    return _within(data, ("spec", "devices", "requests"), lambda requests: _each(requests, _request))


def template_upgraded(data: Any) -> Any:
    """A ResourceClaimTemplate in the shape of v1: its requests change as those of a claim do."""
    return _within(data, ("spec",), claim_upgraded)


def class_upgraded(data: Any) -> Any:
    """A DeviceClass has the same shape in all versions."""
    return data


def _device(device: dict[str, Any]) -> dict[str, Any]:
    basic = device.get("basic")
    if not isinstance(basic, dict):
        return device
    return {**basic, **{key: value for key, value in device.items() if key != "basic"}}


def _basic(device: dict[str, Any]) -> dict[str, Any]:
    basic = {key: value for key, value in device.items() if key != "name"}
    return {"name": device.get("name"), "basic": basic}


def _request(request: dict[str, Any]) -> dict[str, Any]:
    exactly = {key: value for key, value in request.items() if key not in _OF_REQUESTS}
    named = {key: value for key, value in request.items() if key in _OF_REQUESTS}
    # In v1beta1 a request with alternatives has an empty deviceClassName.
    return named if "exactly" in request or not any(exactly.values()) else {**named, "exactly": exactly}


def _within(data: Any, path: tuple[str, ...], change: Upgrade) -> Any:
    """The data with the value at a path changed, unless the value is missing or null."""
    if not path:
        return change(data)
    if not isinstance(data, dict) or path[0] not in data:
        return data
    if data[path[0]] is None:
        return {key: value for key, value in data.items() if key != path[0]}
    return {**data, path[0]: _within(data[path[0]], path[1:], change)}


def _each(values: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if not isinstance(values, list):
        return values
    return [change(each) if isinstance(each, dict) else each for each in values]
