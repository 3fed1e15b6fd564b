"""Custom resources that gangs of other systems are read from, cut down to what a scheduler needs of them.

The controllers of these systems do not run here; tests make the objects and the pods that they would make.
"""

from __future__ import annotations

from functools import partial

from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import CRDS
from gangline_e2e.workloads import Manifest

KINDS = (
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    ("scheduling.run.ai", "v2alpha2", "PodGroup"),
    ("scheduling.volcano.sh", "v1beta1", "PodGroup"),
)
"""Group, version and kind."""
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


async def install_foreign(api: Api) -> None:
    """Create the definitions, and wait until they are served."""
    for group, version, kind in KINDS:
        await api.create(_definition(group, version, kind))
    for group, version, kind in KINDS:
        await api.until(partial(_is_served, api, f"/apis/{group}/{version}/{_plural(kind)}"), f"{kind} of {group}")


async def _is_served(api: Api, path: str) -> bool:
    try:
        await api.list(path)
    except Refused as error:
        if error.status not in (404, 429):
            raise
        return False
    return True


def _definition(group: str, version: str, kind: str) -> Manifest:
    plural = _plural(kind)
    schema = {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    metadata = {"name": f"{plural}.{group}"}
    if group.endswith(".x-k8s.io"):  # as the published definitions; the API server demands it of *.k8s.io alone
        metadata |= {"annotations": {"api-approved.kubernetes.io": "unapproved, cut down for tests"}}  # type: ignore[dict-item]
    return {
        "apiVersion": CRDS.removeprefix("/apis/").removesuffix("/customresourcedefinitions"),
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [{**served, "subresources": {"status": {}}}],
        },
    }


def _plural(kind: str) -> str:
    return f"{kind.lower()}s"
