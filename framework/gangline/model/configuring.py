"""Objects with configuration: ConfigMaps, and custom resources whose spec is decoded by the code that uses it."""

from __future__ import annotations

from typing import Any

from gangline.model.base import Object, ObjectMeta


class ConfigMap(Object):
    """Texts by key."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class Document(Object):
    """A custom resource whose spec is not decoded: the code that reads the spec checks it and reports faults."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    api_version: str = ""
    kind: str = ""
