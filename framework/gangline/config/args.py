"""Decodes a plugin's arguments into the struct that the plugin declares."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from gangline.config.explaining import did_you_mean, explained
from gangline.config.schema import Profile
from gangline.durations import Seconds, parse_duration
from gangline.errors import ConfigError

Args = TypeVar("Args", bound=msgspec.Struct)


def plugin_args(profile: Profile, plugin: str, type_: type[Args]) -> Args:
    """The arguments that ``profile`` gives to ``plugin``; the defaults of ``type_`` if the profile gives none."""
    for index, entry in enumerate(profile.plugin_config):
        if entry.name == plugin:
            path = f"{profile.path}.pluginConfig[{index}].args"
            return decode_args(profile.file, path, entry.args, type_)
    return decode_args(profile.file, f"{profile.path}.pluginConfig[{plugin}].args", None, type_)


def check_no_args(profile: Profile, plugin: str) -> None:
    """Raise ConfigError if ``profile`` gives arguments to a plugin that takes none."""
    for index, entry in enumerate(profile.plugin_config):
        if entry.name == plugin and entry.args:
            path = f"{profile.path}.pluginConfig[{index}].args"
            raise ConfigError(profile.file, path, f"{plugin} takes no arguments, got {', '.join(map(str, entry.args))}")


def decode_args(file: str, path: str, args: Mapping[str, Any] | None, type_: type[Args]) -> Args:
    """``args`` as a ``type_``; missing fields get the defaults of the type.

    Raises ConfigError naming ``file``, the field under ``path``, and what is allowed there.
    """
    data = dict(args or {})
    try:
        decoded = msgspec.convert(data, type_, dec_hook=decode_custom)
    except msgspec.ValidationError as error:
        raise explained(error, file, path, data, type_) from error
    except Exception as error:  # the plugin's own type may raise anything
        raise ConfigError(file, path, f"cannot be read as {type_.__name__}: {error!r}") from error
    for field in infinite_fields(data):
        raise ConfigError(file, f"{path}{field}", "must be a finite number")
    for field, known in unknown_fields(data, _shape(type_)):  # even if the type allows unknown fields
        raise ConfigError(file, f"{path}{field}", f"unknown field; {did_you_mean(field.rpartition('.')[2], known)}")
    return decoded


def infinite_fields(data: object, path: str = "") -> Iterator[str]:
    """The paths of numbers that are infinite or NaN: no setting gives them a meaning."""
    if isinstance(data, float) and not math.isfinite(data):
        yield path
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from infinite_fields(value, f"{path}.{key}")
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from infinite_fields(value, f"{path}[{index}]")


@lru_cache(maxsize=1024)
def _shape(type_: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(type_)


def unknown_fields(data: object, info: inspect.Type, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """The unknown fields by their path, each with the fields that the type has there."""
    if isinstance(info, inspect.UnionType):
        kinds = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        info = kinds[0] if len(kinds) == 1 else info
    if isinstance(info, inspect.StructType) and isinstance(data, dict):
        fields = {field.encode_name: field.type for field in info.fields}
        for key, value in data.items():
            if key not in fields:
                yield f"{path}.{key}", list(fields)
            else:
                yield from unknown_fields(value, fields[key], f"{path}.{key}")
    elif isinstance(info, inspect.ListType | inspect.VarTupleType) and isinstance(data, list):
        for index, value in enumerate(data):
            yield from unknown_fields(value, info.item_type, f"{path}[{index}]")
    elif isinstance(info, inspect.DictType) and isinstance(data, dict):
        for key, value in data.items():
            yield from unknown_fields(value, info.value_type, f"{path}.{key}")


def decode_custom(type_: type, value: object) -> object:
    """msgspec's hook for types that it does not know: durations."""
    if type_ is Seconds:
        return parse_duration(value)
    raise TypeError(f"{type_.__name__} cannot stand in a configuration")
