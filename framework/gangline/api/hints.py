"""Cluster events that may make a rejected pod schedulable, and the hints by which a plugin judges such events."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from gangline.state.pods import PodInfo


class Action(enum.Flag):
    """What happened to an object, as in kube-scheduler's ActionType."""

    ADD = enum.auto()
    DELETE = enum.auto()
    UPDATE_NODE_ALLOCATABLE = enum.auto()
    UPDATE_NODE_LABEL = enum.auto()
    UPDATE_NODE_TAINT = enum.auto()
    UPDATE_NODE_CONDITION = enum.auto()
    UPDATE_POD_LABEL = enum.auto()
    UPDATE_POD_SCALE_DOWN = enum.auto()
    UPDATE_POD_GATES_ELIMINATED = enum.auto()
    UPDATE_OTHER = enum.auto()
    UPDATE_NODE_ANNOTATION = enum.auto()
    UPDATE_NODE = (
        UPDATE_NODE_ALLOCATABLE | UPDATE_NODE_LABEL | UPDATE_NODE_ANNOTATION | UPDATE_NODE_TAINT | UPDATE_NODE_CONDITION
    )
    UPDATE_POD = UPDATE_POD_LABEL | UPDATE_POD_SCALE_DOWN | UPDATE_POD_GATES_ELIMINATED
    UPDATE = UPDATE_NODE | UPDATE_POD | UPDATE_OTHER
    ALL = ADD | DELETE | UPDATE


Hint = Callable[[PodInfo, Any, Any], bool]
"""Called with the rejected pod, the object before the event (None for an addition) and the object after it (None for a
deletion). Returns whether the event may make the pod schedulable. A hint must be quick: it is called for every pod that
the plugin rejected. If the plugin declares `reads`, it is called for one of several pods that the plugin cannot tell
apart: pods of one class for which its `identity`, if it has one, answers the same."""


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A kind of change: a resource by its plural ("nodes", "pods", "*") and what happened to it."""

    resource: str
    action: Action

    def __post_init__(self) -> None:
        if not isinstance(self.resource, str) or not isinstance(self.action, Action):
            raise TypeError(f"an event is a plural and an Action, not {self.resource!r} and {self.action!r}")
        if not self.action:
            raise ValueError(
                f"an event of {self.resource!r} names no Action; there are {', '.join(Action.__members__)}"
            )

    def matches(self, happened: ClusterEvent) -> bool:
        """Whether this kind of change includes the change that happened."""
        return self.resource in ("*", happened.resource) and bool(self.action & happened.action)


RESERVATION_ENDED = ClusterEvent("gangline.dev/reservations", Action.DELETE)
"""A plugin announces that it no longer keeps room for a waiting group. Then every waiting group is tried again: the
message on the group is no longer that room is kept, and the next group may get room.
"""


@dataclass(frozen=True, slots=True)
class EventHint:
    """An event for which a plugin waits, with a hint; without a hint every such event may help."""

    event: ClusterEvent
    hint: Hint | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.event, ClusterEvent) or not (self.hint is None or callable(self.hint)):
            raise TypeError(f"an event hint is a ClusterEvent and a function or None, not {self.event!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEvent(EventHint):
    """An event about few units. The hint is asked about each of these units: its answer for one holds for no other."""

    about: Callable[[Any, Any], Hashable]
    """What the event is about, given the object before and after it; None if it helps no unit."""
    subjects: Callable[[PodInfo], Iterable[Hashable]]
    """What `about` returns for events that may help a waiting pod; changes only by an event that may help the pod."""


ANY_EVENT = EventHint(ClusterEvent("*", Action.ALL))
"""The event that stands for a plugin that registers nothing: any change."""


def on(resource: str, action: Action, hint: Hint | None = None) -> EventHint:
    """Shorthand: `on("nodes", Action.ADD | Action.UPDATE_NODE_LABEL, hint)`."""
    return EventHint(ClusterEvent(resource, action), hint)
