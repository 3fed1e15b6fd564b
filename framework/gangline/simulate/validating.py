"""The faults of a pod's resources for which an API server refuses the pod, with the server's messages.

Unlike on an API server, a request for GPUs needs no limit here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gangline.errors import InvalidQuantity
from gangline.quantity import milli

Amounts = Mapping[str, Any]


def faults(spec: Mapping[str, Any]) -> list[str]:
    """Each fault of the containers of a pod spec with its defaults: the path of the field and the message."""
    return [
        f"spec.{field}[{number}].resources.{fault}"
        for field in ("containers", "initContainers")
        for number, container in enumerate(spec.get(field, ()))
        for fault in _faults(container.get("resources", {}))
    ]


def _faults(resources: Mapping[str, Any]) -> Iterator[str]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            if _is_extended(name) and (_milli(value) or 0) % 1000:
                yield f"{field}[{name}]: {_invalid(value)}: must be an integer"
    for name, value in requests.items():
        if name in limits:
            yield from _of_both(name, value, limits[name])


def _of_both(name: str, request: Any, limit: Any) -> Iterator[str]:
    asked, most = _milli(request), _milli(limit)
    if asked is None or most is None:
        return
    if asked != most and not _may_be_overcommitted(name):
        yield f"requests: {_invalid(request)}: must be equal to {name} limit of {_text(limit)}"
    elif asked > most:
        yield f"requests: {_invalid(request)}: must be less than or equal to {name} limit of {_text(limit)}"


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_extended(name: str) -> bool:
    """Whether a resource is counted in whole units, for example GPUs."""
    return not _is_native(name) and not name.startswith("requests.")


def _may_be_overcommitted(name: str) -> bool:
    return _is_native(name) and not name.startswith("hugepages-")


def _milli(value: Any) -> int | None:
    """Thousandths; None for an invalid quantity, which the reader of the pod reports."""
    try:
        return milli(value)
    except InvalidQuantity:
        return None


def _invalid(value: Any) -> str:
    return f'Invalid value: "{_text(value)}"'


def _text(value: Any) -> str:
    """A quantity as an API server writes it: without a decimal point."""
    text = str(value)
    return f"{milli(value)}m" if "." in text else text
