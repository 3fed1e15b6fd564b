"""Objects of resource.k8s.io/v1beta1 in the shape of v1, as JSON data. v1beta2 has the shape of v1 already.

What is in the newer shape, or malformed, stays as it is. The status of a claim has the same shape in all versions.
Slices are written too, so they have a way back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Upgrade = Callable[[Any], Any]
_OF_REQUESTS = ("name", "exactly", "firstAvailable")


def slice_upgraded(data: Any) -> Any:
    """A ResourceSlice: what a device has stands no longer under `basic`."""
    return _within(data, ("spec", "devices"), lambda devices: _each(devices, _device))


def slice_downgraded(data: Any) -> Any:
    """A ResourceSlice of v1 in the shape of v1beta1."""
    return _within(data, ("spec", "devices"), lambda devices: _each(devices, _basic))


def claim_upgraded(data: Any) -> Any:
    """A ResourceClaim: what a request asks for stands under `exactly`, unless it has alternatives."""
    return _within(data, ("spec", "devices", "requests"), lambda requests: _each(requests, _request))


def template_upgraded(data: Any) -> Any:
    """A ResourceClaimTemplate, with the requests of a claim."""
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
    # A request with alternatives has an empty deviceClassName there.
    return named if "exactly" in request or not any(exactly.values()) else {**named, "exactly": exactly}


def _within(data: Any, path: tuple[str, ...], change: Upgrade) -> Any:
    """The data with the value at a path changed, if there is one; null is none."""
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
