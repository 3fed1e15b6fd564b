"""The spread constraints of a pod: its own, compiled once per class, or the profile's defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from gangline import (
    EVERYTHING,
    BoundedCache,
    InvalidObject,
    PodInfo,
    Selector,
    State,
    compile_selector,
    from_map,
    model,
    resources,
)
from gangline_plugins.counting.counts import Clause, Query, SelectorIndex, derived

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
_REMEMBERED_BYTES = 8 * 1024 * 1024
"""Memory for thousands of constraints derived from services and controllers, and as much again for the services'
selectors.
"""
_LABEL_NAME = re.compile(
    r"(?=[^/]{1,253}/|[^/]+$)([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_Requirement = tuple[str, str, frozenset[str]]


class DefaultConstraint(model.TopologySpreadConstraint, forbid_unknown_fields=True):
    """A constraint for pods that have none; its selector is derived from the pod's services and controller."""


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, named as upstream."""

    default_constraints: list[DefaultConstraint] = []
    """Constraints of pods that have none; only with defaultingType List."""
    defaulting_type: Literal["System", "List"] = "System"
    """System: spread softly over hosts (maxSkew 3) and zones (maxSkew 5). List: use defaultConstraints."""

    def __post_init__(self) -> None:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultingType must be List when defaultConstraints are given")
        seen = set()
        for i, constraint in enumerate(self.default_constraints):
            _check(constraint, f"defaultConstraints[{i}]")
            key = (constraint.topology_key, constraint.when_unsatisfiable)
            if key in seen:
                raise ValueError(f"defaultConstraints[{i}]: duplicate of {', '.join(key)}")
            seen.add(key)


def _check(constraint: DefaultConstraint, path: str) -> None:
    if constraint.max_skew <= 0:
        raise ValueError(f"{path}.maxSkew: {constraint.max_skew}: must be greater than 0")
    if not _LABEL_NAME.fullmatch(constraint.topology_key):
        raise ValueError(f"{path}.topologyKey: {constraint.topology_key!r}: must be the name of a label")
    if constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        raise ValueError(
            f"{path}.whenUnsatisfiable: {constraint.when_unsatisfiable!r}: must be DoNotSchedule or ScheduleAnyway"
        )
    if constraint.label_selector is not None:
        raise ValueError(f"{path}.labelSelector: must not be set; it follows from each pod")


class Constraint(msgspec.Struct, frozen=True):
    """One constraint, ready to be counted."""

    max_skew: int
    topology_key: str
    selector: Selector
    query: Query | None
    """The pods that count; None if none can."""
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


class SpreadConstraints(msgspec.Struct, frozen=True):
    """The constraints of one pod."""

    hard: tuple[Constraint, ...] = ()
    soft: tuple[Constraint, ...] = ()
    needs_all_keys: bool = True
    """Whether nodes that lack a key of a soft constraint are left out of scoring."""
    error: str = ""
    """Why the constraints are invalid; there are no constraints then."""


_NONE = SpreadConstraints()


class PodConstraints:
    """The constraints of every pod of a profile."""

    def __init__(self, args: Args, state: State) -> None:
        self._is_system = args.defaulting_type == "System"
        self._defaults: Sequence[model.TopologySpreadConstraint] = args.default_constraints
        if self._is_system:
            self._defaults = (
                model.TopologySpreadConstraint(3, HOSTNAME, "ScheduleAnyway"),
                model.TopologySpreadConstraint(5, ZONE, "ScheduleAnyway"),
            )
        self.has_hard_defaults = any(c.when_unsatisfiable == "DoNotSchedule" for c in self._defaults)
        self._selectors = DefaultSelectors(state)
        self._built: BoundedCache[tuple[str, Selector], SpreadConstraints] = BoundedCache(_REMEMBERED_BYTES)

    @property
    def version(self) -> int:
        """Grows with each change of an object from which the selectors of default constraints are derived."""
        return self._selectors.version

    def hard(self, pod: PodInfo) -> SpreadConstraints:
        """As `of`, without the defaults if none of them is hard."""
        if pod.spec.topology_spread_constraints or self.has_hard_defaults:
            return self.of(pod)
        return _NONE

    def of(self, pod: PodInfo) -> SpreadConstraints:
        """The constraints of a pod, its own or the defaults."""
        if pod.spec.topology_spread_constraints:
            return derived(pod, SpreadConstraints, _reads_labels, _compile)
        if not self._defaults:
            return _NONE
        selector = self._selectors.of(pod)
        if selector.is_empty:
            return _NONE
        key = (pod.namespace, selector)
        found = self._built.get(key)
        if found is None:
            found = self._built.put(key, self._build(pod.namespace, selector))
        return found

    def _build(self, namespace: str, selector: Selector) -> SpreadConstraints:
        built = [(c.when_unsatisfiable, _constraint(c, namespace, selector)) for c in self._defaults]
        return _split(built, needs_all_keys=not self._is_system)


class DefaultSelectors:
    """The selector of default constraints: the combined selectors of the pod's services and its controller."""

    def __init__(self, state: State) -> None:
        self._services = state.store(resources.SERVICES)
        self._controllers: Mapping[tuple[str, str], Any] = {
            ("v1", "ReplicationController"): state.store(resources.REPLICATION_CONTROLLERS),
            ("apps/v1", "ReplicaSet"): state.store(resources.REPLICA_SETS),
            ("apps/v1", "StatefulSet"): state.store(resources.STATEFUL_SETS),
        }
        self._version = -1
        self._by_namespace: dict[str, SelectorIndex[Selector]] = {}
        self._of_services: BoundedCache[tuple[str, int], frozenset[_Requirement]] = BoundedCache(_REMEMBERED_BYTES)

    @property
    def version(self) -> int:
        """Grows with each change of a service or a controller."""
        version: int = self._services.version
        for store in self._controllers.values():
            version += store.version
        return version

    def of(self, pod: PodInfo) -> Selector:
        """The selector; an empty one if no service or controller selects the pod."""
        requirements = self._service_requirements(pod)
        owner = pod.controller
        store = self._controllers.get((owner.api_version, owner.kind)) if owner else None
        controller = store.get(owner.name, pod.namespace) if store is not None and owner else None
        if controller is None:
            return EVERYTHING.with_requirements(*requirements) if requirements else EVERYTHING
        if isinstance(controller, model.ReplicationController):
            selected = from_map(controller.spec.selector).requirements or ()
            keys = {key for key, _, _ in selected}
            requirements = frozenset(r for r in requirements if r[0] not in keys)
        else:
            selected = _workload_requirements(controller.spec)
        return EVERYTHING.with_requirements(*requirements, *selected)

    def _service_requirements(self, pod: PodInfo) -> frozenset[_Requirement]:
        """The requirements of all services that select the pod, cached by its labels until a service changes."""
        if self._version != self._services.version:
            self._read_services()
        services = self._by_namespace.get(pod.namespace)
        if services is None:
            return frozenset()
        key = (pod.namespace, pod.labels.id)
        found = self._of_services.get(key)
        if found is None:
            matching = [s for s in services.candidates(pod.labels) if s.matches(pod.labels)]
            found = self._of_services.put(key, frozenset(r for s in matching for r in s.requirements or ()))
        return found

    def _read_services(self) -> None:
        self._version = self._services.version
        self._of_services.clear()
        self._by_namespace.clear()
        for service in self._services:  # once per change of a service
            selector = from_map(service.spec.selector)
            self._by_namespace.setdefault(service.metadata.namespace, SelectorIndex()).add(selector, selector)


def _workload_requirements(spec: model.WorkloadSpec) -> tuple[_Requirement, ...]:
    try:
        return compile_selector(spec.selector).requirements or ()
    except InvalidObject:
        return ()  # as upstream: a controller whose selector cannot be read selects nothing


def _compile(pod: PodInfo) -> SpreadConstraints:
    built = []
    for i, constraint in enumerate(pod.spec.topology_spread_constraints):
        path = f"spec.topologySpreadConstraints[{i}].labelSelector"
        try:
            selector = compile_selector(constraint.label_selector, path)
        except InvalidObject as error:
            return SpreadConstraints(error=str(error))
        extra = [(key, "In", frozenset((pod.labels[key],))) for key in constraint.match_label_keys if key in pod.labels]
        if extra:
            selector = selector.with_requirements(*extra)
        built.append((constraint.when_unsatisfiable, _constraint(constraint, pod.namespace, selector)))
    return _split(built, needs_all_keys=True)


def _constraint(constraint: model.TopologySpreadConstraint, namespace: str, selector: Selector) -> Constraint:
    countable = bool(selector.requirements)  # an empty selector counts no pod, though every pod matches it
    query = Query((Clause(selector, frozenset((namespace,))),), terminating=False) if countable else None
    return Constraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        selector=selector,
        query=query,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honors_affinity=constraint.node_affinity_policy in (None, "Honor"),
        honors_taints=constraint.node_taints_policy == "Honor",
    )


def _split(built: Sequence[tuple[str, Constraint]], needs_all_keys: bool) -> SpreadConstraints:
    return SpreadConstraints(
        hard=tuple(c for action, c in built if action == "DoNotSchedule"),
        soft=tuple(c for action, c in built if action == "ScheduleAnyway"),
        needs_all_keys=needs_all_keys,
    )


def _reads_labels(pod: PodInfo) -> bool:
    return any(constraint.match_label_keys for constraint in pod.spec.topology_spread_constraints)
