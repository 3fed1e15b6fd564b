"""Makes running profiles from a configuration: expands, builds and compiles each profile."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from gangline.api.hints import RESERVATION_ENDED, Action, ClusterEvent, EventHint, OwnEvent, on
from gangline.api.plugin import Clock
from gangline.clock import SystemClock
from gangline.config import (
    Expanded,
    PluginRef,
    Profile,
    SchedulerConfiguration,
    check_no_args,
    default_plugins,
    expand_all,
    loaded,
    name_faults,
    place_of,
    plugin_args,
)
from gangline.errors import ConfigError, GanglineError, PluginError
from gangline.failures import shown
from gangline.groups import SUCCEEDED_PODS, WATCHES, Groups, place_of_object
from gangline.groups.members import Grouping
from gangline.kube.interface import Client, NoClient
from gangline.kube.resources import Resource, Selection
from gangline.profile.background import Background
from gangline.profile.binding_points import BindFirst
from gangline.profile.compiling import compile_profile
from gangline.profile.handle import NO_GROUPS, FrameworkHandle, Pending, Services
from gangline.profile.recording import NoRecorder
from gangline.profile.registry import Catalog, is_only_told, points_of
from gangline.profile.runtime import Runtime
from gangline.queueing.waiting import WaitingPods
from gangline.state.cache import Cache
from gangline.telemetry.metrics import Metrics


def load_plugins(config: SchedulerConfiguration, catalog: Catalog) -> None:
    """Import the plugins of all profiles now, which takes 0.2 s, and not when the profiles are built in an event loop.

    `build_runtimes` tells of a plugin that cannot be imported.
    """
    points = catalog.points()
    for name in loaded(config.profiles, points, default_plugins(points)):
        with suppress(PluginError):
            catalog.load(name)


def build_runtimes(
    config: SchedulerConfiguration,
    catalog: Catalog,
    services: Services[Runtime],
    metrics: Metrics,
    ties: random.Random | None,
    on_fault: Callable[[GanglineError], None] | None = None,
    bind_first: BindFirst | None = None,
) -> dict[str, Runtime]:
    """A runtime for each profile, by schedulerName; `bind_first` is called before the bind plugins. Raises ConfigError.

    With `on_fault`, calls it for every fault instead, and leaves out the faulty profiles and plugins.
    """
    expanded = _expanded(config.profiles, catalog.points(), on_fault)
    for profile in config.profiles:
        name = profile.scheduler_name
        if name not in expanded:
            continue
        handle = FrameworkHandle(name, services)
        told = partial(_told, profile, on_fault)
        compiled = compile_profile(
            name,
            {point: [_weighted(ref) for ref in refs] for point, refs in expanded[name].items()},
            catalog,
            partial(_args, profile),
            handle,
            metrics,
            told,
            _only_told(profile, catalog, told),
        )
        Runtime(compiled, handle, metrics, ties, bind_first)
    _check_watches(config.profiles, services.at_work, on_fault)
    return services.at_work


def _only_told(profile: Profile, catalog: Catalog, told: Callable[[GanglineError], None]) -> list[str]:
    """The enabled plugins that have only hooks that profiles do not list; reports plugins without any hook."""
    names = []
    for ref in profile.plugins.multi_point.enabled:
        try:
            cls = catalog.load(ref.name)
        except PluginError:  # reported where the profile was expanded
            continue
        if is_only_told(cls):
            names.append(ref.name)
        elif not points_of(cls):
            told(PluginError(ref.name, "", "is enabled, but has no hook at which it would be called"))
    return names


def ignored_resources(config: SchedulerConfiguration) -> frozenset[str]:
    """The resources that the scheduler leaves to extenders."""
    managed = (resource for extender in config.extenders for resource in extender.managed_resources)
    return frozenset(resource.name for resource in managed if resource.ignored_by_scheduler)


def judging_runtimes(
    config: SchedulerConfiguration,
    cluster: Cache,
    *,
    catalog: Catalog | None = None,
    clock: Clock | None = None,
    client: Client | None = None,
    ties: random.Random | None = None,
    grouping: Grouping = NO_GROUPS,
    pending: Pending | None = None,
    at_work: dict[str, Runtime] | None = None,
    on_fault: Callable[[GanglineError], None] | None = None,
) -> dict[str, Runtime]:
    """As `build_runtimes`, with the installed plugins: profiles that judge a cluster and write nothing."""
    metrics = Metrics(warns_of_slow=False)
    services = Services[Runtime](
        cluster,
        clock or SystemClock(),
        NoRecorder(),
        WaitingPods(),
        client or NoClient(),
        metrics.of_plugins,
        Background(metrics.failures),
        pending or Pending(),
        grouping,
        ignored_resources(config),
        {} if at_work is None else at_work,
    )
    return build_runtimes(config, catalog or Catalog.discover(), services, metrics, ties, on_fault)


def _expanded(
    profiles: Sequence[Profile],
    points: Mapping[str, frozenset[str]],
    on_fault: Callable[[GanglineError], None] | None,
) -> dict[str, Expanded]:
    if on_fault is None:
        return expand_all(profiles, points, default_plugins(points))
    sound = []
    for profile in profiles:
        faults = list(name_faults(profile, points))
        for fault in faults:
            on_fault(fault)
        if not faults:
            sound.append(profile)
    try:
        return expand_all(sound, points, default_plugins(points))
    except ConfigError as error:
        on_fault(error)
        return {}


def _told(profile: Profile, on_fault: Callable[[GanglineError], None] | None, error: GanglineError) -> None:
    """Report that a plugin of a profile cannot be used, and where the profile names the plugin."""
    if isinstance(error, PluginError):
        where = place_of(profile, error.plugin)
        error = ConfigError(profile.file, where, " ".join(str(error).split()))
    if on_fault is None:
        raise error
    on_fault(error)


def _check_watches(
    profiles: Sequence[Profile], runtimes: Mapping[str, Runtime], on_fault: Callable[[GanglineError], None] | None
) -> None:
    for profile in profiles:
        plugins = runtimes[profile.scheduler_name].profile.plugins if profile.scheduler_name in runtimes else {}
        for name, plugin in plugins.items():
            watches = getattr(plugin, "watches", ())
            if not isinstance(watches, tuple | list) or not all(isinstance(w, Resource | Selection) for w in watches):
                why = f"watches is a tuple of resources and Selections, not {shown(watches)}"
                _told(profile, on_fault, PluginError(name, "", why))


def gang_notes(runtimes: Mapping[str, Runtime]) -> dict[str, str]:
    """By schedulerName, the profiles that may bind a gang in part, each with a line about it."""
    found = {}
    for name, runtime in runtimes.items():
        if not runtime.handle.groups_pods:
            why = "no plugin makes the pods of a gang one unit"
        elif not runtime.profile.points.get("permit"):
            why = "no plugin holds members of a gang at permit until the others have a node"
        else:
            continue
        found[name] = f"profile {name}: {why}, so a gang may be bound in part; where there are gangs, enable GangPermit"
    return found


def group_events(groups: Groups) -> tuple[EventHint, ...]:
    """The events that may help a group that has no placement, or that cannot be used yet."""
    changed = Action.ADD | Action.UPDATE | Action.DELETE
    return (
        on("nodes", Action.ADD | Action.UPDATE),
        on("pods", Action.DELETE),
        EventHint(RESERVATION_ENDED),
        *(
            OwnEvent(
                ClusterEvent(resource.key, changed),
                groups.is_member_hint,
                about=place_of_object,
                subjects=groups.subjects,
            )
            for resource in WATCHES
        ),
        OwnEvent(
            ClusterEvent(SUCCEEDED_PODS.key, Action.ADD),
            groups.is_mate_hint,
            about=groups.key_of_succeeded,
            subjects=groups.subjects,
        ),
    )


def watched_by(runtimes: Iterable[Runtime]) -> list[Selection[Any]]:
    """The `watches` of the plugins, kinds or selections of them, each once, in profile order."""
    declared = (
        watched if isinstance(watched, Selection) else Selection(watched)
        for runtime in runtimes
        for plugin in runtime.profile.plugins.values()
        for watched in getattr(plugin, "watches", ())
    )
    return list(dict.fromkeys(declared))


def _weighted(ref: PluginRef) -> tuple[str, int]:
    return ref.name, ref.weight


def _args(profile: Profile, name: str, type_: type[msgspec.Struct] | None) -> msgspec.Struct | None:
    """The arguments of a plugin."""
    if type_ is None:
        check_no_args(profile, name)
        return None
    return plugin_args(profile, name, type_)
