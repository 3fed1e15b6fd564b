"""Works out which plugins a profile runs at each extension point, as kube-scheduler does.

1. The profile's multiPoint is merged with the default plugins. A default plugin that multiPoint disables is left out
   ("*" disables all of them). A default plugin that multiPoint enables keeps its place, and gets the weight given
   there. Other plugins that multiPoint enables follow.
2. At a point that does not disable "*", the point's own entries are joined by the plugins of rule 1 that implement the
   point and that the point does not disable. If both have a plugin, the point's own entry counts, with its weight.
3. The order at a point: first the point's own entries that rule 1 has too, then the other plugins of rule 1, then the
   point's other own entries.

A plugin of kube-scheduler that is not installed is left out with a warning, so that the complete configuration of a
real cluster can be used. Only plugins that a profile enables, or has by default, are loaded: any other installed plugin
may be broken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gangline.config.defaults import DEFAULT_PLUGINS
from gangline.config.explaining import did_you_mean
from gangline.config.schema import POINT_NAMES, POINTS, PluginRef, PluginSet, Profile
from gangline.config.versions import OURS, REPLACED_BY
from gangline.errors import ConfigError, PluginError

log = logging.getLogger(__name__)

Expanded = dict[str, tuple[PluginRef, ...]]

_UPSTREAM = frozenset(plugin.name for plugin in DEFAULT_PLUGINS)
_WEIGHTED = ("score", "placement_score")


def expand(profile: Profile, points: Mapping[str, frozenset[str]], defaults: Sequence[PluginRef]) -> Expanded:
    """The plugins of ``profile`` at each of ``POINTS``, in the order in which they run.

    ``points`` has for every installed plugin the points that it implements, in snake case; for a plugin that cannot be
    loaded it raises PluginError. ``defaults`` may name only plugins in ``points``. Weights are at least 1 at points
    that score, and 0 at others. A plugin of DEFAULT_PLUGINS that is not installed is left out; one line per profile
    warns of those that the profile enables or configures.

    Raises ConfigError for any other plugin that is not installed, for a plugin that cannot be loaded or that is enabled
    at a point that it does not implement, and unless there are exactly one queueSort plugin and at least one bind
    plugin.
    """
    for fault in name_faults(profile, points):
        raise fault
    if absent := _absent(profile, points):
        names = ", ".join(absent)
        log.warning("%s: %s: left out, as it is not installed: %s", profile.file, profile.path, names)
    everywhere = _merge(defaults, _installed(profile.plugins.multi_point, points))
    implemented = {plugin.name: _implemented(profile.file, profile.path, plugin.name, points) for plugin in everywhere}
    expanded = {}
    for point in POINTS:
        candidates = [plugin for plugin in everywhere if point in implemented[plugin.name]]
        plugins = _at_point(_installed(getattr(profile.plugins, point), points), candidates)
        weighted = point in _WEIGHTED
        expanded[point] = tuple(PluginRef(plugin.name, max(plugin.weight, 1) if weighted else 0) for plugin in plugins)
    _check_counts(profile, expanded)
    return expanded


def expand_all(
    profiles: Iterable[Profile],
    points: Mapping[str, frozenset[str]],
    defaults: Sequence[PluginRef],
) -> dict[str, Expanded]:
    """``expand`` for every profile, by schedulerName.

    All profiles share one queue: ConfigError if their queueSort plugin or its arguments differ.
    """
    result: dict[str, Expanded] = {}
    first: tuple[Profile, str] | None = None
    for profile in profiles:
        result[profile.scheduler_name] = expanded = expand(profile, points, defaults)
        name = expanded["queue_sort"][0].name
        if first is None:
            first = profile, name
        elif name != first[1] or _args(profile, name) != _args(first[0], name):
            why = f"queueSort {name} and its args must be the same as in {first[0].path} ({first[1]})"
            raise ConfigError(profile.file, f"{profile.path}.plugins", why)

    return result


def loaded(
    profiles: Iterable[Profile], points: Mapping[str, frozenset[str]], defaults: Sequence[PluginRef]
) -> list[str]:
    """The installed plugins that ``expand_all`` loads, each once; loads none."""
    names: dict[str, None] = {}
    for profile in profiles:
        sets = [_installed(getattr(profile.plugins, point), points).enabled for point in POINTS]
        everywhere = _merge(defaults, _installed(profile.plugins.multi_point, points))
        names.update((plugin.name, None) for chosen in (everywhere, *sets) for plugin in chosen)
    return list(names)


def _args(profile: Profile, plugin: str) -> object:
    return next((each.args for each in profile.plugin_config if each.name == plugin), None)


def _merge(defaults: Sequence[PluginRef], chosen: PluginSet) -> list[PluginRef]:
    """Rule 1."""
    disabled = {plugin.name for plugin in chosen.disabled}
    kept = [] if "*" in disabled else [each for each in defaults if each.name not in disabled]
    enabled = {plugin.name: plugin for plugin in chosen.enabled}
    names = {plugin.name for plugin in kept}
    added = [plugin for plugin in chosen.enabled if plugin.name not in names]
    return [enabled.get(plugin.name, plugin) for plugin in kept] + added


def _at_point(own: PluginSet, everywhere: Sequence[PluginRef]) -> list[PluginRef]:
    """Rules 2 and 3."""
    disabled = {plugin.name for plugin in own.disabled}
    if "*" in disabled:
        return list(own.enabled)
    inherited = [plugin for plugin in everywhere if plugin.name not in disabled]
    names = {plugin.name for plugin in inherited}
    enabled = {plugin.name for plugin in own.enabled}
    return [
        *(plugin for plugin in own.enabled if plugin.name in names),
        *(plugin for plugin in inherited if plugin.name not in enabled),
        *(plugin for plugin in own.enabled if plugin.name not in names),
    ]


def _installed(chosen: PluginSet, points: Mapping[str, frozenset[str]]) -> PluginSet:
    """``chosen`` without the plugins that are left out."""
    enabled = tuple(plugin for plugin in chosen.enabled if plugin.name in points)
    return PluginSet(enabled, chosen.disabled)


def _absent(profile: Profile, points: Mapping[str, frozenset[str]]) -> list[str]:
    """The plugins that the profile enables or configures and that are not installed; each name once."""
    sets: list[PluginSet] = [getattr(profile.plugins, point) for point in POINT_NAMES]
    names = [plugin.name for chosen in sets for plugin in chosen.enabled]
    names += [entry.name for entry in profile.plugin_config]
    return [name for name in dict.fromkeys(names) if name not in points]


def name_faults(profile: Profile, points: Mapping[str, frozenset[str]]) -> Iterator[ConfigError]:
    """The faults of plugin names: a plugin that is neither installed nor one of kube-scheduler's, or that does not
    implement the point at which the profile enables it.
    """
    # A file may also disable a plugin that earlier versions of kube-scheduler had.
    may_disable = REPLACED_BY.keys() | {"*"}
    foreign = OURS.keys() - points.keys()
    for name in sorted(foreign):
        yield from _foreign(profile, name)
    for point, name in POINT_NAMES.items():
        chosen: PluginSet = getattr(profile.plugins, point)
        path = f"{profile.path}.plugins.{name}"
        for index, plugin in enumerate(chosen.enabled):
            if plugin.name in foreign:
                continue
            place = f"{path}.enabled[{index}].name"
            yield from _fault(_check_known, profile.file, place, plugin.name, points)
            if plugin.name in points:
                yield from _fault(_check_implements, profile.file, place, plugin.name, point, points)
        for index, plugin in enumerate(chosen.disabled):
            if plugin.name not in may_disable | foreign:
                yield from _fault(_check_known, profile.file, f"{path}.disabled[{index}].name", plugin.name, points)
    for index, entry in enumerate(profile.plugin_config):
        if entry.name in foreign:
            continue
        place = f"{profile.path}.pluginConfig[{index}].name"
        yield from _fault(_check_known, profile.file, place, entry.name, points)


def _foreign(profile: Profile, plugin: str) -> Iterator[ConfigError]:
    """One fault for all the places where a profile names a plugin of another GPU scheduler; it says what to write."""
    places = []
    for point, name in POINT_NAMES.items():
        chosen: PluginSet = getattr(profile.plugins, point)
        if any(each.name == plugin for each in (*chosen.enabled, *chosen.disabled)):
            places.append(f"plugins.{name}")
    if any(entry.name == plugin for entry in profile.plugin_config):
        places.append("pluginConfig")
    if places:
        instead = ", ".join(f"{{name: {name}}}" for name in OURS[plugin])
        why = (
            f"{plugin} is called {' and '.join(OURS[plugin])} here, which know their points: "
            f"take it out of {', '.join(places)} and write plugins: {{multiPoint: {{enabled: [{instead}]}}}}"
        )
        yield ConfigError(profile.file, f"{profile.path}.plugins", why)


def _fault(check: Callable[..., None], *args: Any) -> Iterator[ConfigError]:
    try:
        check(*args)
    except ConfigError as error:
        yield error


def place_of(profile: Profile, plugin: str) -> str:
    """The path at which a profile names a plugin; the path of the profile for a plugin that it has by default."""
    for point, name in POINT_NAMES.items():
        chosen: PluginSet = getattr(profile.plugins, point)
        for index, each in enumerate(chosen.enabled):
            if each.name == plugin:
                return f"{profile.path}.plugins.{name}.enabled[{index}].name"
    return profile.path


def _check_known(file: str, path: str, plugin: str, points: Mapping[str, frozenset[str]]) -> None:
    if plugin not in points and plugin not in _UPSTREAM:
        hint = did_you_mean(plugin, points)
        more = "" if hint.endswith("?") else "; install the package of any other plugin first"
        raise ConfigError(file, path, f'unknown plugin "{plugin}"; {hint}{more}')


def _check_implements(file: str, path: str, plugin: str, point: str, points: Mapping[str, frozenset[str]]) -> None:
    implemented = _implemented(file, path, plugin, points)
    if point != "multi_point" and point not in implemented:
        has = [POINT_NAMES[each] for each in POINTS if each in implemented]
        raise ConfigError(file, path, f"plugin {plugin} does not implement {POINT_NAMES[point]}, only {', '.join(has)}")


def _implemented(file: str, path: str, plugin: str, points: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The points that a plugin implements. Raises ConfigError at ``path`` where it cannot be loaded."""
    try:
        return points[plugin]
    except PluginError as error:
        raise ConfigError(file, path, str(error)) from error


def _check_counts(profile: Profile, expanded: Expanded) -> None:
    """Raise ConfigError unless exactly one queueSort plugin and at least one bind plugin are enabled."""
    for point, most in (("queue_sort", 1), ("bind", None)):
        names = [plugin.name for plugin in expanded[point]]
        if not names or (most is not None and len(names) > most):
            wanted = "exactly one" if most else "at least one"
            why = f"expected {wanted} plugin, got {', '.join(names) or 'none'}"
            raise ConfigError(profile.file, f"{profile.path}.plugins.{POINT_NAMES[point]}", why)
