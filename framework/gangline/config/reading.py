"""Reads YAML text into plain data: one document, string keys, no key twice, no nulls.

A ConfigMap manifest with a configuration is read like the configuration itself. A text may be hostile: values that
contain themselves, values that aliases multiply, and values that are nested too deeply are refused.
"""

from __future__ import annotations

from typing import Any

import yaml

from gangline.config.explaining import quoted
from gangline.config.strict_yaml import FAULTS, StrictLoader, fault_of
from gangline.errors import ConfigError

DEEPEST = 64
"""Levels of mappings and lists."""
MOST = 200_000
"""Values of a document, at most; the values of an alias count each time that the alias is used."""


class _Loader(StrictLoader):
    """Strict about keys: each is a string."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if key.tag not in _KEYS or not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key has to be a string", key.start_mark)
        return super().construct_mapping(node, deep)


_KEYS = {"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"}


def read(text: bytes | str, file: str) -> tuple[str, dict[str, Any]]:
    """The mapping in ``text`` and the name to use for it in messages.

    That name is ``file``, or ``file#key`` for a ConfigMap. Raises ConfigError.
    """
    document = _document(text, file)
    if document.get("kind") != "ConfigMap":
        return file, document
    data = document.get("data")
    if not isinstance(data, dict) or not data:
        raise ConfigError(file, "data", "the ConfigMap holds no configuration")
    if "config.yaml" not in data and len(data) > 1:
        keys = ", ".join(data)
        raise ConfigError(file, "data", f"expected the key config.yaml or a single key, got {keys}")
    key = "config.yaml" if "config.yaml" in data else next(iter(data))
    if not isinstance(data[key], str):
        raise ConfigError(file, f"data.{key}", f"expected a string, got {quoted(data[key])}")
    return f"{file}#{key}", _document(data[key], f"{file}#{key}")


def _document(text: bytes | str, file: str) -> dict[str, Any]:
    """The one mapping that ``text`` has to be."""
    try:
        decoded = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(file, "", f"not UTF-8 at byte {error.start}") from error
    try:
        document = yaml.load(decoded, _Loader)
    except RecursionError as error:
        raise ConfigError(file, "", _TOO_DEEP) from error
    except FAULTS as error:
        raise ConfigError(file, *fault_of(error, decoded)) from error
    if not isinstance(document, dict):
        got = "nothing" if document is None else quoted(document)
        raise ConfigError(file, "", f"expected a mapping, got {got}")
    found: dict[str, Any] = _Nulls(file).left_out(document, DEEPEST)
    return found


_TOO_DEEP = f"nested deeper than {DEEPEST} levels"


class _Nulls:
    """Removes keys whose value is null: null means a missing key, as in every Kubernetes API."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._left = MOST

    def left_out(self, value: Any, depth: int) -> Any:
        """The value without null values. Raises ConfigError if it has too many values, or too many levels."""
        self._left -= 1
        if depth < 0:
            raise ConfigError(self._file, "", _TOO_DEEP)
        if self._left < 0:
            raise ConfigError(self._file, "", f"holds more than {MOST} values")
        if isinstance(value, dict):
            return {key: self.left_out(each, depth - 1) for key, each in value.items() if each is not None}
        if isinstance(value, list):
            return [self.left_out(each, depth - 1) for each in value]
        return value
