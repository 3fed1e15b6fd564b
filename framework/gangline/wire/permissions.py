"""Permissions of the pods of a namespace: the annotation `gangline.dev/allow` on the namespace.

A user who may create pods can write any annotation on them, but only administrators change a namespace. So a pod's
annotation that costs other tenants something counts only if the namespace has the permission for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gangline.wire.custom_resources import ALLOW

MIN_RUNTIME, MAX_RUNTIME, SCHEDULING_MAP, RESERVATION = "min-runtime", "max-runtime", "scheduling-map", "reservation"
"""The permissions."""
EVERYTHING = "*"
LONGEST = 1024
"""Characters of the annotation; a longer annotation gives no permission."""


class Namespaces(Protocol):
    """The namespaces that the scheduler knows."""

    def get(self, name: str, namespace: str = "") -> Any:
        """The namespace of that name, None when it is not known."""
        ...


def allowed_by(annotations: Mapping[str, str] | None) -> frozenset[str]:
    """The permissions of a namespace with these annotations."""
    text = (annotations or {}).get(ALLOW, "")
    return frozenset(filter(None, (name.strip() for name in text.split(",")))) if len(text) <= LONGEST else frozenset()


def is_allowed(permission: str, namespace: str, namespaces: Namespaces) -> bool:
    """Whether the pods of a namespace have the permission; False for an unknown namespace."""
    found = namespaces.get(namespace)
    return found is not None and not allowed_by(found.metadata.annotations).isdisjoint((permission, EVERYTHING))


def missing(permission: str, namespace: str) -> str:
    """The message for a pod that uses the annotation without the permission."""
    return f'namespace {namespace} does not allow it: its annotation {ALLOW} does not list "{permission}"'
