"""What plugins remember between the extension points of one scheduling cycle."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Generic, TypeVar, cast

import numpy as np

from gangline.deadline import NO_DEADLINE, Deadline
from gangline.status import BoolColumn

T = TypeVar("T")
_NO_NODES: BoolColumn = np.zeros(0, dtype=np.bool_)


class StateKey(Generic[T]):
    """A typed key: one module-level instance for each thing that a plugin remembers."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"StateKey({self.name!r})"


class Cycle:
    """One attempt to place one pod.

    A plugin that declares `reads` shares what it writes among all pods of one identity, so it must write only what
    follows from the identity; other plugins write for this attempt alone.
    """

    __slots__ = ("_shared", "_state", "annotations", "deadline", "feasible", "skipped")

    def __init__(
        self,
        shared: Mapping[StateKey[Any], Any] | None = None,
        skipped: Set[str] = frozenset(),
        deadline: Deadline = NO_DEADLINE,
    ) -> None:
        self._shared = shared if shared is not None else {}
        self._state: dict[StateKey[Any], Any] = {}
        self.annotations: dict[str, str] = {}
        """Set on the pod by the API server in the same write as the node; reserve and pre_bind add to it."""
        self.skipped = skipped
        """The plugins that no pod of the class concerns: they are not asked at reserve and permit."""
        self.deadline = deadline
        """Until when the attempt has to be decided; a plugin that searches for long calls its `check` now and then."""
        self.feasible = _NO_NODES
        """From pre_score on: which nodes passed every filter, one truth value per row."""

    def write(self, key: StateKey[T], value: T) -> None:
        """Remember value under key."""
        self._state[key] = value

    def read(self, key: StateKey[T]) -> T:
        """What was written under key. Raises KeyError."""
        if key in self._state:
            return cast(T, self._state[key])
        return cast(T, self._shared[key])

    def get(self, key: StateKey[T]) -> T | None:
        """What was written under key, or None."""
        return cast("T | None", self._state.get(key, self._shared.get(key)))

    def export(self) -> dict[StateKey[Any], Any]:
        """What this cycle itself wrote."""
        return self._state
