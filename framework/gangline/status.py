"""Verdicts: the answer of a plugin about a pod or a node. Unschedulable is an answer, not an exception."""

from __future__ import annotations

import enum
import math
import reprlib
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

BoolColumn = NDArray[np.bool_]
"""One truth value per node."""
CodeColumn = NDArray[np.unsignedinteger]
"""One verdict per node: 0 feasible, k > 0 a reason of the plugin."""
ScoreColumn = NDArray[np.float64]
"""One score per node."""
MAX_SCORE = 100.0
_Array = TypeVar("_Array", bound=NDArray[Any])


def read_only(column: _Array) -> _Array:
    """The same memory as a read-only array: writing to the array, or to a slice of it, raises ValueError."""
    view = column.view()
    view.flags.writeable = False
    return view


class Code(enum.Enum):
    """The kinds of verdict, with kube-scheduler's names if it has them."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    SKIP_CLASS = "SkipClass"
    """Skip, for all pods of the class; not in kube-scheduler, which has no pod classes."""
    PENDING = "Pending"


class Reason(msgspec.Struct, frozen=True):
    """Why a node is rejected; ``resolvable`` says whether removing pods from it could help."""

    message: str
    resolvable: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.message, str):
            raise TypeError(f"a reason is a text, not {reprlib.repr(self.message)}")

    @property
    def code(self) -> Code:
        """The verdict that this reason stands for."""
        return Code.UNSCHEDULABLE if self.resolvable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE


class Status(msgspec.Struct, frozen=True):
    """A verdict on a pod as a whole."""

    code: Code
    """The kind of verdict."""
    reasons: tuple[str, ...] = ()
    """Why, in the words of an event."""
    plugin: str = ""
    """The plugin that gave the verdict; filled in by the framework."""
    timeout: float = 0.0
    """Seconds to wait at most; only for WAIT, from permit."""
    held_by: frozenset[str] = frozenset()
    """The plugins that hold members of a group that `plugin` rejects; filled in by the framework."""

    def __post_init__(self) -> None:
        if not isinstance(self.code, Code):
            raise TypeError(f"the code of a status is a Code, not {reprlib.repr(self.code)}")
        if not isinstance(self.reasons, tuple) or not all(isinstance(reason, str) for reason in self.reasons):
            raise TypeError(f"the reasons of a status are a tuple of texts, not {reprlib.repr(self.reasons)}")
        if not 0.0 <= self.timeout < math.inf:
            raise ValueError(f"a pod waits for a finite number of seconds, not for {self.timeout}")

    @property
    def is_success(self) -> bool:
        """Whether the verdict is a success."""
        return self.code is Code.SUCCESS

    @property
    def is_rejected(self) -> bool:
        """Whether the pod cannot be placed now; a fault is not a rejection."""
        return self.code in (
            Code.UNSCHEDULABLE,
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            Code.PENDING,
        )

    @property
    def message(self) -> str:
        """The reasons in one line."""
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        """The same verdict with the plugin that gave it."""
        return Status(self.code, self.reasons, plugin, self.timeout, self.held_by)


SUCCESS: Final = Status(Code.SUCCESS)
"""The plugin has no objection; at most extension points None means the same."""

SKIP: Final = Status(Code.SKIP)
"""From pre_filter and pre_score: leave this plugin out for this pod. From bind: let the next plugin bind."""

SKIP_CLASS: Final = Status(Code.SKIP_CLASS)
"""From pre_filter, instead of SKIP: the plugin concerns no pod of this class; reserve, permit, pre_bind and post_bind
do not call it either."""


def unschedulable(*reasons: str, resolvable: bool = True) -> Status:
    """The pod cannot be placed; ``resolvable`` says whether removing other pods could help."""
    code = Code.UNSCHEDULABLE if resolvable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    return Status(code, reasons)


def wait(timeout: float) -> Status:
    """From permit: hold the pod until it is allowed or rejected, at most timeout seconds."""
    return Status(Code.WAIT, timeout=timeout)


class Narrow(msgspec.Struct, frozen=True):
    """From pre_filter: only the nodes with these names can be feasible; the other nodes are not looked at."""

    names: frozenset[str]

    def __post_init__(self) -> None:
        if not isinstance(self.names, frozenset):
            raise TypeError(f"the names of nodes are a frozenset, not {reprlib.repr(self.names)}")


def codes(*conditions: BoolColumn) -> CodeColumn:
    """Verdicts from masks: a node gets the number of the first mask that holds, counted from 1, else 0."""
    verdict = np.zeros(len(conditions[0]), dtype=np.uint8)
    for number in range(len(conditions), 0, -1):
        verdict[conditions[number - 1]] = number
    return verdict


def merge(statuses: Iterable[Status]) -> Status:
    """The worst of several verdicts, as kube-scheduler orders them: error, unresolvable, unschedulable, pending."""
    order = (Code.ERROR, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.UNSCHEDULABLE, Code.PENDING)
    found = [status for status in statuses if status.code in order]
    return min(found, key=lambda status: order.index(status.code)) if found else SUCCESS
