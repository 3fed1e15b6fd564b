"""How a patch changes JSON data: merge patch (RFC 7396) and strategic merge patch.

No function in this module changes its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.kube.interface import PatchKind
from gangline.simulate.history import Data

MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "taints": "key",
    "ownerReferences": "uid",
    "schedulingGates": "name",
    "webhooks": "name",
    "reservedFor": "uid",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
}
"""The merge key of each list whose items a strategic patch merges."""

_DELETE = "$deleteFromPrimitiveList/"
"""Before the name of a list: its values leave the list."""

Path = tuple[str | tuple[str, str], ...]
"""Field names, and (key, value) for the item of a list that has that value."""


def without_nulls(value: Any) -> Any:
    """Removes keys whose value is null: null means a missing key, as in every Kubernetes API."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def patched(data: Mapping[str, Any], patch: Mapping[str, Any], kind: PatchKind) -> Data:
    """The data after a patch; null removes a field."""
    result = dict(data)
    for key, change in patch.items():
        if kind is PatchKind.STRATEGIC and key.startswith(_DELETE):
            field = key.removeprefix(_DELETE)
            result[field] = [each for each in result.get(field, ()) if each not in change]
            continue
        old = result.get(key)
        if change is None:
            result.pop(key, None)
        elif isinstance(change, dict):
            result[key] = patched(old if isinstance(old, dict) else {}, change, kind)
        elif kind is PatchKind.STRATEGIC and isinstance(change, list):
            result[key] = _merged_list(key, old if isinstance(old, list) else [], change)
        else:
            result[key] = without_nulls(change)
    return result


def _merged_list(field: str, old: list[Any], change: list[Any]) -> list[Any]:
    """Items with a merge key replace fields of the item with this key, finalizers are added, other lists replaced."""
    if field == "finalizers":
        return [*old, *(each for each in change if each not in old)]
    key = MERGE_KEYS.get(field)
    if key is None:
        return [without_nulls(each) for each in change]
    items = {item.get(key): item for item in old}
    for item in change:
        if item.get("$patch") == "delete":
            items.pop(item.get(key), None)
        else:
            items[item.get(key)] = patched(items.get(item.get(key), {}), item, PatchKind.STRATEGIC)
    return list(items.values())
