"""Read what kinds an API server serves, and where, from its aggregated discovery documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class Kind:
    """Where the objects of one kind are: `/api/v1` and `pods`, for example."""

    root: str
    resource: str
    namespaced: bool
    verbs: frozenset[str]

    @property
    def unversioned(self) -> tuple[str, str]:
        """The API group and the plural, which are equal in all versions in which these objects are served."""
        return self.root.rpartition("/")[0], self.resource

    def collection(self, namespace: str) -> str:
        """The path of the collection; ``namespace`` counts for namespaced kinds only."""
        place = f"namespaces/{namespace}/" if self.namespaced else ""
        return f"{self.root}/{place}{self.resource}"


def read_kinds(root: str, document: Mapping[str, Any]) -> dict[tuple[str, str], Kind]:
    """The kinds by (apiVersion, kind) in the document that ``root`` (`/api`, `/apis`) answers."""
    kinds: dict[tuple[str, str], Kind] = {}
    for group in document["items"]:
        name = group["metadata"].get("name", "")
        for version in group["versions"]:
            api_version = f"{name}/{version['version']}" if name else version["version"]
            for resource in version.get("resources", []):
                kinds.setdefault(
                    (api_version, resource["responseKind"]["kind"]),
                    Kind(
                        root=f"{root}/{api_version}",
                        resource=resource["resource"],
                        namespaced=resource["scope"] == "Namespaced",
                        verbs=frozenset(resource["verbs"]),
                    ),
                )
    return kinds
