"""YAML as Kubernetes takes it: plain data, no key twice, and dates are text.

libyaml parses the text, ten times as fast as PyYAML's own parser. PyYAML's composer builds the nodes, not libyaml's:
libyaml's composer calls itself for each level, so that a text of a million brackets would crash the process. PyYAML's
composer raises RecursionError.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import Composer, ComposerError

from gangline.config.explaining import quoted

_DATE = "tag:yaml.org,2002:timestamp"
_MERGE = "tag:yaml.org,2002:merge"
_ANOTHER = "but found another document"


FAULTS = (yaml.YAMLError, ValueError, RecursionError)
"""The errors that a StrictLoader raises for an invalid text; ValueError is for a number that is too long."""


def fault_of(error: Exception, text: str) -> tuple[str, str]:
    """Where and why a text is invalid: line and column, or "" if they are not known; and a phrase for the reason."""
    if isinstance(error, yaml.MarkedYAMLError):
        if isinstance(error, ComposerError) and error.problem == _ANOTHER:
            why = "there is more than one document"
        else:
            why = "not valid YAML: " + ", ".join(filter(None, (error.context, error.problem)))
        mark, lines = error.problem_mark, text.split("\n")
        if mark is None:
            return "", why
        if mark.line >= len(lines):  # libyaml puts the end of a text on a line of its own
            return f"{len(lines)}:{len(lines[-1]) + 1}", why
        return f"{mark.line + 1}:{mark.column + 1}", why
    if isinstance(error, yaml.reader.ReaderError):
        before = text.encode()[: error.position].decode(errors="replace").split("\n")
        return f"{len(before)}:{len(before[-1]) + 1}", f"not valid YAML: {error.reason}"
    if isinstance(error, RecursionError):
        return "", "nested too deeply"
    return "", f"not valid YAML: {error}"


class StrictLoader(Composer, yaml.CSafeLoader):
    """A loader for ``yaml.load`` and ``yaml.load_all``, which raise RecursionError for a text nested too deeply."""

    def __init__(self, stream: str | bytes) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        Composer.__init__(self)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping. Raises an error of YAML if a key occurs twice."""
        seen: set[Any] = set()
        for key, _ in node.value:
            if key.tag == _MERGE or not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                why = f"key {quoted(key.value)} is there twice"
                raise yaml.constructor.ConstructorError(None, None, why, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _DATE]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
