"""Reads manifests as kubectl does: files and folders of YAML, several documents to a file, lists taken apart.

Only the fields that the scheduler reads are checked; unknown fields are kept unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gangline import model
from gangline.config.explaining import explained, quoted
from gangline.config.strict_yaml import FAULTS, StrictLoader, fault_of
from gangline.errors import ConfigError, InvalidObject
from gangline.kube.resources import Resource
from gangline.simulate.history import Data
from gangline.simulate.merging import without_nulls
from gangline.state import requests

RUN_SECONDS = "gangline.dev/run-seconds"
"""On a pod: after how many simulated seconds the pod succeeds; without the annotation it runs until it is deleted."""
SUFFIXES = (".yaml", ".yml", ".json")
WITH_TEMPLATE = ("Deployment", "ReplicaSet", "StatefulSet", "Job")
FIRST = ("CustomResourceDefinition", "Namespace", "PriorityClass", "Node", "GpuClaim")
"""Kinds that other objects refer to: they are created first, wherever they are in the files."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object and its place in the file, for example ``document 2``."""

    file: str
    place: str
    data: Data

    def error(self, path: str, why: str) -> ConfigError:
        """The error for a fault at a path in the object."""
        return ConfigError(self.file, ": ".join(filter(None, (self.place, path))), why)


def read(paths: Iterable[str | Path]) -> list[Manifest]:
    """All objects in files and folders; objects that others refer to come first. Raises ConfigError."""
    found = [manifest for path in paths for file in _files(Path(path)) for manifest in documents(file)]
    return in_order(found)


def in_order(found: Iterable[Manifest]) -> list[Manifest]:
    """The objects in order: those that others refer to come first."""
    return sorted(found, key=lambda each: _rank(each.data))


def taken_apart(manifest: Manifest) -> Iterator[Manifest]:
    """The items of a list, or the single object. Raises ConfigError."""
    kind = manifest.data.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List") or "items" not in manifest.data:
        yield manifest
        return
    items = manifest.data["items"]
    if not isinstance(items, list):
        raise manifest.error("items", f"expected a list, got {quoted(items)}")
    for number, item in enumerate(items):
        place = ": ".join(filter(None, (manifest.place, f"items[{number}]")))
        yield from taken_apart(_mapping(manifest.file, place, item))


def check_identity(manifest: Manifest) -> tuple[str, str]:
    """The apiVersion and kind of an object that has a name. Raises ConfigError."""
    for field in ("apiVersion", "kind"):
        value = manifest.data.get(field)
        if value is None:
            raise manifest.error(field, "required field is missing")
        if not isinstance(value, str) or not value:
            raise manifest.error(field, f"expected a string, got {quoted(value)}")
    metadata = manifest.data.get("metadata", {})
    if not isinstance(metadata, dict):
        raise manifest.error("metadata", f"expected a mapping, got {quoted(metadata)}")
    named = metadata.get("name") or metadata.get("generateName")
    if not named:
        raise manifest.error("metadata.name", "required field is missing")
    if not isinstance(named, str):
        raise manifest.error("metadata.name", f"expected a string, got {quoted(named)}")
    return manifest.data["apiVersion"], manifest.data["kind"]


def check(manifest: Manifest, resource: Resource[Any]) -> None:
    """Raise ConfigError unless the scheduler can read the object and the pods of its template."""
    _convert(manifest, "", manifest.data, resource.type)
    if resource.kind not in WITH_TEMPLATE:
        return
    template = manifest.data.get("spec", {}).get("template")
    if template is None:
        raise manifest.error("spec.template", "required field is missing")
    if not isinstance(template, Mapping):
        raise manifest.error("spec.template", f"expected a mapping, got {quoted(template)}")
    _convert(manifest, "spec.template", {"metadata": {}, **template}, model.Pod)


def run_seconds(metadata: Mapping[str, Any]) -> float | None:
    """How many seconds a pod runs before it succeeds; None: until it is deleted. Raises InvalidObject."""
    text = metadata.get("annotations", {}).get(RUN_SECONDS)
    if text is None:
        return None
    seconds = seconds_of(text)
    if seconds is None:
        path = f"metadata.annotations[{RUN_SECONDS}]"
        raise InvalidObject(path, text, "not a number of seconds")
    return seconds


def seconds_of(text: Any) -> float | None:
    """A number of seconds in an annotation; None for any other value."""
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < math.inf else None


def _convert(manifest: Manifest, path: str, data: Mapping[str, Any], type_: type) -> None:
    try:
        obj: Any = msgspec.convert(data, type_)
        if isinstance(obj, model.Pod):
            requests.compute(obj.spec)
            run_seconds(data["metadata"])
        elif isinstance(obj, model.Node):
            requests.allocatable(obj.status.allocatable, "status.allocatable")
            requests.allocatable(obj.status.capacity, "status.capacity")
    except msgspec.ValidationError as error:
        problem = explained(error, manifest.file, path, data, type_)
        raise manifest.error(problem.path, problem.why) from error
    except InvalidObject as error:
        where = f"{path}.{error.path}".removeprefix(".")
        raise manifest.error(where, f"{quoted(error.value)}: {error.why}") from error


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise ConfigError(str(path), "", f"the folder holds no file that ends in {', '.join(SUFFIXES)}")
    return files


def documents(file: Path) -> Iterator[Manifest]:
    """The objects of one file. Raises ConfigError."""
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise ConfigError(str(file), "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(file), "", f"not UTF-8 at byte {error.start}") from error
    number = 1
    try:
        for number, document in enumerate(yaml.load_all(text, StrictLoader), start=1):
            if document is not None:
                yield from taken_apart(_mapping(str(file), f"document {number}", document))
            number += 1
    except FAULTS as error:
        place, why = fault_of(error, text)
        raise ConfigError(str(file), ": ".join(filter(None, (f"document {number}", place))), why) from error


def _mapping(file: str, place: str, document: object) -> Manifest:
    if not isinstance(document, dict):
        raise ConfigError(file, place, f"expected a mapping, got {quoted(document)}")
    return Manifest(file, place, without_nulls(document))


def _rank(data: Mapping[str, Any]) -> int:
    kind = data.get("kind")
    return FIRST.index(kind) if kind in FIRST else len(FIRST)
