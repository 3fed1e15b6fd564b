"""Decodes a plugin's arguments into the struct that the plugin declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from gangline.config.durations import Seconds, parse_duration
from gangline.config.explaining import explained
from gangline.config.schema import Profile

Args = TypeVar("Args", bound=msgspec.Struct)


def plugin_args(profile: Profile, plugin: str, type_: type[Args]) -> Args:
    """The arguments that ``profile`` gives to ``plugin``; ``type_``'s defaults if it gives none."""
    for index, entry in enumerate(profile.plugin_config):
        if entry.name == plugin:
            path = f"{profile.path}.pluginConfig[{index}].args"
            return decode_args(profile.file, path, entry.args, type_)
    return decode_args(profile.file, f"{profile.path}.pluginConfig[{plugin}].args", None, type_)


def decode_args(file: str, path: str, args: Mapping[str, Any] | None, type_: type[Args]) -> Args:
    """``args`` as a ``type_``; fields that are not given get its defaults.

    Raises ConfigError naming ``file``, the field under ``path``, and what is allowed there.
    """
    data = dict(args or {})
    try:
        return msgspec.convert(data, type_, dec_hook=decode_custom)
    except msgspec.ValidationError as error:
        raise explained(error, file, path, data, type_) from error


def decode_custom(type_: type, value: object) -> object:
    """msgspec's hook for types that it does not know: durations."""
    if type_ is Seconds:
        return parse_duration(value)
    raise TypeError(f"{type_.__name__} cannot stand in a configuration")
