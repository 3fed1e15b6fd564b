"""Builds what a driver, an administrator and a user write for dynamic resource allocation: pure functions.

Each story has names of its own on the shared cluster: in its manifests `@` begins every name, and `DRIVER` is the name
of its driver. `told` puts the story's name in their places.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gangline_e2e.workloads import IMAGE, Manifest, Manifests

API = "resource.k8s.io/v1"
STORY = "gangline.dev/story"
"""The label of a story's nodes; its pods go to no others."""


class Version(str):
    """The value of an attribute that is a semantic version."""


Attribute = bool | int | str
"""A value of an attribute; a list of values makes an attribute that is a list."""


@dataclass(frozen=True, slots=True)
class Created:
    """A step: an object is created. For a pod with `at` or `refused` the story waits for the decision about it."""

    manifest: Manifest
    at: str = ""
    """The node to which the pod goes."""
    refused: str = ""
    """Part of the reason why the pod gets no node; NAMESPACE stands for the namespace of all stories."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A step: the story waits for the decision about a pod that was created before."""

    name: str
    at: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Deleted:
    """A step: an object of the story is deleted at once."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A step: fields of an object, or of its status, are changed by a merge patch."""

    kind: str
    name: str
    patch: Mapping[str, Any]
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """A step: the story waits until a claim has a device."""

    name: str
    device: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A step: the story waits until an object is gone."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Withheld:
    """A step: the story waits until the scheduler gives none of the story's free devices away."""


Step = Created | Decided | Deleted | Changed | Given | Gone | Withheld


@dataclass(frozen=True, slots=True)
class Story:
    """A story: the objects at its beginning, its steps, and the devices that claims have at the end."""

    name: str
    there: Manifests
    """Nodes, slices, classes, templates and claims that are created before the scheduler starts."""
    steps: Sequence[Step]
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For each claim, named CLAIM or POD/ENTRY, its devices as REQUEST=DEVICE in order; none for a claim without
    devices.
    """
    before: Sequence[Changed] = ()
    """Changes that somebody else makes before the scheduler starts."""

    def told(self, value: Any) -> Any:
        """A value with the names of this story."""
        text = json.dumps(value).replace("@", f"{self.name}--").replace("DRIVER", f"{self.name}.example.com")
        return json.loads(text)


def node(name: str = "a", **labels: str) -> Manifest:
    """A node of a story."""
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"@{name}", "labels": {STORY: "@nodes", **labels}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def device(
    name: str,
    attributes: Mapping[str, Attribute | Sequence[Attribute]] | None = None,
    capacity: Mapping[str, str | Manifest] | None = None,
    **more: Any,
) -> Manifest:
    """A device; the names of attributes without a domain are the driver's own."""
    made: Manifest = {"name": name, **more}
    if attributes:
        made["attributes"] = {key: _attribute(value) for key, value in attributes.items()}
    if capacity:
        made["capacity"] = {key: {"value": each} if isinstance(each, str) else each for key, each in capacity.items()}
    return made


def devices(*names: str) -> Manifests:
    """Devices with a name and no other fields."""
    return [device(name) for name in names]


def offer(
    given: Sequence[Manifest] = (),
    *,
    at: str = "a",
    name: str = "",
    pool: str = "",
    driver: str = "DRIVER",
    generation: int = 1,
    slices: int = 1,
    **spec: Any,
) -> Manifest:
    """A ResourceSlice, of one node unless the spec says otherwise."""
    where = {} if {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": f"@{at}"}
    made: Manifest = {
        "driver": driver,
        "pool": {"name": pool or f"@{at}", "generation": generation, "resourceSliceCount": slices},
        **where,
        **spec,
    }
    if given:
        made["devices"] = list(given)
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"@{name or pool or at}"}, "spec": made}


def consumes(**amounts: str) -> list[Manifest]:
    """The field consumesCounters of a device that takes these amounts of the counters in the set `gpu`."""
    return [{"counterSet": "gpu", "counters": {key: {"value": each} for key, each in amounts.items()}}]


def counters(**amounts: str) -> list[Manifest]:
    """The field sharedCounters of a slice with the counter set `gpu`."""
    return [{"name": "gpu", "counters": {key: {"value": each} for key, each in amounts.items()}}]


def class_(name: str = "gpu", *selectors: str, **spec: Any) -> Manifest:
    """A DeviceClass of the story's driver."""
    chosen = [_selector(each) for each in selectors or ('device.driver == "DRIVER"',)]
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": f"@{name}"},
        "spec": {"selectors": chosen, **spec},
    }


def exactly(name: str = "gpu", *selectors: str, of: str = "gpu", **more: Any) -> Manifest:
    """A request for a number of devices, one unless `count` says otherwise, or with `allocationMode="All"` for all."""
    return {"name": name, "exactly": _asked(of, selectors, more)}


def first(name: str, *alternatives: Manifest) -> Manifest:
    """A request for the first of some alternatives that is available."""
    return {"name": name, "firstAvailable": list(alternatives)}


def either(name: str, *selectors: str, of: str = "gpu", **more: Any) -> Manifest:
    """One alternative of a request."""
    return {"name": name, **_asked(of, selectors, more)}


def claim(name: str, *requests: Manifest, **spec: Any) -> Manifest:
    """A ResourceClaim."""
    metadata = {"name": f"@{name}"}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": _spec(requests, spec)}


def template(name: str, *requests: Manifest, **spec: Any) -> Manifest:
    """A ResourceClaimTemplate."""
    metadata = {"name": f"@{name}"}
    inner = {"spec": _spec(requests, spec)}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": inner}


def pod(
    name: str,
    *claims: str,
    templates: Sequence[str] = (),
    at: str = "",
    refused: str = "",
    **spec: Any,
) -> Created:
    """A pod that uses claims, and claims made from templates.

    The pod gets the node `at`, or none for the reason `refused`; without both the story does not wait for it.
    """
    entries = [
        *({"name": each, "resourceClaimName": f"@{each}"} for each in claims),
        *({"name": each, "resourceClaimTemplateName": f"@{each}"} for each in templates),
    ]
    container = {"name": "main", "image": IMAGE, "resources": {"claims": [{"name": each["name"]} for each in entries]}}
    made: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"@{name}"},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [container],
            "nodeSelector": {STORY: "@nodes"},
            "resourceClaims": entries,
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }
    return Created(made, at, refused)


def allocated(name: str, *results: str, at: str = "a", pool: str = "", request: str = "gpu") -> Changed:
    """A step: somebody else allocates devices of a claim, on a node."""
    found = [{"request": request, "driver": "DRIVER", "pool": pool or f"@{at}", "device": each} for each in results]
    field = {"key": "metadata.name", "operator": "In", "values": [f"@{at}"]}
    allocation = {
        "devices": {"results": found},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        "allocationTimestamp": "2026-01-02T03:04:05Z",
    }
    return Changed("ResourceClaim", f"@{name}", {"status": {"allocation": allocation}}, "status")


def _attribute(value: Attribute | Sequence[Attribute]) -> Manifest:
    match value:
        case list() | tuple():
            kinds = [*_attribute(value[0])]
            return {f"{kinds[0]}s": [str(each) if isinstance(each, str) else each for each in value]}
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case Version():
            return {"version": str(value)}
    return {"string": value}


def _asked(of: str, selectors: Sequence[str], more: Mapping[str, Any]) -> Manifest:
    asked: Manifest = {"deviceClassName": f"@{of}", **more}
    if selectors:
        asked["selectors"] = [_selector(each) for each in selectors]
    return asked


def _selector(expression: str) -> Manifest:
    return {"cel": {"expression": expression}}


def _spec(requests: Sequence[Manifest], spec: Mapping[str, Any]) -> Manifest:
    return {"devices": {"requests": list(requests), **spec}}
