"""NodeResourcesFit: a pod goes only where everything it asks for is free, and where a strategy likes it best."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from gangline import (
    NODE,
    PODS,
    Action,
    CodeColumn,
    Cycle,
    EventHint,
    NodeView,
    PodInfo,
    Reason,
    ScoreColumn,
    hookimpl,
    model,
    on,
    requests,
)
from gangline_plugins.resource_scoring import (
    ResourceSpec,
    ScoringStrategy,
    Strategy,
    build_strategy,
)

_UNRESOLVABLE = 1
_FIRST_RESOURCE_BIT = 1


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, named as upstream."""

    ignored_resources: list[str] = []
    """Extended resources that are not looked at."""
    ignored_resource_groups: list[str] = []
    """Prefixes (before the slash) of extended resources that are not looked at."""
    scoring_strategy: ScoringStrategy = msgspec.field(
        default_factory=lambda: ScoringStrategy(resources=[ResourceSpec("cpu"), ResourceSpec("memory")])
    )


class NodeResourcesFit:
    """Compares requests with what is free, resource by resource, over all nodes."""

    name = "NodeResourcesFit"
    reads = NODE | PODS
    args_type = Args

    def __init__(self, args: Args) -> None:
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._strategy: Strategy = build_strategy(args.scoring_strategy)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Pods that leave or shrink, nodes that come or grow."""
        return (
            on("pods", Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, self._frees_something),
            on("nodes", Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, self._holds_the_pod),
        )

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """One bit per resource that is short, and one for a request that exceeds the whole node."""
        short = np.zeros(len(nodes), dtype=np.uint64)
        for bit, (resource, amount) in enumerate(self._wanted(pod), start=_FIRST_RESOURCE_BIT):
            allocatable = nodes.allocatable(resource)
            missing = allocatable - nodes.requested(resource) < amount
            if missing.any():
                short[missing] |= np.uint64(1 << bit)
                if resource != "pods":
                    short[allocatable < amount] |= np.uint64(_UNRESOLVABLE)
        return short

    def explain(self, cycle: Cycle, pod: PodInfo, code: int) -> Sequence[Reason]:
        """The resources that are short."""
        resolvable = not code & _UNRESOLVABLE
        return tuple(
            Reason("Too many pods" if resource == "pods" else f"Insufficient {resource}", resolvable)
            for bit, (resource, _) in enumerate(self._wanted(pod), start=_FIRST_RESOURCE_BIT)
            if code >> bit & 1
        )

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """The strategy's score of each node with the pod on it."""
        return self._strategy(pod.cls.requests.scoring, nodes)

    def _wanted(self, pod: PodInfo) -> tuple[tuple[str, int], ...]:
        found: tuple[tuple[str, int], ...] | None = pod.cls.memo.get(self)
        if found is None:
            found = pod.cls.memo[self] = (
                ("pods", 1),
                *((r, amount) for r, amount in pod.cls.requests.real.items() if not self._is_ignored(r)),
            )
        return found

    def _is_ignored(self, resource: str) -> bool:
        return "/" in resource and (resource in self._ignored or resource.split("/", 1)[0] in self._ignored_groups)

    def _frees_something(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
        """Whether a pod that left or shrank had anything that the waiting pod asks for; a pod's slot always counts."""
        if old is None or new is None:
            return True
        before, after = old.cls.requests.real, new.cls.requests.real
        return any(before.get(r, 0) > after.get(r, 0) for r, _ in self._wanted(pod))

    def _holds_the_pod(self, pod: PodInfo, old: object, new: model.Node) -> bool:
        """Whether the node, if it were empty, would be large enough."""
        allocatable = requests.allocatable(new.status.allocatable, "status.allocatable")
        return all(allocatable.get(resource, 0) >= amount for resource, amount in self._wanted(pod))
