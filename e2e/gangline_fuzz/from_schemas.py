"""Strategies built from the OpenAPI schemas of the chart's CRDs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from gangline_fuzz import edges, vocabulary
from gangline_fuzz.edges import Values

CRDS = Path(__file__).parents[2] / "charts" / "gpu-scheduler" / "crds"
FIELDS = 4
"""At most so many fields of an object are filled in beyond those that it must have."""


@functools.cache
def schemas() -> Mapping[str, Any]:
    """The schema of each custom resource, by its plural and group."""
    found = {}
    for path in sorted(CRDS.glob("*.yaml")):
        for document in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader):
            if document and document.get("kind") == "CustomResourceDefinition":
                spec = document["spec"]
                name = f"{spec['names']['plural']}.{spec['group']}"
                found[name] = spec["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def strategy_for(name: str, part: str) -> Values:
    """Data for a part of a custom resource, "spec" for one: mostly as its schema wants it."""
    return _of(schemas()[name]["properties"].get(part, {}), part)


def _of(schema: Mapping[str, Any], field: str) -> Values:
    hint = vocabulary.base(_snake(field))
    made = _made(schema)
    chosen = made if hint is None else hint | made
    return st.integers(0, 11).flatmap(lambda dice: edges.wrong if dice == 11 else chosen)


def _made(schema: Mapping[str, Any]) -> Values:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if schema.get("properties"):
            return _object(schema)
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return st.dictionaries(
                st.sampled_from(vocabulary.LABELS), _of(schema["additionalProperties"], ""), max_size=3
            )
        case "array":
            return st.lists(_of(schema.get("items", {}), ""), max_size=3)
        case "string":
            return edges.times if schema.get("format") == "date-time" else vocabulary.values
        case "integer":
            return edges.numbers | _within(schema)
        case "number":
            return edges.floats
        case "boolean":
            return st.booleans()
        case _:
            return edges.json_values


def _within(schema: Mapping[str, Any]) -> Values:
    """Whole numbers that the schema allows, those at its limits and just past them."""
    least, most = int(schema.get("minimum", -3)), int(schema.get("maximum", 70_000))
    return st.sampled_from((least, most, least - 1, most + 1)) | st.integers(least, max(least, most))


def _object(schema: Mapping[str, Any]) -> Values:
    must = schema.get("required", [])
    properties = schema["properties"]

    @st.composite
    def build(draw: st.DrawFn) -> Any:
        others = sorted(set(properties) - set(must))
        chosen = draw(st.lists(st.sampled_from(others), max_size=FIELDS, unique=True)) if others else []
        return {name: draw(_of(properties.get(name, {}), name)) for name in (*must, *chosen)}

    return build()


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
