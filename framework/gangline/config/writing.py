"""Writes a configuration back as YAML of kubescheduler.config.k8s.io/v1, short or complete."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import yaml

from gangline.config.loading import DEFAULT_SCHEDULER_NAME
from gangline.config.schema import (
    KubeSchedulerProfile,
    Profile,
    SchedulerConfiguration,
    Settings,
)
from gangline.config.versions import KIND, V1
from gangline.durations import Seconds, format_duration


def convert(config: SchedulerConfiguration) -> str:
    """``config`` in as few lines as possible: without the fields that have their defaults."""
    return _text(config, full=False)


def show(config: SchedulerConfiguration) -> str:
    """``config`` with all defaults; null for a field without a value."""
    return _text(config, full=True)


def _text(config: SchedulerConfiguration, full: bool) -> str:
    """The YAML of ``config``, in full or without defaults; loading either form gives ``config`` again."""
    document: dict[str, Any] = {"apiVersion": V1, "kind": KIND}
    for field in msgspec.structs.fields(Settings):
        value = getattr(config, field.name)
        as_default = value == field.default
        if field.name == "enable_contention_profiling":
            as_default = value == config.enable_profiling
        if full or not as_default:
            document[field.encode_name] = _plain(value, full)
    if full or config.profiles != (Profile(DEFAULT_SCHEDULER_NAME),):
        document["profiles"] = [_plain(_raw(each), full) for each in config.profiles]
    return yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=120)


def _raw(profile: Profile) -> KubeSchedulerProfile:
    return KubeSchedulerProfile(
        profile.scheduler_name,
        profile.percentage_of_nodes_to_score,
        profile.plugins,
        profile.plugin_config,
    )


def _plain(value: Any, full: bool) -> Any:
    """The value as plain data for YAML: sections become mappings, with the fields in the order of declaration."""
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _plain(getattr(value, field.name), full)
            for field in msgspec.structs.fields(value)
            if full or getattr(value, field.name) != field.default
        }
    if isinstance(value, tuple):
        return [_plain(each, full) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Seconds):
        return format_duration(value)
    return value
