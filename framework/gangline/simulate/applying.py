"""Server-side apply: the managers of each field, and an object after one manager has applied its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.errors import Conflict
from gangline.kube.interface import PatchKind
from gangline.kube.resources import Resource
from gangline.simulate.history import Data
from gangline.simulate.merging import MERGE_KEYS, Path, patched

Managers = dict[Path, frozenset[str]]
"""The managers that own a field."""
IDENTITY = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}


def applied(
    resource: Resource[Any],
    name: str,
    old: Data | None,
    body: Mapping[str, Any],
    managed: Mapping[Path, frozenset[str]],
    manager: str,
    force: bool,
) -> tuple[Data, Managers]:
    """The object after the apply, and the managers of its fields. Raises Conflict if another manager owns a field and
    `force` is off.
    """
    fields = {path: value for path, value in leaves(body).items() if path not in IDENTITY}
    taken = [
        path for path, value in fields.items() if managed.get(path, frozenset()) - {manager} and at(old, path) != value
    ]
    if taken and not force:
        raise _conflict(taken, managed, manager)
    data: Any = old or {"metadata": {"name": name}}
    managers: Managers = {}
    for path, owners in managed.items():
        if owners == {manager} and path not in fields:
            data = without(data, path)
        elif others := owners - {manager}:
            managers[path] = others
    for path in fields:
        others = frozenset() if path in taken else managers.get(path, frozenset())
        managers[path] = others | {manager}
    return patched(data, body, PatchKind.STRATEGIC), managers


def leaves(value: Any, path: Path = ()) -> dict[Path, Any]:
    """Every value that is not a mapping, nor a list with a merge key, by its path."""
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
    """The data without the field at a path; an item of a list goes with its merge key."""
    step, rest = path[0], path[1:]
    if isinstance(step, tuple):
        return _without_in_items(value, step, rest)
    if not isinstance(value, Mapping) or step not in value:
        return value
    if not rest:
        return {key: each for key, each in value.items() if key != step}
    return {**value, step: without(value[step], rest)}


def _without_in_items(items: Any, step: tuple[str, str], rest: Path) -> Any:
    if not isinstance(items, list):
        return items
    if rest == (step[0],):
        return [item for item in items if item.get(step[0]) != step[1]]
    return [without(item, rest) if item.get(step[0]) == step[1] else item for item in items]


def _conflict(taken: list[Path], managed: Mapping[Path, frozenset[str]], manager: str) -> Conflict:
    named = ", ".join(
        f"{_written(path)} (owned by {' and '.join(sorted(managed[path] - {manager}))})" for path in taken
    )
    return Conflict(409, "Conflict", f"Apply failed with {len(taken)} conflict(s): {named}")


def _written(path: Path) -> str:
    """The path as an API server writes it: ``.status.conditions[type="Ready"].reason``."""
    return "".join(f'[{step[0]}="{step[1]}"]' if isinstance(step, tuple) else f".{step}" for step in path)
