"""The rules between values that kube-scheduler enforces when it loads a configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gangline.config.explaining import quoted
from gangline.config.schema import (
    POINT_NAMES,
    Extender,
    LeaderElection,
    PluginConfig,
    Plugins,
    Profile,
    Settings,
)
from gangline.config.versions import check_not_removed
from gangline.durations import format_duration
from gangline.errors import ConfigError

# Between two attempts client-go waits for retryPeriod, and for up to so many times retryPeriod more.
_JITTER = 1.2
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def check_settings(file: str, settings: Settings) -> None:
    """Raise ConfigError if the top-level settings contradict each other."""
    initial, longest = settings.pod_initial_backoff_seconds, settings.pod_max_backoff_seconds
    if longest < initial:
        why = f"must be at least podInitialBackoffSeconds ({initial}), got {longest}"
        raise ConfigError(file, "podMaxBackoffSeconds", why)
    if settings.leader_election.leader_elect:
        _check_leader_election(file, settings.leader_election)
    _check_extenders(file, settings.extenders)


def _check_leader_election(file: str, election: LeaderElection) -> None:
    if election.resource_lock != "leases":
        why = f"must be leases, got {quoted(election.resource_lock)}"
        raise ConfigError(file, "leaderElection.resourceLock", why)
    lease, renew = election.lease_duration, election.renew_deadline
    if lease <= renew:
        limit = format_duration(renew)
        why = f"must be greater than renewDeadline ({limit}), got {format_duration(lease)}"
        raise ConfigError(file, "leaderElection.leaseDuration", why)
    if renew <= _JITTER * election.retry_period:
        limit = format_duration(election.retry_period)
        why = f"must be greater than 1.2 x retryPeriod ({limit}), got {format_duration(renew)}"
        raise ConfigError(file, "leaderElection.renewDeadline", why)


def _check_extenders(file: str, extenders: Sequence[Extender]) -> None:
    managed: set[str] = set()
    binder = -1
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        if extender.prioritize_verb and extender.weight <= 0:
            why = f"must be positive where there is a prioritizeVerb, got {extender.weight}"
            raise ConfigError(file, f"{path}.weight", why)
        if extender.bind_verb and binder >= 0:
            why = f"only one extender can bind, and extenders[{binder}] does already"
            raise ConfigError(file, f"{path}.bindVerb", why)
        if extender.bind_verb:
            binder = index
        for at, resource in enumerate(extender.managed_resources):
            place = f"{path}.managedResources[{at}].name"
            if not _is_extended_resource(resource.name):
                why = f"{quoted(resource.name)} is not an extended resource, such as example.com/gpu"
                raise ConfigError(file, place, why)
            if resource.name in managed:
                raise ConfigError(file, place, f"{quoted(resource.name)} is managed already")
            managed.add(resource.name)


def _is_extended_resource(name: str) -> bool:
    domain, slash, rest = name.partition("/")
    # Quota prefixes the name with "requests.", and a domain has at most 253 characters with it.
    return (
        slash == "/"
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and len(domain) <= 253 - len("requests.")
        and _DOMAIN.fullmatch(domain) is not None
        and _NAME.fullmatch(rest) is not None
    )


def check_profiles(profiles: Sequence[Profile]) -> None:
    """Raise ConfigError if a profile contradicts itself or the other profiles."""
    seen: dict[str, Profile] = {}
    for profile in profiles:
        place = f"{profile.path}.schedulerName"
        if not profile.scheduler_name:
            why = "must not be empty: a profile is selected by its schedulerName"
            raise ConfigError(profile.file, place, why)
        if other := seen.get(profile.scheduler_name):
            where = other.path if other.file == profile.file else f"{other.file}: {other.path}"
            why = f"{quoted(profile.scheduler_name)} is taken by {where}"
            raise ConfigError(profile.file, place, why)
        seen[profile.scheduler_name] = profile
        _check_plugins(profile.file, f"{profile.path}.plugins", profile.plugins)
        _check_plugin_config(profile.file, profile.path, profile.plugin_config)
        if profile.plugins.queue_sort != profiles[0].plugins.queue_sort:
            why = f"must be the same in all profiles, and differs from {profiles[0].path}"
            raise ConfigError(profile.file, f"{profile.path}.plugins.queueSort", why)


def _check_plugins(file: str, path: str, plugins: Plugins) -> None:
    for point, name in POINT_NAMES.items():
        first: dict[str, int] = {}
        for index, plugin in enumerate(getattr(plugins, point).enabled):
            place = f"{path}.{name}.enabled[{index}].name"
            check_not_removed(file, place, plugin.name)
            if plugin.name in first:
                why = f"{plugin.name} is enabled already, at enabled[{first[plugin.name]}]"
                raise ConfigError(file, place, why)
            first[plugin.name] = index


def _check_plugin_config(file: str, path: str, entries: Sequence[PluginConfig]) -> None:
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        place = f"{path}.pluginConfig[{index}].name"
        check_not_removed(file, place, entry.name)
        if entry.name in first:
            why = f"{entry.name} is configured already, at pluginConfig[{first[entry.name]}]"
            raise ConfigError(file, place, why)
        first[entry.name] = index
