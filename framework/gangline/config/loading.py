"""Loads a KubeSchedulerConfiguration: text in, checked values with all defaults out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gangline.config.args import decode_custom
from gangline.config.checks import check_profiles, check_settings
from gangline.config.explaining import explained, quoted
from gangline.config.reading import read
from gangline.config.schema import (
    KubeSchedulerConfiguration,
    PluginConfig,
    Profile,
    SchedulerConfiguration,
    Settings,
)
from gangline.config.versions import GROUP, V1, check_version
from gangline.errors import ConfigError

DEFAULT_SCHEDULER_NAME = "default-scheduler"

_NOT_SETTINGS = ("apiVersion", "kind", "profiles")

Section = TypeVar("Section", bound=msgspec.Struct)


class _Source(NamedTuple):
    """One file, decoded; ``settings`` names the top-level settings that it has."""

    file: str
    decoded: KubeSchedulerConfiguration
    settings: tuple[str, ...]


def load(text: bytes | str, file: str) -> SchedulerConfiguration:
    """The configuration in ``text``; ``file`` is the name that messages use. Raises ConfigError."""
    return _merged([_decoded(text, file)])


def load_texts(texts: Mapping[str, bytes | str]) -> SchedulerConfiguration:
    """The configuration in several texts by their names; see `load_files`. Raises ConfigError."""
    return _merged([_decoded(text, name) for name, text in texts.items()])


def load_files(paths: Iterable[str | Path]) -> SchedulerConfiguration:
    """The configuration in one or more files. Raises ConfigError.

    The profiles of all files count, in order; only one file may have the other settings.
    """
    sources = [_decoded(_content(path), str(path)) for path in paths]
    if not sources:
        raise ConfigError("", "", "no configuration file given")
    return _merged(sources)


def fingerprint(paths: Iterable[str | Path]) -> bytes:
    """32 bytes that change when the content of a file changes. Raises ConfigError."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(_content(path)).digest())
    return digest.digest()


def _content(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be read: {error.strerror}") from error


def _decoded(text: bytes | str, file: str) -> _Source:
    file, document = read(text, file)
    check_version(file, document)
    try:
        decoded = msgspec.convert(document, KubeSchedulerConfiguration, dec_hook=decode_custom)
    except msgspec.ValidationError as error:
        raise explained(error, file, "", document, KubeSchedulerConfiguration) from error
    return _Source(file, decoded, tuple(key for key in document if key not in _NOT_SETTINGS))


def _merged(sources: Sequence[_Source]) -> SchedulerConfiguration:
    """One configuration out of all sources, checked."""
    owner = _owner(sources)
    settings = _settings(owner.decoded)
    check_settings(owner.file, settings)
    profiles = _profiles(sources)
    check_profiles(profiles)
    values = {name: getattr(settings, name) for name in Settings.__struct_fields__}
    return SchedulerConfiguration(profiles=profiles, **values)


def _owner(sources: Sequence[_Source]) -> _Source:
    """The source whose top-level settings count."""
    owners = [source for source in sources if source.settings]
    if len(owners) > 1:
        first, second = owners[:2]
        why = f"only one file may have settings beside profiles, and {first.file} has"
        raise ConfigError(second.file, second.settings[0], why)
    return owners[0] if owners else sources[0]


def _settings(decoded: KubeSchedulerConfiguration) -> Settings:
    """The settings with the defaults that depend on others, and with zeros that mean "default"."""
    contention = decoded.enable_contention_profiling
    return msgspec.structs.replace(
        decoded,
        enable_contention_profiling=decoded.enable_profiling if contention is None else contention,
        leader_election=_zero_is_default(
            decoded.leader_election,
            "lease_duration",
            "renew_deadline",
            "retry_period",
            "resource_lock",
            "resource_name",
            "resource_namespace",
        ),
        client_connection=_zero_is_default(decoded.client_connection, "content_type", "qps", "burst"),
        extenders=tuple(_zero_is_default(each, "http_timeout") for each in decoded.extenders),
    )


def _zero_is_default(section: Section, *names: str) -> Section:
    """``section`` with the default in those of its fields that are zero or empty."""
    defaults: dict[str, Any] = {
        field.name: field.default
        for field in msgspec.structs.fields(section)
        if field.name in names and not getattr(section, field.name)
    }
    return msgspec.structs.replace(section, **defaults)


def _profiles(sources: Sequence[_Source]) -> tuple[Profile, ...]:
    """The profiles of all files; a lone profile without a name is the default scheduler's."""
    count = sum(len(source.decoded.profiles) for source in sources)
    unnamed = DEFAULT_SCHEDULER_NAME if count <= 1 else ""
    if not count:
        return (Profile(unnamed, file=sources[0].file, path="profiles[0]"),)
    profiles = []
    for source in sources:
        for index, raw in enumerate(source.decoded.profiles):
            path = f"profiles[{index}]"
            name = unnamed if raw.scheduler_name is None else raw.scheduler_name
            config = tuple(
                _without_type(source.file, f"{path}.pluginConfig[{at}].args", entry)
                for at, entry in enumerate(raw.plugin_config)
            )
            percentage = raw.percentage_of_nodes_to_score
            profiles.append(Profile(name, percentage, raw.plugins, config, source.file, path))
    return tuple(profiles)


def _without_type(file: str, path: str, entry: PluginConfig) -> PluginConfig:
    """``entry`` without the apiVersion and kind that its args may carry; the kind has to fit.

    Args of another group are a document that the plugin reads as a whole.
    """
    args = entry.args or {}
    if not str(args.get("apiVersion", V1)).startswith(GROUP):
        return entry
    kind = args.get("kind")
    if kind is not None and kind != f"{entry.name}Args":
        why = f"must be {entry.name}Args, got {quoted(kind)}"
        raise ConfigError(file, f"{path}.kind", why)
    fields = {key: value for key, value in args.items() if key not in ("apiVersion", "kind")}
    return PluginConfig(entry.name, fields or None)
