"""The claims for extended resources: what pods request of resources that classes serve, and the claims made for that.

Each pod gets one claim for all such resources. It depends on the node: resources that a device plugin advertises there
are left out. Until the pod is bound the claim is in memory alone, with a UID that begins with `UNWRITTEN`; `binding`
creates it. A claim that was created for a pod which was then not bound is left behind, and has to go before the pod is
tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline import NodeView, PodInfo, memo_key, model
from gangline.quantity import milli
from gangline_plugins.dynamic_resources.claims import Claims
from gangline_plugins.extended_resources import ExtendedResources

UNWRITTEN = "extended/"
"""How the UIDs of claims in memory begin; the UID of the pod follows."""
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
"""On a claim that was made for extended resources: "true"."""
MOST_NAMES = 32
"""Resources of one pod that classes serve; a claim has no more requests."""
_NAME = "<extended-resources>"
"""The name of a claim in memory, in texts."""

Mappings = list[model.ContainerExtendedResourceRequest]
Patterns = NDArray[np.int64]
"""For each node a set of bits: one bit for each resource that devices have to serve there, in the order of names."""
_PodKey = tuple[str, str]
"""Namespace and UID: anybody may write any owner into a claim of a namespace of their own."""
_Request = tuple[str, int]
"""Name and number of devices."""


class ExtendedClaims:
    """The claims for the extended resources of pods: those in memory, and those that the API server has."""

    def __init__(self, served: ExtendedResources, nodes: Callable[[], NodeView], store: Any) -> None:
        self.served = served
        self.leaving: set[str] = set()
        """The UIDs of pods for which this process may have created a claim that it deletes now."""
        self._nodes = nodes
        self._there: dict[_PodKey, dict[str, model.ResourceClaim]] = {}
        """The claims that the API server has, by pod, and then by the UID of the claim."""
        self._specs = memo_key(ExtendedClaims, "specs")
        store.subscribe(self)

    # The store of claims

    def on_upsert(self, claim: model.ResourceClaim) -> None:
        """A claim was added or has changed."""
        owner = pod_of(claim)
        if owner:
            key = claim.metadata.namespace, owner
            self._there.setdefault(key, {})[claim.metadata.uid] = claim

    def on_remove(self, claim: model.ResourceClaim) -> None:
        """A claim was deleted."""
        key = claim.metadata.namespace, pod_of(claim)
        if key in self._there:
            self._there[key].pop(claim.metadata.uid, None)
            if not self._there[key]:
                del self._there[key]

    @property
    def has_some(self) -> bool:
        """Whether the API server has claims for extended resources of any pods."""
        return bool(self._there)

    def there(self, pod: PodInfo) -> Claims:
        """The claims for the extended resources of a pod that the API server has, in the namespace of the pod."""
        return list(self._there.get((pod.namespace, pod.uid), {}).values())

    # Claims in memory

    def patterns(self, pod: PodInfo, nodes: NodeView) -> Patterns:
        """For each node of the view, which of the pod's extended resources devices have to serve there."""
        found: Patterns = np.zeros(len(nodes), dtype=np.int64)
        for place, name in enumerate(list(self.served.of(pod.cls))[:MOST_NAMES]):
            found |= (nodes.allocatable(name) == 0).astype(np.int64) << place
        return found

    def at(self, pod: PodInfo, row: int) -> model.ResourceClaim | None:
        """The claim of a pod on a node: the claim that was created, else one in memory; None if none is needed."""
        if not self.served.of(pod.cls):
            return None
        there = self.there(pod)
        if there:
            return there[0]
        return self.of(pod, int(self.patterns(pod, self._nodes().at(np.array([row], dtype=np.intp)))[0]))

    def of(self, pod: PodInfo, pattern: int) -> model.ResourceClaim | None:
        """The claim in memory of a pod on nodes of a pattern; None if the pod needs none there."""
        spec = self._spec(pod, pattern)[0]
        if not spec.devices.requests:
            return None
        owner = model.OwnerReference("Pod", pod.name, pod.uid, "v1", controller=True)
        metadata = model.ObjectMeta(
            _NAME,
            pod.namespace,
            UNWRITTEN + pod.uid,
            generate_name=f"{pod.name}-extended-resources-",
            annotations={ANNOTATION: "true"},
            owner_references=[owner],
        )
        return model.ResourceClaim(metadata, spec)

    def mappings(self, pod: PodInfo, claim: model.ResourceClaim) -> Mappings:
        """Which container uses which requests of the claim."""
        classes = list(self.served.of(pod.cls).items())
        asked = {each.exactly.device_class_name for each in claim.spec.devices.requests if each.exactly is not None}
        pattern = sum(1 << place for place, (_, name) in enumerate(classes[:MOST_NAMES]) if name in asked)
        requests = {each.name for each in claim.spec.devices.requests}
        return [each for each in self._spec(pod, pattern)[1] if each.request_name in requests]

    def _spec(self, pod: PodInfo, pattern: int) -> tuple[model.ResourceClaimSpec, Mappings]:
        """The spec of the claim that pods of this class need on nodes of a pattern, and which container uses what."""
        served, memo = self.served, pod.cls.memo
        kept: tuple[object, dict[int, tuple[model.ResourceClaimSpec, Mappings]]] | None = memo.get(self._specs)
        if kept is None or kept[0] is not served.version:
            kept = memo[self._specs] = (served.version, {})
        found = kept[1].get(pattern)
        if found is None:
            names = list(served.of(pod.cls).items())[:MOST_NAMES]
            needed = {name: each for place, (name, each) in enumerate(names) if pattern >> place & 1}
            requests, mappings = requests_of(pod.spec, needed)
            found = kept[1][pattern] = model.ResourceClaimSpec(model.DeviceClaim(requests)), mappings
        return found


def is_extended(claim: model.ResourceClaim) -> bool:
    """Whether a claim was made for extended resources."""
    return (claim.metadata.annotations or {}).get(ANNOTATION) == "true"


def is_unwritten(uid: str) -> bool:
    """Whether the claim of a UID is in memory alone."""
    return uid.startswith(UNWRITTEN)


def pod_of(claim: model.ResourceClaim) -> str:
    """The UID of the pod for whose extended resources a claim was made; "" for other claims."""
    if not is_extended(claim):
        return ""
    return next((each.uid for each in claim.metadata.owner_references if each.kind == "Pod" and each.controller), "")


# Requests


def requests_of(spec: model.PodSpec, classes: Mapping[str, str]) -> tuple[list[model.DeviceRequest], Mappings]:
    """The requests for the resources that these classes serve, by resource, and which container uses which of them.

    Containers, and sidecars (init containers that are restarted always), have requests of their own. Any other init
    container has ended before the later containers start, so it uses their devices. If these are too few, one
    additional request, which all such init containers share, has the rest.
    """
    asked: dict[str, tuple[int, str]] = {}
    mappings: Mappings = []
    for resource in sorted(classes):
        found, mapped = _requests(spec, resource)
        asked |= {name: (count, classes[resource]) for name, count in found}
        mappings += mapped
    requests = [
        model.DeviceRequest(name, model.ExactDeviceRequest(each, allocation_mode="ExactCount", count=count))
        for name, (count, each) in sorted(asked.items())
    ]
    return requests, mappings


def _requests(spec: model.PodSpec, resource: str) -> tuple[list[_Request], Mappings]:
    containers = [*spec.init_containers, *spec.containers]
    ending = [place for place, each in enumerate(spec.init_containers) if each.restart_policy != "Always"]
    own: dict[int, _Request] = {}
    mappings: Mappings = []
    for place, container in enumerate(containers):
        if place not in ending and (amount := _amount(container, resource)):
            own[place] = _name(place, container, resource), amount
            mappings.append(_mapping(container, resource, own[place][0]))
    shared: _Request | None = None
    lacking: list[tuple[model.Container, str]] = []
    for place in ending:
        container = containers[place]
        left = _amount(container, resource)
        later = (own[other] for other in sorted(own) if other > place)
        for name, count in _until(later, left):
            mappings.append(_mapping(container, resource, name))
            left -= count
        if left > 0:
            name = _name(place, container, resource)
            lacking.append((container, name))
            mappings.append(_mapping(container, resource, name))
            if shared is None or shared[1] < left:
                shared = name, left
    if shared is not None:
        names = {name for _, name in lacking}
        mappings = [_mapping_to(each, shared[0]) if each.request_name in names else each for each in mappings]
    return [*([shared] if shared is not None else []), *own.values()], mappings


def _until(requests: Iterator[_Request], amount: int) -> Iterator[_Request]:
    """The first requests that together have at least so many devices; all of them if they have fewer."""
    while amount > 0:
        found = next(requests, None)
        if found is None:
            return
        yield found
        amount -= found[1]


def _asked(container: model.Container) -> Mapping[str, Any]:
    resources = container.resources
    return {**(resources.limits or {}), **(resources.requests or {})} if resources is not None else {}


def _amount(container: model.Container, resource: str) -> int:
    """How many devices a container requests; 0 for an amount that is no whole number."""
    amount = milli(_asked(container).get(resource, 0))
    return amount // 1000 if amount % 1000 == 0 else 0


def _name(place: int, container: model.Container, resource: str) -> str:
    """The request's name: the numbers of the container and of the resource among all that the container requests."""
    return f"container-{place}-request-{sorted(_asked(container)).index(resource)}"


def _mapping(container: model.Container, resource: str, request: str) -> model.ContainerExtendedResourceRequest:
    return model.ContainerExtendedResourceRequest(container.name, resource, request)


def _mapping_to(
    mapping: model.ContainerExtendedResourceRequest, request: str
) -> model.ContainerExtendedResourceRequest:
    return model.ContainerExtendedResourceRequest(mapping.container_name, mapping.resource_name, request)


def written(mappings: Sequence[model.ContainerExtendedResourceRequest], name: str) -> dict[str, Any]:
    """The status of a pod that says which claim it has, as a patch."""
    entries = [
        {"containerName": each.container_name, "resourceName": each.resource_name, "requestName": each.request_name}
        for each in mappings
    ]
    return {"extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": entries}}
