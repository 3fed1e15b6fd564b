"""How a patch changes JSON data: merge patch (RFC 7396), strategic merge patch and server-side apply.

Nothing in here changes what it is given.
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
}
"""Lists whose items a strategic patch tells apart, and by what."""

Path = tuple[str | tuple[str, str], ...]
"""Field names, and (key, value) for the item of a list that has that value."""


def without_nulls(value: Any) -> Any:
    """A key whose value is null is a key that is not there, as in every Kubernetes API."""
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def patched(data: Mapping[str, Any], patch: Mapping[str, Any], kind: PatchKind) -> Data:
    """The data after a patch; null removes a field."""
    result = dict(data)
    for key, change in patch.items():
        old = result.get(key)
        if change is None:
            result.pop(key, None)
        elif isinstance(change, Mapping):
            result[key] = patched(old if isinstance(old, Mapping) else {}, change, kind)
        elif kind is PatchKind.STRATEGIC and isinstance(change, list) and isinstance(old, list):
            result[key] = _merged_list(key, old, change)
        else:
            result[key] = without_nulls(change)
    return result


def _merged_list(field: str, old: list[Any], change: list[Any]) -> list[Any]:
    """Items with a merge key replace the fields of their like, finalizers add up, other lists are replaced."""
    if field == "finalizers":
        return [*old, *(each for each in change if each not in old)]
    key = MERGE_KEYS.get(field)
    if key is None:
        return without_nulls(change)
    items = {item.get(key): item for item in old}
    for item in change:
        if item.get("$patch") == "delete":
            items.pop(item.get(key), None)
        else:
            items[item.get(key)] = patched(items.get(item.get(key), {}), item, PatchKind.STRATEGIC)
    return list(items.values())


# Server-side apply


def leaves(value: Any, path: Path = ()) -> dict[Path, Any]:
    """The fields that an apply owns: every value that is not a mapping or a list with a merge key."""
    found: dict[Path, Any] = {}
    if isinstance(value, Mapping):
        for key, each in value.items():
            found |= leaves(each, (*path, key))
        return found
    key = MERGE_KEYS.get(path[-1]) if path and isinstance(path[-1], str) and isinstance(value, list) else None
    if key is None:
        return {path: value}
    for item in value:
        found |= leaves(item, (*path, (key, str(item.get(key)))))
    return found


def at(value: Any, path: Path) -> Any:
    """The value at a path, or None."""
    for step in path:
        if isinstance(step, tuple):
            items = value if isinstance(value, list) else []
            value = next((item for item in items if item.get(step[0]) == step[1]), None)
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def without(value: Any, path: Path) -> Any:
    """The data without the field at a path; items of which nothing is left but the key go as well."""
    step, rest = path[0], path[1:]
    if isinstance(step, tuple):
        kept = []
        for item in value:
            changed = without(item, rest) if item.get(step[0]) == step[1] and rest else item
            if changed is item or set(changed) - {step[0]}:
                kept.append(changed)
        return kept
    if not isinstance(value, Mapping) or step not in value:
        return value
    if not rest:
        return {key: each for key, each in value.items() if key != step}
    return {**value, step: without(value[step], rest)}


def written(path: Path) -> str:
    """The path as an API server writes it: ``.status.conditions[type="Ready"].reason``."""
    return "".join(f'[{step[0]}="{step[1]}"]' if isinstance(step, tuple) else f".{step}" for step in path)
