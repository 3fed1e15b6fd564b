"""The CRD of ProvisioningRequests with the rules of cluster-autoscaler, and what an autoscaler writes on a request."""

from __future__ import annotations

from datetime import UTC, datetime

from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.workloads import Manifest

GROUP, VERSION, PLURAL = "autoscaling.x-k8s.io", "v1", "provisioningrequests"
CONSUMED = f"{GROUP}/consume-provisioning-request"
CLASS = f"{GROUP}/provisioning-class-name"
_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_TEXT = {"type": "string"}


def path_of(api: Api) -> str:
    """The path of the requests in a client's namespace."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{api.namespace}/{PLURAL}"


async def install_provisioning(api: Api) -> None:
    """Create the definition, and wait until requests are served."""
    await api.create(definition())

    async def is_served() -> bool:
        try:
            await api.list(f"/apis/{GROUP}/{VERSION}/{PLURAL}")
        except Refused as error:
            if error.status not in (404, 429):
                raise
            return False
        return True

    await api.until(is_served, "ProvisioningRequests are served")


def definition() -> Manifest:
    """The CustomResourceDefinition: the fields of v1, their limits, and that nobody changes a spec."""
    fixed = [{"rule": "self == oldSelf", "message": "Value is immutable"}]
    reference = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {**_TEXT, "maxLength": 253, "pattern": _NAME}},
    }
    pod_set = {
        "type": "object",
        "required": ["count", "podTemplateRef"],
        "properties": {
            "count": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 16384},
            "podTemplateRef": reference,
        },
    }
    parameters = {"type": "object", "maxProperties": 100, "additionalProperties": {**_TEXT, "maxLength": 255}}
    spec = {
        "type": "object",
        "required": ["podSets", "provisioningClassName"],
        "properties": {
            "parameters": {**parameters, "x-kubernetes-validations": fixed},
            "podSets": {
                "type": "array",
                "items": pod_set,
                "minItems": 1,
                "maxItems": 32,
                "x-kubernetes-validations": fixed,
            },
            "provisioningClassName": {**_TEXT, "maxLength": 253, "pattern": _NAME, "x-kubernetes-validations": fixed},
        },
    }
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": _status()}}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    kind = "ProvisioningRequest"
    names = {"kind": kind, "listKind": f"{kind}List", "plural": PLURAL, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, written for tests"},
        },
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _status() -> Manifest:
    condition = {
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {**_TEXT, "format": "date-time"},
            "message": {**_TEXT, "maxLength": 32768},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "reason": {**_TEXT, "maxLength": 1024, "minLength": 1},
            "status": {**_TEXT, "enum": ["True", "False", "Unknown"]},
            "type": {**_TEXT, "maxLength": 316},
        },
    }
    return {
        "type": "object",
        "properties": {
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "provisioningClassDetails": {
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {**_TEXT, "maxLength": 32768},
            },
        },
    }


async def answer(api: Api, request: str, *types: str, message: str = "") -> None:
    """Write these conditions on a request, as an autoscaler does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": each, "status": "True", "reason": each, "message": message, "lastTransitionTime": now}
        for each in types
    ]
    await api.merge(f"{path_of(api)}/{request}/status", {"status": {"conditions": conditions}})
