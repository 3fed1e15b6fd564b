"""What the pods of a namespace may ask others to obey: the annotation `gangline.dev/allow` on the namespace.

Whoever may create pods may write what they like on them; a namespace is changed by administrators. So what costs other
tenants counts only where the namespace says that it may be asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gangline.wire.custom_resources import ALLOW

MIN_RUNTIME, MAX_RUNTIME, SCHEDULING_MAP, RESERVATION = "min-runtime", "max-runtime", "scheduling-map", "reservation"
"""What can be allowed."""
EVERYTHING = "*"
LONGEST = 1024
"""Characters of the annotation; a longer one allows nothing."""


class Namespaces(Protocol):
    """The namespaces as they are known; the store of them."""

    def get(self, name: str, namespace: str = "") -> Any:
        """The namespace of that name, None when it is not known."""
        ...


def allowed_by(annotations: Mapping[str, str] | None) -> frozenset[str]:
    """What a namespace with these annotations allows."""
    text = (annotations or {}).get(ALLOW, "")
    return frozenset(filter(None, (name.strip() for name in text.split(",")))) if len(text) <= LONGEST else frozenset()


def is_allowed(permission: str, namespace: str, namespaces: Namespaces) -> bool:
    """Whether the pods of a namespace may ask for this; not where the namespace is not known."""
    found = namespaces.get(namespace)
    return found is not None and not allowed_by(found.metadata.annotations).isdisjoint((permission, EVERYTHING))


def missing(permission: str, namespace: str) -> str:
    """What to tell the pod that asks for it all the same."""
    return f'namespace {namespace} does not allow it: its annotation {ALLOW} does not list "{permission}"'
