"""From a configuration to running profiles: expands, builds and compiles each one."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec

from gangline.cache import Cache
from gangline.config import (
    PluginRef,
    Profile,
    SchedulerConfiguration,
    default_plugins,
    expand_all,
    plugin_args,
)
from gangline.group_members import Grouping
from gangline.groups import WATCHES, Groups
from gangline.handle import NO_GROUPS, FrameworkHandle
from gangline.hints import Action, EventHint, on
from gangline.kube.resources import Selection
from gangline.metrics import Metrics
from gangline.plugin import Clock, Recorder
from gangline.registry import Catalog, compile_profile
from gangline.runtime import Runtime
from gangline.waiting import WaitingPods

_NODE_RESOURCES_FIT = "NodeResourcesFit"
"""The plugin that leaves out the resources which only an extender looks at."""


def build_runtimes(
    config: SchedulerConfiguration,
    catalog: Catalog,
    state: Cache,
    clock: Clock,
    recorder: Recorder,
    waiting: WaitingPods,
    client: Any,
    metrics: Metrics,
    ties: random.Random | None,
    grouping: Grouping = NO_GROUPS,
) -> dict[str, Runtime]:
    """A runtime for each profile, by schedulerName. Raises ConfigError and PluginError."""
    points = catalog.points()
    expanded = expand_all(config.profiles, points, default_plugins(points))
    ignored = [r.name for extender in config.extenders for r in extender.managed_resources if r.ignored_by_scheduler]
    runtimes = {}
    for profile in config.profiles:
        handle = FrameworkHandle(profile.scheduler_name, state, clock, recorder, waiting, client, metrics)
        handle.grouping = grouping
        compiled = compile_profile(
            profile.scheduler_name,
            {point: [_weighted(ref) for ref in refs] for point, refs in expanded[profile.scheduler_name].items()},
            catalog,
            _args_of(profile, ignored),
            handle,
            metrics,
        )
        runtimes[profile.scheduler_name] = Runtime(compiled, handle, metrics, ties)
    return runtimes


def group_events(groups: Groups) -> tuple[EventHint, ...]:
    """What may help a group for which there is no placement, or that cannot be used yet."""
    changed = Action.ADD | Action.UPDATE | Action.DELETE
    return (
        on("nodes", Action.ADD | Action.UPDATE),
        on("pods", Action.DELETE),
        *(on(resource.key, changed, groups.is_member_hint) for resource in WATCHES),
    )


def watched_by(runtimes: Iterable[Runtime]) -> list[Selection[Any]]:
    """What plugins declare as `watches`, kinds or selections of them, each once, in profile order."""
    declared = (
        watched if isinstance(watched, Selection) else Selection(watched)
        for runtime in runtimes
        for plugin in runtime.profile.plugins.values()
        for watched in getattr(plugin, "watches", ())
    )
    return list(dict.fromkeys(declared))


def _weighted(ref: PluginRef) -> tuple[str, int]:
    return ref.name, ref.weight


def _args_of(profile: Profile, ignored: list[str]) -> Any:
    """The arguments of a plugin; as upstream, resources that extenders take over replace `ignoredResources`."""

    def args(name: str, type_: type[msgspec.Struct] | None) -> msgspec.Struct | None:
        found = None if type_ is None else plugin_args(profile, name, type_)
        if ignored and found is not None and name == _NODE_RESOURCES_FIT:
            found = msgspec.structs.replace(found, ignored_resources=ignored)
        return found

    return args
