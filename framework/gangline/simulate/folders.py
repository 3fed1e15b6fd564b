"""Sorts the files of a simulation: manifests, profiles, a chart's values, cases, and other files.

Rules:
- A document with apiVersion and kind is a manifest. A document with only one of them is an error.
- A KubeSchedulerConfiguration, and `profiles` in the values of a chart, are profiles to simulate with.
- A case of `gangline explain` means the objects in it; its `pod` is a waiting pod.
- Other documents in a folder are left out, with one line each: charts, kustomizations, schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gangline.config.versions import GROUP, KIND, V1
from gangline.errors import ConfigError
from gangline.kube.resources import DEVICES, NODES, PODS, STORED, Resource
from gangline.simulate import manifests
from gangline.simulate.manifests import SUFFIXES, Manifest

_CHART = "Chart.yaml"
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_SHORT = {"persistentvolumeclaims": "pvcs", "persistentvolumes": "pvs", "poddisruptionbudgets": "pdbs"}


def _names(resource: Resource[Any]) -> tuple[str, ...]:
    return resource.plural, _SHORT.get(resource.plural, resource.plural)


_KINDS: tuple[Resource[Any], ...] = (NODES, PODS, *STORED, *DEVICES)
_CHARTS_NAME = "gpu-scheduler"
"""The chart's default name for a profile without a name."""
_CASE: Mapping[str, Resource[Any]] = {key: resource for resource in _KINDS for key in _names(resource)}
"""The kinds of objects in a case, by the name of their list."""


@dataclass(slots=True)
class Sorted:
    """The sorted content of the files."""

    manifests: list[Manifest] = field(default_factory=list)
    """The manifests; objects that others refer to come first."""
    profiles: dict[str, str] = field(default_factory=dict)
    """File and text of each KubeSchedulerConfiguration."""
    notes: list[str] = field(default_factory=list)
    """One line for each document that is left out or is no manifest."""


def sort_out(paths: Iterable[str | Path]) -> Sorted:
    """Read files and folders. Raises ConfigError."""
    found = Sorted()
    for path in map(Path, paths):
        for file in _files(path, found.notes) if path.is_dir() else [path]:
            for manifest in manifests.documents(file):
                _take(manifest, found)
    found.manifests = manifests.in_order(found.manifests)
    return found


def _files(folder: Path, notes: list[str]) -> list[Path]:
    """The files of a folder and those below it, without charts and kustomizations."""
    if not any(file.suffix in SUFFIXES for file in folder.rglob("*")):
        raise ConfigError(str(folder), "", f"the folder holds no file that ends in {', '.join(SUFFIXES)}")
    files: list[Path] = []
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and (entry / _CHART).is_file():
            notes.append(f"{entry}: left out, it is a Helm chart: simulate what `helm template` makes of it")
        elif entry.is_dir():
            files += _files(entry, notes) if any(file.suffix in SUFFIXES for file in entry.rglob("*")) else []
        elif entry.name in _KUSTOMIZATIONS:
            notes.append(f"{entry}: left out, it is a kustomization: simulate what `kubectl kustomize` makes of it")
        elif entry.suffix in SUFFIXES:
            files.append(entry)
    return files


def _take(manifest: Manifest, found: Sorted) -> None:
    data = manifest.data
    version, kind = data.get("apiVersion"), data.get("kind")
    where = f"{manifest.file}: {manifest.place}"
    if kind == KIND and isinstance(version, str) and version.startswith(GROUP):
        found.profiles[where] = yaml.dump(dict(data), Dumper=yaml.CSafeDumper)
    elif version is not None or kind is not None:
        found.manifests.append(manifest)
    elif _has_profiles(data):
        document = {"apiVersion": V1, "kind": KIND, "profiles": _named(data)}
        found.profiles[where] = yaml.dump(document, Dumper=yaml.CSafeDumper)
    elif "pod" in data and set(data) <= {"pod", *_CASE}:
        found.notes.append(f"{where}: a case: its objects are simulated, and its pod waits")
        found.manifests += _of_case(manifest)
    else:
        found.notes.append(f"{where}: left out, it is no Kubernetes object: it has neither apiVersion nor kind")


def _has_profiles(data: Mapping[str, Any]) -> bool:
    profiles = data.get("profiles")
    return isinstance(profiles, list) and bool(profiles) and all(isinstance(each, dict) for each in profiles)


def _named(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The profiles in a chart's values. A profile without a name gets the chart's default name, unless another profile
    has this name.
    """
    scheduler = values.get("scheduler")
    name = (isinstance(scheduler, dict) and scheduler.get("name")) or _CHARTS_NAME
    own = [{"schedulerName": name, **each} for each in values["profiles"]]
    taken = {each.get("schedulerName") for each in values["profiles"]}
    return [
        each
        for each, given in zip(own, values["profiles"], strict=True)
        if "schedulerName" in given or name not in taken
    ]


def _of_case(manifest: Manifest) -> Iterator[Manifest]:
    for key, value in manifest.data.items():
        resource = PODS if key == "pod" else _CASE[key]
        for number, each in enumerate([value] if key == "pod" else value or []):
            place = f"{manifest.place}: {key}" if key == "pod" else f"{manifest.place}: {key}[{number}]"
            if not isinstance(each, dict):
                raise manifest.error(place, "expected a mapping")
            typed = {"apiVersion": resource.api_version, "kind": resource.kind, **each}
            yield Manifest(manifest.file, place, _anew(typed))


def _anew(data: dict[str, Any]) -> dict[str, Any]:
    """The object without uid, resourceVersion and the like: the simulated API server gives it new ones."""
    metadata = {key: value for key, value in data.get("metadata", {}).items() if key not in ("uid", "resourceVersion")}
    return {**data, "metadata": metadata}
