"""What plugins remember between the extension points of one scheduling cycle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

import msgspec
import numpy as np

from gangline.deadline import NO_DEADLINE, Deadline
from gangline.status import BoolColumn

T = TypeVar("T")
_NOTHING: Mapping[Any, Any] = MappingProxyType({})
_NO_NODES: BoolColumn = np.zeros(0, dtype=np.bool_)


class StateKey(Generic[T]):
    """A typed key: a plugin has one module-level instance for each value that it remembers."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"StateKey({self.name!r})"


class Cycle(msgspec.Struct, eq=False):
    """One attempt to place one pod.

    If a plugin declares `reads`, all pods of one identity share what the plugin writes. So the plugin must write only
    values that follow from the identity. The values that other plugins write belong to this attempt alone.
    """

    _shared: Mapping[StateKey[Any], Any] = _NOTHING
    skipped: Set[str] = frozenset()
    """The plugins that have answered SKIP_CLASS for the pod's class: reserve, permit, pre_bind, its pre-flight and
    post_bind do not call them; unreserve does, and so does bind.
    """
    deadline: Deadline = NO_DEADLINE
    """The time by which the attempt has to be decided; a plugin calls its `check` in long loops."""
    annotations: dict[str, str] = {}
    """Annotations for the pod, which the binding writes together with the node; reserve and pre_bind add some."""
    bind_by: float = math.inf
    """The last moment at which the binding may be sent, in seconds of the clock's monotonic time. A plugin that
    locks something for the pod lowers this value, because others may later take the lock for abandoned.
    """
    feasible: BoolColumn = _NO_NODES
    """The nodes that passed every filter, one truth value per row; set from pre_score on."""
    idle_at_pre_bind: Set[str] = frozenset()
    """The plugins whose pre_bind has nothing to do for this pod, and is not called."""
    _state: dict[StateKey[Any], Any] = {}

    def write(self, key: StateKey[T], value: T) -> None:
        """Remember a value under a key."""
        self._state[key] = value

    def read(self, key: StateKey[T]) -> T:
        """The value written under the key. Raises KeyError."""
        if key in self._state:
            return cast(T, self._state[key])
        return cast(T, self._shared[key])

    def get(self, key: StateKey[T]) -> T | None:
        """The value written under the key, or None."""
        return cast("T | None", self._state.get(key, self._shared.get(key)))

    def export(self) -> dict[StateKey[Any], Any]:
        """The values that were written in this cycle itself."""
        return self._state
