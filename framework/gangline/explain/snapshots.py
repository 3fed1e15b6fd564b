"""Snapshots: everything that Gangline reads of a cluster, recorded, so that questions can be asked later and elsewhere.

A recorder wraps the client while a cluster is listed, and keeps each request with its answer. Later a snapshot answers
the same requests. Objects are kept as the structs of `model` have them, so a snapshot has no fields that Gangline does
not read: no env, args and command of containers, and no Secrets. Annotations in which kubectl and other tools keep
whole manifests are left out.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import msgspec

from gangline import config
from gangline.config import SchedulerConfiguration
from gangline.errors import ConfigError, NotFound
from gangline.kube.interface import Client, Listing, NoClient
from gangline.kube.resources import Resource, T

API_VERSION = "gangline.dev/v1alpha1"
"""The version of the format; a program reads the version that it writes, and no other."""
KIND = "ClusterSnapshot"
_MOST_BYTES = 2**31
"""Bytes of a snapshot before compression, at most."""
_UNREAD = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "kapp.k14s.io/original",
        "objectset.rio.cattle.io/applied",
        "banzaicloud.com/last-applied",
    }
)
"""The annotations in which kubectl, kapp, Rancher and the operators of Banzai keep manifests; some compress them."""
_MANIFEST = re.compile(r'"(?:containers|initContainers|ephemeralContainers|env|envFrom)"\s*:\s*\[')
"""What an annotation has in which another tool keeps a manifest of pods."""


class SnapshotList(msgspec.Struct, rename="camel", omit_defaults=True):
    """One list request, and the objects of its answer."""

    resource: str
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    items: list[dict[str, Any]] = []


class _Head(msgspec.Struct, rename="camel"):
    """The fields that every version of a snapshot has."""

    api_version: str = ""
    kind: str = ""


class Snapshot(msgspec.Struct, rename="camel"):
    """A cluster as it was at one moment, and the profiles that judged it."""

    taken_at: float
    """Seconds since 1970."""
    configuration: str
    """A KubeSchedulerConfiguration."""
    source: str
    """Where the configuration came from."""
    served: dict[str, list[str]]
    """By group and version the plurals that the API server has."""
    lists: list[SnapshotList]
    api_version: str = API_VERSION
    kind: str = KIND


_Key = tuple[str, str, str, str]


class RecordingClient(NoClient):
    """Passes list requests on to another client, and keeps the answers; cannot write."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lists: dict[_Key, SnapshotList] = {}
        self._served: dict[str, list[str]] = {}

    async def list(self, resource: Resource[T], **asked: Any) -> Listing[T]:
        """See `Client`."""
        found = await self._client.list(resource, **asked)
        key = _key(resource, asked)
        self._lists[key] = SnapshotList(*key, [_shareable(msgspec.to_builtins(each)) for each in found.items])
        return found

    async def served(self, group: str, version: str) -> set[str]:
        """See `Client`."""
        found = await self._client.served(group, version)
        self._served[f"{group}/{version}"] = sorted(found)
        return found

    def snapshot(self, taken_at: float, configuration: SchedulerConfiguration, source: str) -> Snapshot:
        """A snapshot of all answers so far. Extenders are left out of the configuration: nobody can ask them later."""
        shown = config.show(msgspec.structs.replace(configuration, extenders=()))
        return Snapshot(taken_at, shown, source, self._served, list(self._lists.values()))


class RecordedClient(NoClient):
    """Answers from a snapshot. A list that was not requested when the snapshot was taken is empty."""

    def __init__(self, snapshot: Snapshot, where: str) -> None:
        self._where = where
        self._served = snapshot.served
        self._lists = {(e.resource, e.namespace, e.label_selector, e.field_selector): e for e in snapshot.lists}

    async def list(self, resource: Resource[T], **asked: Any) -> Listing[T]:
        """See `Client`. Raises ConfigError for objects that do not fit."""
        found = self._lists.get(_key(resource, asked))
        return Listing(converted(resource, found.items if found is not None else [], self._where), "1")

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        """See `Client`."""
        for listed in self._lists.values():
            if listed.resource != _name(resource):
                continue
            for each in converted(resource, listed.items, self._where):
                if (each.metadata.name, each.metadata.namespace) == (name, namespace or ""):
                    return each
        raise NotFound(404, "NotFound", f"{resource.plural} {name!r} is not in the snapshot")

    async def served(self, group: str, version: str) -> set[str]:
        """See `Client`."""
        return set(self._served.get(f"{group}/{version}", ()))


def converted(resource: Resource[T], items: Sequence[Mapping[str, Any]], where: str) -> list[T]:
    """The objects of a list in a snapshot. Raises ConfigError for objects that do not fit; `where` is the snapshot."""
    try:
        return msgspec.convert(items, list[resource.type])  # type: ignore[name-defined]  # a runtime type
    except msgspec.ValidationError as error:
        raise ConfigError(where, resource.plural, str(error)) from error


class SnapshotClock:
    """A `Clock` that stands still at the moment at which a snapshot was taken."""

    def __init__(self, taken_at: float) -> None:
        self._taken_at = taken_at

    def monotonic(self) -> float:
        """Seconds; always the same."""
        return 0.0

    def now(self) -> float:
        """Seconds since 1970."""
        return self._taken_at


def encode(snapshot: Snapshot) -> bytes:
    """The snapshot as compressed JSON; equal snapshots are equal bytes."""
    return gzip.compress(msgspec.json.encode(snapshot), mtime=0)


def decode(data: bytes, where: str) -> Snapshot:
    """Read a snapshot. Raises ConfigError that says what is wrong with the file; `where` names it."""
    try:
        with gzip.GzipFile(fileobj=BytesIO(data)) as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(where, "", f"is no snapshot, or is damaged: {error}") from error
    if len(text) > _MOST_BYTES:
        raise ConfigError(where, "", f"is larger than {_MOST_BYTES} bytes")
    try:
        head = msgspec.json.decode(text, type=_Head)
        if (head.api_version, head.kind) != (API_VERSION, KIND):
            is_named = head.api_version and head.kind
            found = f"is a {head.kind} of {head.api_version}" if is_named else "has no apiVersion or no kind"
            raise ConfigError(where, "", f"{found}, and this program reads a {KIND} of {API_VERSION}")
        return msgspec.json.decode(text, type=Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(where, "", f"is no snapshot, or is damaged: {error}") from error


def _key(resource: Resource[Any], asked: Mapping[str, Any]) -> _Key:
    selectors = (asked.get(name) or "" for name in ("namespace", "label_selector", "field_selector"))
    return (_name(resource), *selectors)  # type: ignore[return-value]  # mypy does not count the selectors


def _name(resource: Resource[Any]) -> str:
    return f"{resource.api_version}/{resource.plural}"


def _shareable(data: dict[str, Any]) -> dict[str, Any]:
    """The object without annotations of its manifest, which has env, args and command of containers."""
    metadata = data.get("metadata", {})
    annotations = metadata.get("annotations") or {}
    kept = {key: value for key, value in annotations.items() if key not in _UNREAD and not _MANIFEST.search(value)}
    return data if len(kept) == len(annotations) else {**data, "metadata": {**metadata, "annotations": kept}}
