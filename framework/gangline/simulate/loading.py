"""Applies manifests to the objects of a cluster; the pods of a workload are created in the same step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gangline.errors import ApiError
from gangline.kube.interface import PatchKind
from gangline.kube.resources import DEVICES, PODS, Resource
from gangline.model import ObjectMeta
from gangline.simulate import manifests
from gangline.simulate.history import Revision
from gangline.simulate.manifests import Manifest
from gangline.simulate.merging import patched
from gangline.simulate.objects import Objects, key_of
from gangline.simulate.workloads import OWNERS, UNMADE, controller, missing

DEFINITION = "CustomResourceDefinition"


_OLDER: Mapping[tuple[str, str], tuple[Resource[Any], Resource[Any]]] = {
    (older.api_version, older.kind): (newest, older) for newest in DEVICES for older in newest.older
}
"""By apiVersion and kind of an older version: the kind in the newest version, and in this version."""


class Unread(msgspec.Struct):
    """An object of a kind that the simulation does not know."""

    metadata: ObjectMeta


def apply(objects: Objects, found: Iterable[Manifest]) -> list[str]:
    """Creates or changes every object; returns one warning for each kind that nothing reads. Raises ConfigError."""
    warnings: dict[str, None] = {}
    for given in found:
        manifest = _upgraded(given)
        api_version, kind = manifests.check_identity(manifest)
        resource = objects.kinds.get((api_version, kind))
        if resource is None:
            _check_spelling(objects, manifest, api_version, kind)
            resource = _unread(api_version, kind)
        manifests.check(manifest, resource)
        try:
            _put(objects, resource, manifest.data)
        except ApiError as error:
            raise manifest.error("", error.message) from error
        if kind == DEFINITION:
            _define(objects, manifest)
        elif resource.type is Unread:
            warnings[f"{api_version} {kind}: stored, but nothing in the simulation reads it"] = None
        elif resource in UNMADE:
            warnings[f"{api_version} {kind}: stored, but nothing in the simulation makes pods of it"] = None
    return list(warnings)


def _upgraded(manifest: Manifest) -> Manifest:
    """An object of an older version, converted to the newest version of its kind."""
    api_version, kind = manifests.check_identity(manifest)
    newest, older = _OLDER.get((api_version, kind), (None, None))
    if newest is None or older is None:
        return manifest
    data = {**manifest.data, "apiVersion": newest.api_version}
    return Manifest(manifest.file, manifest.place, older.upgrade(data) if older.upgrade is not None else data)


def _put(objects: Objects, resource: Resource[Any], data: Mapping[str, Any]) -> None:
    """Creates the object, or merges the data into the existing object; then creates its workload's pods."""
    collection = objects.collection(resource)
    objects.kinds.setdefault((resource.api_version, resource.kind), resource)
    metadata = data["metadata"]
    key = key_of(resource, metadata.get("namespace"), metadata.get("name", ""))
    old = collection.objects.get(key)
    if old is None:
        new = objects.create(resource, data)
    else:
        own = {**metadata, "uid": None, "resourceVersion": None}
        merged = patched(old.data, {**data, "metadata": own}, PatchKind.STRATEGIC)
        new = objects.update(collection, key, merged, None)
    for child in missing(new.data, _owned(objects, new) if old else []):
        _put(objects, objects.kinds[child["apiVersion"], child["kind"]], child)


def _owned(objects: Objects, owner: Revision) -> list[Mapping[str, Any]]:
    """Creates the pods of a workload."""
    if (owner.data["apiVersion"], owner.data["kind"]) not in OWNERS:
        return []
    uid = owner.data["metadata"]["uid"]
    return [pod.data for pod in objects.of(PODS) if (controller(pod.data) or {}).get("uid") == uid]


def _check_spelling(objects: Objects, manifest: Manifest, api_version: str, kind: str) -> None:
    """Raises ConfigError for a kind that the API server does not know, but one that differs by upper and lower case, or
    is its plural; and for a workload in the version v1.
    """
    for (version, known), resource in objects.kinds.items():
        is_near = version == api_version and kind.lower() in (known.lower(), resource.plural)
        if is_near or (api_version == "v1" and kind == known and kind in manifests.WITH_TEMPLATE):
            raise manifest.error("kind", f"{api_version} has no kind {kind!r}; did you mean {version} {known}?")


def _unread(api_version: str, kind: str) -> Resource[Any]:
    """A kind of which only the name is known: the plural is guessed by English rules."""
    group, _, version = api_version.rpartition("/")
    lower = kind.lower()
    plural = f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}es" if lower.endswith("s") else f"{lower}s"
    return Resource(group, version, plural, kind, Unread)


def _define(objects: Objects, manifest: Manifest) -> None:
    """Serves the kind of a CustomResourceDefinition, unless the kind is known. Raises ConfigError."""
    try:
        definition = msgspec.convert(manifest.data["spec"], _Definition)
    except (KeyError, msgspec.ValidationError) as error:
        raise manifest.error("spec", f"not a CustomResourceDefinition: {error}") from error
    names, namespaced = definition.names, definition.scope != "Cluster"
    for version in definition.versions:
        resource = Resource(definition.group, version.name, names.plural, names.kind, Unread, namespaced)
        objects.kinds.setdefault((resource.api_version, resource.kind), resource)


class _Names(msgspec.Struct):
    plural: str
    kind: str


class _Version(msgspec.Struct):
    name: str


class _Definition(msgspec.Struct):
    group: str
    names: _Names
    scope: str
    versions: list[_Version]
