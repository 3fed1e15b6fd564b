"""A compiled profile: its built plugins, and what is called at each extension point."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from gangline.api.hints import EventHint
from gangline.errors import PluginError
from gangline.failures import Failures
from gangline.profile.calling import check_of
from gangline.state.changes import PODS, Changes
from gangline.state.pods import PodInfo

HELPING_GROUPS = ("pod_group_concede", "pod_group_post_filter")
"""The extension points at which plugins may help a group that has no place."""
PLACING_GROUPS = ("placement_generate", "placement_narrow")
"""The extension points at which plugins restrict where a group may be, also where room was made for it."""


class Implementation(msgspec.Struct, frozen=True, eq=False):
    """One plugin at one extension point; its arguments are those of the hookspec, in the same order."""

    plugin: Any
    name: str
    call: Callable[..., Any]
    weight: int = 1
    normalize: Callable[..., Any] | None = None
    capacity: Callable[..., Any] | None = None
    """For a filter: the hook `capacity`, how many like pods fit apart from requests."""
    at_once: Callable[..., Any] | None = None
    """For pre_cycle, reserve and permit: the hook for many pods, for example `reserve_all`."""
    quick: Callable[..., Any] = lambda *args: None
    """The same call, neither timed nor checked, for one of many pods; exceptions pass through."""
    reads: int | None = None
    """The kinds of change on which the verdict on a node depends besides the identity of the pod; None: anything."""
    ignores_requests: bool = False
    """Whether the answer is the same for pods that differ in their requests alone."""
    point: str = ""
    asks_for_pod: bool = True
    """For pre_cycle: whether the plugin's method takes the pod."""
    errors_from: int | None = None
    """For a filter: the first code that is an error, which fails the attempt."""
    failures: Failures = msgspec.field(default_factory=Failures)

    def refused(self, point: str, why: str) -> PluginError:
        """The exception to raise for a wrong answer of the plugin."""
        return self.failures.refused(self.name, point, why)

    def check(self, answer: Any) -> None:
        """Check an answer of `quick`. Raises PluginError."""
        if why := check_of(self.point)(answer):
            raise self.refused(self.point, why)


class Identity(msgspec.Struct, frozen=True, eq=False):
    """The hook `identity` of one plugin."""

    name: str
    ask: Callable[[PodInfo, Mapping[str, str]], Hashable]
    of_workload: bool
    """Whether the hook looks at the annotations of owners."""
    is_kept: bool
    """Whether the plugin declares `reads`, so that its verdicts are kept."""
    failures: Failures
    ask_all: Callable[[Sequence[PodInfo], Sequence[Mapping[str, str]]], Any] | None = None
    """The hook `identity_all`, if the plugin has it."""


class KeyHook(msgspec.Struct, frozen=True, eq=False):
    """A hook of one plugin that says something of other hooks of the plugin: what they follow from (`skip_key`,
    `pod_group_key`), or whether they may help (`pod_group_can_help`).
    """

    name: str
    point: str
    ask: Callable[[Any], Hashable]
    failures: Failures

    def said(self, subject: Any) -> Hashable | None:
        """The answer about a pod or an attempt; None if the plugin promises nothing, or its answer is no key."""
        try:
            key: Any = self.ask(subject)
            if key is None or not bool(key == key):
                return None
            hash(key)
        except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
            self.failures.raised(self.name, self.point, error)
            return None
        found: Hashable = key
        return found


def said_by(asked: Iterable[KeyHook | None], subject: Any) -> list[Hashable] | None:
    """What these hooks say; None if one of them promises nothing, or a plugin has no such hook."""
    keys: list[Hashable] = []
    for each in asked:
        if each is None or (key := each.said(subject)) is None:
            return None
        keys.append(key)
    return keys


@dataclass(eq=False)
class CompiledProfile:
    """A profile with built plugins and one plain list of plugins per extension point."""

    name: str
    plugins: dict[str, Any]
    points: dict[str, tuple[Implementation, ...]]
    events: dict[str, Sequence[EventHint] | None] = field(default_factory=dict)
    """For each plugin the events that it registers; None if it registers nothing."""
    failures: Failures = field(default_factory=Failures)
    identities: list[Identity] = field(default_factory=list)
    """The `identity` hooks of the plugins, neither timed nor checked, as they are called for many pods."""
    skip_keys: Mapping[str, KeyHook] = field(default_factory=dict)
    """By plugin: the hook `skip_key`, neither timed nor checked."""
    group_keys: Mapping[str, KeyHook] = field(default_factory=dict)
    """By plugin: the hook `pod_group_key`, neither timed nor checked."""
    group_helpers: Mapping[str, KeyHook] = field(default_factory=dict)
    """By plugin: the hook `pod_group_can_help`, neither timed nor checked."""

    @cached_property
    def helping_groups(self) -> tuple[str, ...]:
        """The plugins that may help a group without a place."""
        return self._at(HELPING_GROUPS)

    @cached_property
    def trying_groups(self) -> tuple[str, ...]:
        """The plugins that may help a group without a place, and those that restrict where it may be then."""
        return self._at((*HELPING_GROUPS, *PLACING_GROUPS)) if self.helping_groups else ()

    def _at(self, points: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(impl.name for point in points for impl in self.points.get(point, ())))

    def more_changes(self, relabelled: Changes) -> dict[str, tuple[Changes, ...]]:
        """By plugin: the logs that it reads beside the changes of nodes and of the specs on them, if there are some.

        These are the logs of the plugins' own columns, and `relabelled` for a plugin that reads more of pods than their
        specs.
        """
        found: dict[str, tuple[Changes, ...]] = {}
        for name, plugin in self.plugins.items():
            own: tuple[Changes, ...] = tuple(getattr(plugin, "reads_own", ()))
            if logs := (*own, relabelled) if (getattr(plugin, "reads", None) or 0) & PODS else own:
                found[name] = logs
        return found
