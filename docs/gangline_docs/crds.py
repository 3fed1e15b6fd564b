"""The page of custom resources, from the OpenAPI schemas in the chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gangline_docs.markdown import code, page, sentences, table

FOLDER = Path(__file__).parents[2] / "charts" / "gpu-scheduler" / "crds"
_META = ("apiVersion", "kind", "metadata")
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} entries",
    "pattern": "matches {}",
}
_USUAL = {
    "conditions[].type": "What is said",
    "conditions[].status": "Whether it holds",
    "conditions[].reason": "Why; one word",
    "conditions[].message": "Why",
    "conditions[].lastTransitionTime": "When it began",
    "conditions[].observedGeneration": "Of this object, when it was said",
    "[].apiVersion": "Of the object in the list",
    "[].kind": "Of the object in the list",
    "[].metadata": "Its name",
    "[].spec": "As in an object of its own",
}
"""What fields mean that are the same everywhere, by the end of their path."""
Schema = Mapping[str, Any]


def definitions() -> list[dict[str, Any]]:
    """Every CustomResourceDefinition of the chart, by kind."""
    documents = [
        document
        for file in sorted(FOLDER.glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if document
    ]
    return sorted(documents, key=lambda each: str(each["spec"]["names"]["kind"]))


def render() -> str:
    """The page."""
    summary = (
        "Every field of the custom resources that come with the chart, as the API server checks them. "
        "`kubectl explain` tells the same on a cluster."
    )
    return page("Custom resources", summary, *map(_definition, definitions()))


def fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Path, schema and whether it is required, of every field below a schema."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        if not prefix and name in _META:
            continue
        path = f"{prefix}.{name}" if prefix else name
        yield path, field, name in required
        items = field.get("items")
        yield from fields(items, f"{path}[]") if items else fields(field, path)


def rules(schema: Schema, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Path, expression and message of every validation rule at or below a schema."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield prefix, str(rule["rule"]), str(rule.get("message", ""))
    for name, field in schema.get("properties", {}).items():
        yield from rules(field, f"{prefix}.{name}" if prefix else name)
    if "items" in schema:
        yield from rules(schema["items"], f"{prefix}[]")


def _definition(definition: Mapping[str, Any]) -> str:
    spec = definition["spec"]
    names = spec["names"]
    parts = [f"## {names['kind']}"]
    for version in spec["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        called = ", ".join(map(code, (names["plural"], *names.get("shortNames", ()))))
        where = "in a namespace" if spec["scope"] == "Namespaced" else "cluster-wide"
        parts.append(f"{schema.get('description', '')} `{spec['group']}/{version['name']}`, {where}; {called}.".strip())
        parts.append(table(("Field", "Type", "Default", "Meaning"), map(_row, fields(schema))))
        parts.append(_rules(schema))
        parts.append(_columns(version))
    return "\n\n".join(part for part in parts if part)


def _row(field: tuple[str, Schema, bool]) -> tuple[str, ...]:
    path, schema, required = field
    has_default = "default" in schema and not isinstance(schema["default"], dict)
    default = "required" if required else code(_scalar(schema["default"])) if has_default else ""
    usual = next((meaning for end, meaning in _USUAL.items() if path.endswith(end)), "")
    return code(path), _type(schema), default, sentences(str(schema.get("description", usual)), _limits(schema))


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " ".join(code(str(value)) for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or text"
    kind = {"string": "text", "array": "list of"}.get(str(schema.get("type")), str(schema.get("type", "any")))
    if "items" in schema:
        return f"{kind} {_type(schema['items'])}"
    if isinstance(values := schema.get("additionalProperties"), dict):
        return f"map of text to {_type(values)}"
    return {"date-time": "time"}.get(str(schema.get("format")), kind)


def _limits(schema: Schema) -> str:
    values = {**schema, "pattern": code(schema.get("pattern", ""))}
    return ", ".join(text.format(values[key]) for key, text in _LIMITS.items() if key in schema)


def _scalar(value: object) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True)).removesuffix("\n...\n").strip()


def _rules(schema: Schema) -> str:
    found = [(code(path or "."), code(rule), message) for path, rule, message in rules(schema)]
    return "The API server also checks:\n\n" + table(("Of", "Rule", "Message"), found) if found else ""


def _columns(version: Mapping[str, Any]) -> str:
    found = [
        (
            str(column["name"]).upper(),
            code(column["jsonPath"]),
            "`-o wide`" if column.get("priority") else "always",
        )
        for column in version.get("additionalPrinterColumns", ())
    ]
    return "`kubectl get` shows:\n\n" + table(("Column", "Field", "Shown"), found) if found else ""
