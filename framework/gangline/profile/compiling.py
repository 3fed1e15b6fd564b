"""Compiles a profile: builds its plugins, checks what they declare, and lists the plugins of each extension point."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from gangline.api.hints import EventHint, Hint
from gangline.api.hookspecs import UNLISTED
from gangline.api.plugin import Handle
from gangline.errors import GanglineError, PluginError
from gangline.failures import Failures, being_built, described, text_of
from gangline.profile.calling import ASYNC_POINTS, timed, timed_async
from gangline.profile.declaring import asked_by, check_attributes, check_own, check_reasons, events_of
from gangline.profile.hooking import FOR_ALL, PluginHooks, parameters_of
from gangline.profile.implementations import (
    HELPING_GROUPS,
    PLACING_GROUPS,
    CompiledProfile,
    Identity,
    Implementation,
    KeyHook,
)
from gangline.profile.registry import Catalog, points_of
from gangline.state.changes import OWN, PODS, SPECS
from gangline.telemetry.metrics import Metrics, point_label

_LONG = 0.5
"""Seconds after which a constructor counts as slow: when a configuration is reloaded, all other work waits for it."""


def compile_profile(
    name: str,
    points: Mapping[str, Sequence[tuple[str, int]]],
    catalog: Catalog,
    args: Callable[[str, type[msgspec.Struct] | None], msgspec.Struct | None],
    handle: Handle,
    metrics: Metrics,
    on_fault: Callable[[GanglineError], None] | None = None,
    besides: Sequence[str] = (),
) -> CompiledProfile:
    """Build the plugins of a profile and list the plugins of each extension point.

    `points` holds names and weights per extension point, in order. `besides` names the plugins that have only hooks
    that profiles do not list. `args(name, type)` returns a plugin's validated arguments. Raises PluginError for a
    plugin that cannot be built or declares something wrong; with `on_fault`, calls it for each such plugin and leaves
    the plugin out.
    """
    hooks = PluginHooks()
    profile = CompiledProfile(name, {}, {}, failures=metrics.failures)
    for plugin_name in dict.fromkeys([*(n for listed in points.values() for n, _ in listed), *besides]):
        try:
            _add(profile, plugin_name, hooks, catalog, args, handle)
        except GanglineError as error:
            if on_fault is None:
                raise
            on_fault(error)
    profile.points = {
        point: tuple(
            _implementation(hooks, profile.plugins, plugin_name, point, weight, metrics)
            for plugin_name, weight in listed
            if plugin_name in profile.plugins and not hooks.wraps(plugin_name, point)
        )
        for point, listed in points.items()
    }
    _add_unlisted(profile, hooks, metrics)
    return profile


def _add_unlisted(profile: CompiledProfile, hooks: PluginHooks, metrics: Metrics) -> None:
    """List the plugins of each hook that profiles do not list."""
    profile.identities = [_identity(hooks, profile, each, metrics) for each in _with(profile, hooks, "identity")]
    profile.skip_keys = {
        each: _key_hook(profile, hooks, each, "skip_key")
        for each in _with(profile, hooks, "skip_key")
        if not any(map(hooks.is_wrapped, ("pre_filter", "pre_score", "skip_key")))
    }
    profile.group_keys = {
        each: _key_hook(profile, hooks, each, "pod_group_key")
        for each in _with(profile, hooks, "pod_group_key")
        if _is_promise(profile, hooks, each, "pod_group_key", (*HELPING_GROUPS, *PLACING_GROUPS))
    }
    profile.group_helpers = {
        each: _key_hook(profile, hooks, each, "pod_group_can_help")
        for each in _with(profile, hooks, "pod_group_can_help")
        if _is_promise(profile, hooks, each, "pod_group_can_help", HELPING_GROUPS)
    }
    for point in UNLISTED:
        profile.points[point] = tuple(
            _implementation(hooks, profile.plugins, each, point, 1, metrics) for each in _with(profile, hooks, point)
        )


def _key_hook(profile: CompiledProfile, hooks: PluginHooks, name: str, point: str) -> KeyHook:
    return KeyHook(name, point, _function(hooks, name, point), profile.failures)


def _is_promise(profile: CompiledProfile, hooks: PluginHooks, name: str, promise: str, points: Sequence[str]) -> bool:
    """Whether what a plugin says by the hook `promise` holds for its hooks at these points: no plugin wraps them, no
    subclass changed them.
    """
    if any(map(hooks.is_wrapped, (*points, promise))):
        return False
    has = [point for point in points if hasattr(profile.plugins[name], point)]
    return all([hooks.stands_for(name, promise, point) for point in has])


def _with(profile: CompiledProfile, hooks: PluginHooks, point: str) -> Iterator[str]:
    """The plugins with a method for an unlisted point; `unreserve` plugins come in the order of reserve.

    A plugin whose reserve is not in this profile has nothing to give back, and one whose pre_bind is not in this
    profile does nothing before a binding.
    """
    names = list(profile.plugins)
    if point == "pre_bind_pre_flight":
        names = [impl.name for impl in profile.points.get("pre_bind", ())]
    if point == "unreserve":
        reserving = [impl.name for impl in profile.points.get("reserve", ())]
        names = reserving + [name for name in names if not hasattr(profile.plugins[name], "reserve")]
    for name in names:
        if hasattr(profile.plugins[name], point) and not hooks.wraps(name, point):
            yield name


def _add(
    profile: CompiledProfile,
    name: str,
    hooks: PluginHooks,
    catalog: Catalog,
    args: Callable[[str, type[msgspec.Struct] | None], msgspec.Struct | None],
    handle: Handle,
) -> None:
    """Build one plugin and check what it declares."""
    cls = catalog.load(name)
    token = being_built.set(name)
    try:
        start = time.perf_counter()
        plugin = _build(name, cls, args, handle)
        if (seconds := time.perf_counter() - start) > _LONG:
            profile.failures.slow(name, "__init__", seconds)
        hooks.add(name, plugin)
        try:
            if "filter" in points_of(cls) and not hooks.wraps(name, "filter"):
                check_reasons(name, plugin)
            check_own(name, plugin)
            check_attributes(name, plugin)
            events = events_of(name, plugin)
        except PluginError:
            raise
        except BaseException as error:  # a property of the plugin, or its __getattr__, may raise anything
            raise PluginError(name, "", f"what it declares cannot be read: {described(error)}") from error
    finally:
        being_built.reset(token)
    profile.plugins[name], profile.events[name] = plugin, _guarded(name, events, profile.failures)


def _guarded(name: str, events: Sequence[EventHint] | None, failures: Failures) -> Sequence[EventHint] | None:
    """The same events, with hints whose faults are recorded; after a fault the event counts, which costs an attempt."""
    if events is None:
        return None

    def guarded(hint: Hint) -> Hint:
        def judge(pod: Any, old: Any, new: Any) -> bool:
            try:
                return bool(hint(pod, old, new))
            except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
                failures.raised(name, "QueueingHint", error)
                return True

        return judge

    return tuple(EventHint(each.event, guarded(each.hint) if each.hint is not None else None) for each in events)


def _build(
    name: str,
    cls: Any,
    args: Callable[[str, type[msgspec.Struct] | None], msgspec.Struct | None],
    handle: Handle,
) -> Any:
    given = {"args": args(name, getattr(cls, "args_type", None)), "handle": handle}
    try:
        return cls(**{parameter: given[parameter] for parameter in asked_by(name, cls)})
    except PluginError:
        raise
    except BaseException as error:  # a plugin that exits must not end the process
        # The text of an error that is raised on purpose says what is wrong; that of another one may be a mere key.
        is_on_purpose = isinstance(error, ValueError | GanglineError) and bool(text_of(error))
        why = text_of(error) if is_on_purpose else described(error)
        raise PluginError(name, "", f"cannot be built: {why}") from error


def _implementation(
    hooks: PluginHooks,
    plugins: Mapping[str, Any],
    name: str,
    point: str,
    weight: int,
    metrics: Metrics,
) -> Implementation:
    plugin = plugins[name]
    normalize = None
    if point == "score" and hasattr(plugin, "normalize_score"):
        normalize = _bound(hooks, name, "normalize_score", metrics)
    capacity = None
    if point == "filter" and hasattr(plugin, "capacity"):
        capacity = _bound(hooks, name, "capacity", metrics)
    call = _bound(hooks, name, point, metrics)
    return Implementation(
        plugin=plugin,
        name=name,
        call=call,
        quick=getattr(call, "__wrapped__", call),
        weight=weight,
        normalize=normalize,
        capacity=capacity,
        at_once=_for_all(hooks, name, point, metrics),
        reads=_reads(plugin),
        ignores_requests=_ignores_requests(hooks, plugin, name, point),
        point=point,
        asks_for_pod=point != "pre_cycle" or _asks_for_pod(hooks, name, point),
        errors_from=getattr(plugin, "errors_from", None) if point == "filter" else None,
        failures=metrics.failures,
    )


def _identity(hooks: PluginHooks, profile: CompiledProfile, name: str, metrics: Metrics) -> Identity:
    own = hooks.own(name, "identity")
    asks_for = own[1] if own else parameters_of("identity")
    is_kept = getattr(profile.plugins[name], "reads", None) is not None
    ask, ask_all = _function(hooks, name, "identity"), _for_all(hooks, name, "identity", metrics)
    return Identity(name, ask, "annotations" in asks_for, is_kept, profile.failures, ask_all)


def _for_all(hooks: PluginHooks, name: str, point: str, metrics: Metrics) -> Callable[..., Any] | None:
    """The plugin's variant of a hook for many pods; None without one."""
    has_variant = point in FOR_ALL and hooks.stands_for(name, FOR_ALL[point], point)
    return _bound(hooks, name, FOR_ALL[point], metrics) if has_variant else None


def _asks_for_pod(hooks: PluginHooks, name: str, point: str) -> bool:
    """Whether the plugin's method has the parameter `pod`; true also where a plugin wraps the hook."""
    own = hooks.own(name, point)
    return own is None or "pod" in own[1]


def _reads(plugin: Any) -> int | None:
    reads: int | None = getattr(plugin, "reads", None)
    if reads is not None and reads & SPECS:
        reads = reads & ~SPECS | PODS  # which changes of pods are meant follows from the logs: see `Kept`
    return reads if reads is None or not getattr(plugin, "reads_own", ()) else reads | OWN


def _ignores_requests(hooks: PluginHooks, plugin: Any, name: str, point: str) -> bool:
    """Whether the plugin promises this; a plugin that wraps the hook has promised nothing."""
    return bool(getattr(plugin, "ignores_requests", False)) and hooks.own(name, point) is not None


def _bound(hooks: PluginHooks, name: str, point: str, metrics: Metrics) -> Callable[..., Any]:
    """The plugin's method with all arguments of the hook, timed, with its faults translated."""
    series = metrics.plugins.series(point_label(point), name)
    time_it = timed_async if point in ASYNC_POINTS else timed
    return time_it(_function(hooks, name, point), name, point, series, metrics.failures)


def _function(hooks: PluginHooks, name: str, hook: str) -> Callable[..., Any]:
    """The plugin's method with all arguments of the hook."""
    own = hooks.own(name, hook)
    return hooks.through_pluggy(name, hook) if own is None else _with_arguments(*own, parameters_of(hook))


def _with_arguments(function: Callable[..., Any], has: tuple[str, ...], wanted: tuple[str, ...]) -> Callable[..., Any]:
    if has == wanted:
        return function
    return _adapter(has, wanted)(function)


@lru_cache(maxsize=1024)
def _adapter(has: tuple[str, ...], wanted: tuple[str, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    # The names are parameters of a hook, nothing else. A call by position takes half the time of picking from *args.
    made: Callable[[Callable[..., Any]], Callable[..., Any]] = eval(
        f"lambda function: lambda {', '.join(wanted)}: function({', '.join(has)})"
    )
    return made
