"""What a pod asks for: the sum over its containers as kube-scheduler counts it.

Containers add up; an init container counts by maximum together with the sidecars (restartable init
containers) started before it; pod-level resources replace the sum where they are given; overhead is added.
Source: k8s.io/component-helpers/resource (v1.36), described in its comments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gangline import quantity
from gangline.errors import InvalidQuantity
from gangline.model import Container, ContainerStatus, PodSpec, PodStatus, Resources

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = "cpu", "memory", "ephemeral-storage", "pods"
DEFAULT_MILLI_CPU = 100
DEFAULT_MEMORY = 200 * 1024 * 1024
"""Counted in scores for each container that names no request, so that such pods do not pile up on one node."""
MAX_REQUEST = 2**52
"""A larger request is cut to this: sums over all the pods of a node stay within 64 bits."""
MAX_ALLOCATABLE = 2**56
"""A larger amount on a node is cut to this."""

Milli = dict[str, int]
"""Resource name to thousandths."""


@dataclass(frozen=True, slots=True)
class Requests:
    """A pod's requests; cpu in milli-CPU, everything else in whole units."""

    real: Mapping[str, int]
    """What is asked for; decides whether the pod fits."""
    nonzero: tuple[int, int]
    """cpu and memory with defaults for containers that name none; kept per node for scoring."""
    scoring: Mapping[str, int]
    """Like ``real`` with those defaults and without pod-level resources; what NodeResourcesFit scores."""


def compute(spec: PodSpec, status: PodStatus | None = None) -> Requests:
    """The requests of a pod; status matters for a pod that runs (in-place resize).

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
        infeasible = any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions)
    real = _containers(spec, statuses, infeasible, defaults=None)
    defaults = {CPU: DEFAULT_MILLI_CPU, MEMORY: DEFAULT_MEMORY * 1000}
    scoring = _containers(spec, statuses, infeasible, defaults)
    nonzero = dict(scoring)
    pod_level = _pod_level(spec, status, infeasible, real)
    overhead = _parse(spec.overhead, "spec.overhead")
    for sums in (real, nonzero):
        sums.update(pod_level)
    for sums in (real, nonzero, scoring):
        _add(sums, overhead)
    rounded = _round(nonzero)
    return Requests(
        real={name: amount for name, amount in _round(real).items() if amount},
        nonzero=(rounded.get(CPU, 0), rounded.get(MEMORY, 0)),
        scoring=_round(scoring),
    )


def allocatable(resources: Resources | None, path: str) -> dict[str, int]:
    """A node's resources; cpu in milli-CPU. Raises InvalidQuantity, also for a negative amount."""
    return _round(_parse(resources, path), limit=MAX_ALLOCATABLE)


def _containers(
    spec: PodSpec,
    statuses: Mapping[str, ContainerStatus],
    infeasible: bool,
    defaults: Milli | None,
) -> Milli:
    def wanted(container: Container, path: str) -> Milli:
        requests = _container(container, statuses.get(container.name), infeasible, path)
        return {**defaults, **requests} if defaults is not None else requests

    total: Milli = {}
    for i, container in enumerate(spec.containers):
        _add(total, wanted(container, f"spec.containers[{i}]"))
    sidecars: Milli = {}
    peak: Milli = {}
    for i, container in enumerate(spec.init_containers):
        requests = wanted(container, f"spec.initContainers[{i}]")
        if container.restart_policy == "Always":
            _add(total, requests)
            _add(sidecars, requests)
            requests = dict(sidecars)
        else:
            _add(requests, sidecars)
        _maximum(peak, requests)
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


def _pod_level(spec: PodSpec, status: PodStatus | None, infeasible: bool, containers: Milli) -> Milli:
    if spec.resources is None:
        return {}
    requests = _parse(spec.resources.requests, "spec.resources.requests")
    for name, limit in _parse(spec.resources.limits, "spec.resources.limits").items():
        if name not in requests and (name not in containers or name.startswith("hugepages-")):
            requests[name] = limit  # an API server's default, should the pod not have been through one
    if status is not None and status.resources is not None:
        running = _parse(status.resources.requests, "status.resources.requests")
        _maximum(running, _parse(status.allocated_resources, "status.allocatedResources"))
        if not infeasible:
            _maximum(running, requests)
        requests = running
    return {name: amount for name, amount in requests.items() if name in (CPU, MEMORY) or name.startswith("hugepages-")}


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


def _add(total: Milli, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _maximum(total: Milli, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > total.get(name, 0) or name not in total:
            total[name] = amount


def _round(amounts: Mapping[str, int], limit: int = MAX_REQUEST) -> dict[str, int]:
    return {name: min(limit, amount if name == CPU else quantity.whole(amount)) for name, amount in amounts.items()}
