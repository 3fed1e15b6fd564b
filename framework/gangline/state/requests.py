"""The requests of a pod: the sum over its containers as kube-scheduler counts it.

Containers are added up. An init container counts by maximum, together with the sidecars (restartable init containers)
started before it. Pod-level resources replace the sum, each resource separately. Overhead is added. Source:
k8s.io/component-helpers/resource (v1.36), described in its comments.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

import msgspec

from gangline import quantity
from gangline.errors import InvalidQuantity
from gangline.model import Container, ContainerStatus, PodSpec, PodStatus, Quantity, Resources

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
DEFAULT_MILLI_CPU = 100
DEFAULT_MEMORY = 200 * 1024 * 1024
"""Counted in scores for each container without a request, so that such pods do not all go to one node."""
MAX_REQUEST = 2**50
"""A larger request is reduced to this, so that sums over all pods counted on a node stay within 64 bits."""
MAX_ALLOCATABLE = 2**56
"""A larger allocatable amount is reduced to this."""

Milli = dict[str, int]
"""Resource name to thousandths."""
_DEFAULTS: Mapping[str, int] = {CPU: DEFAULT_MILLI_CPU, MEMORY: DEFAULT_MEMORY * 1000}


class Requests(msgspec.Struct, frozen=True):
    """A pod's requests; cpu in milli-CPU, everything else in whole units."""

    real: Mapping[str, int]
    """The requests; they decide whether the pod fits."""
    nonzero: tuple[int, int]
    """cpu in milli-CPU and memory in bytes, with defaults for containers without a request; summed per node for scores.
    In a pod with pod-level requests, a resource gets defaults only if nothing in the pod requests the resource."""
    scoring: Mapping[str, int]
    """The containers' requests with all defaults, plus overhead, without pod-level requests; for NodeResourcesFit's
    score."""


def compute(spec: PodSpec, status: PodStatus | None = None) -> Requests:
    """The requests of a pod; the status matters for a running pod (in-place resize).

    Raises InvalidQuantity with the path of the value.
    """
    statuses: dict[str, ContainerStatus] = {}
    infeasible = False
    if status is not None:
        statuses = {
            entry.name: entry
            for entry in (*status.container_statuses, *status.init_container_statuses)
            if entry.resources is not None
        }
        infeasible = is_resize_infeasible(status)
    asked = _containers(spec, statuses, infeasible, {})
    padded = _containers(spec, statuses, infeasible, _DEFAULTS)
    pod_level = _pod_level(spec, status, infeasible)
    overhead = _parse(spec.overhead, "spec.overhead")
    real = _sum({**asked, **pod_level}, overhead)
    scoring = _round(_sum(padded, overhead))
    # A pod with pod-level requests gets defaults only for resources that pod, containers and overhead do not request.
    filled = {name: padded[name] for name in _DEFAULTS if name in padded and not (pod_level and name in real)}
    nonzero = _round(_sum({**asked, **filled, **pod_level}, overhead))
    return Requests(
        real={name: amount for name, amount in _round(real).items() if amount},
        nonzero=(nonzero.get(CPU, 0), nonzero.get(MEMORY, 0)),
        scoring=scoring,
    )


def is_resize_infeasible(status: PodStatus) -> bool:
    """Whether the kubelet has said that the node can never give the pod what it requests now."""
    for condition in status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def allocatable(resources: Resources | None, path: str) -> dict[str, int]:
    """A node's resources; cpu in milli-CPU. Raises InvalidQuantity, also for a negative amount."""
    if resources and {*map(type, resources.values())} == {str}:  # a number may equal another one that is read otherwise
        with suppress(InvalidQuantity):
            return dict(_alike(tuple(resources.items())))
    return _round(_parse(resources, path), limit=MAX_ALLOCATABLE)  # raises with the path


@lru_cache(maxsize=256)
def _alike(resources: tuple[tuple[str, Quantity], ...]) -> Mapping[str, int]:
    """As `allocatable`, for texts: most nodes offer just what another one does."""
    return _round(_parse(dict(resources), ""), limit=MAX_ALLOCATABLE)


def _containers(
    spec: PodSpec, statuses: Mapping[str, ContainerStatus], infeasible: bool, defaults: Mapping[str, int]
) -> Milli:
    """What all containers request at once; defaults replace the missing requests of a container."""
    total: Milli = {}
    for i, container in enumerate(spec.containers):
        path = f"spec.containers[{i}]"
        _add(total, {**defaults, **_container(container, statuses.get(container.name), infeasible, path)})
    sidecars: Milli = {}
    peak: Milli = {}
    for i, container in enumerate(spec.init_containers):
        is_sidecar = container.restart_policy == "Always"
        status = statuses.get(container.name) if is_sidecar else None  # no other init container can be resized
        wanted = {**defaults, **_container(container, status, infeasible, f"spec.initContainers[{i}]")}
        if is_sidecar:
            _add(total, wanted)
            _add(sidecars, wanted)
            wanted = dict(sidecars)
        else:
            _add(wanted, sidecars)
        _maximum(peak, wanted)
    _maximum(total, peak)
    return total


def _container(container: Container, status: ContainerStatus | None, infeasible: bool, path: str) -> Milli:
    resources = container.resources
    requests = _parse(resources.requests if resources else None, f"{path}.resources.requests")
    if resources and resources.limits:
        limits = _parse(resources.limits, f"{path}.resources.limits")
        requests = {**limits, **requests}
    if status is None:
        return requests
    running = _parse(status.resources.requests if status.resources else None, "status")
    _maximum(running, _parse(status.allocated_resources, "status"))
    if not infeasible:
        _maximum(running, requests)
    return running


def _pod_level(spec: PodSpec, status: PodStatus | None, infeasible: bool) -> Milli:
    """The requests of the pod as a whole; only resources that can be requested at pod level count."""
    if spec.resources is None:
        return {}
    requests = _parse(spec.resources.requests, "spec.resources.requests")
    limits = _parse(spec.resources.limits, "spec.resources.limits")
    if limits:  # the API server fills these requests in; a pod from a file may lack them
        containers = _containers(spec, {}, False, {})
        asked = {name: containers[name] for name in (CPU, MEMORY) if name in containers}
        requests = {**limits, **asked, **requests}
    running = requests
    if status is not None and status.resources is not None:
        running = _parse(status.resources.requests, "status.resources.requests")
        _maximum(running, _parse(status.allocated_resources, "status.allocatedResources"))
        if not infeasible:
            _maximum(running, requests)
    return {name: running.get(name, 0) for name in requests if _is_for_pods(name)}


def _is_for_pods(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _parse(resources: Resources | None, path: str) -> Milli:
    parsed: Milli = {}
    for name, value in (resources or {}).items():
        try:
            parsed[name] = quantity.milli(value)
        except InvalidQuantity as error:
            raise InvalidQuantity(f"{path}[{name}]", value, error.why) from None
        if parsed[name] < 0:
            raise InvalidQuantity(f"{path}[{name}]", value, "must not be negative")
    return parsed


def _sum(amounts: Mapping[str, int], more: Mapping[str, int]) -> Milli:
    total = dict(amounts)
    _add(total, more)
    return total


def _add(total: Milli, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _maximum(total: Milli, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > total.get(name, 0) or name not in total:
            total[name] = amount


def _round(amounts: Mapping[str, int], limit: int = MAX_REQUEST) -> dict[str, int]:
    return {name: min(limit, amount if name == CPU else quantity.whole(amount)) for name, amount in amounts.items()}
