"""NodeResourcesFit: rejects nodes without room for all requests of a pod, and scores the others by a strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from operator import ge

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import (
    NODE,
    SPECS,
    Action,
    CodeColumn,
    Cycle,
    EventHint,
    Handle,
    NodeView,
    PodInfo,
    Reason,
    ScoreColumn,
    hookimpl,
    memo_key,
    model,
    on,
    requests,
)
from gangline_plugins.extended_resources import ExtendedResources
from gangline_plugins.resource_amounts import amounts_of
from gangline_plugins.resource_scoring import (
    ResourceSpec,
    ScoringStrategy,
    Strategy,
    build_strategy,
)

_FEW = 64
"""For at most this many nodes all resources are compared together, which takes fewer calls."""
_UNRESOLVABLE = 1
"""The bit for a request that exceeds the whole node; the bits above it stand for resources."""


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, named as upstream."""

    ignored_resources: list[str] = []
    """Extended resources that the filter ignores."""
    ignored_resource_groups: list[str] = []
    """Groups (the part before the slash) of extended resources that the filter ignores."""
    scoring_strategy: ScoringStrategy = msgspec.field(
        default_factory=lambda: ScoringStrategy(resources=[ResourceSpec("cpu"), ResourceSpec("memory")])
    )


class _Wanted(msgspec.Struct, frozen=True, eq=False):
    """What a pod class asks for, a slot for the pod itself first: names, amounts and verdict bits, one row each. A
    struct is made in a sixth of the time of a dataclass.
    """

    resources: tuple[str, ...]
    numbers: tuple[int, ...]
    """The amounts as plain numbers."""
    amounts: NDArray[np.int64]
    """The amounts, one row each."""
    bits: NDArray[np.unsignedinteger]
    fits: CodeColumn
    """The verdict on one node with room for everything."""
    served: NDArray[np.bool_] | None
    """Which of them a DeviceClass serves, on nodes without a device plugin for it; None if none is."""
    version: object
    """The version of the classes that was read."""

    def items(self) -> Iterator[tuple[str, int]]:
        """Names and amounts."""
        return zip(self.resources, self.numbers, strict=True)


@cache
def _bits(count: int) -> tuple[NDArray[np.unsignedinteger], CodeColumn]:
    """The verdict bits of so many resources, one row each, and the verdict on one node with room for everything."""
    kind: type[np.unsignedinteger] = np.uint8 if count < 8 else np.uint64
    bits, fits = np.array([1 << bit for bit in range(1, count + 1)], dtype=kind)[:, None], np.zeros(1, dtype=kind)
    bits.flags.writeable = fits.flags.writeable = False
    return bits, fits


def _short_by_resource(wanted: _Wanted, nodes: NodeView) -> CodeColumn:
    """The verdicts for many nodes: one resource after the other, so that no amounts are copied."""
    short = np.zeros(len(nodes), dtype=wanted.bits.dtype)
    for place, (resource, amount) in enumerate(wanted.items()):
        missing = nodes.free(resource) < amount
        if np.count_nonzero(missing):  # in a third of the time of any()
            allocatable = nodes.allocatable(resource)
            if wanted.served is not None and wanted.served[place, 0]:
                missing &= allocatable > 0
            short |= missing * wanted.bits[place]
            if resource != "pods":
                short |= (missing & (allocatable < amount)).astype(short.dtype)
    return short


def _short_of_few(wanted: _Wanted, nodes: NodeView) -> CodeColumn:
    """The verdicts for a few nodes: of all resources at once."""
    amounts = wanted.amounts
    missing = nodes.free_of(wanted.resources) < amounts
    if not np.count_nonzero(missing):
        return np.zeros(len(nodes), dtype=wanted.bits.dtype)
    allocatable = nodes.allocatable_of(wanted.resources)
    if wanted.served is not None:
        missing &= ~wanted.served | (allocatable > 0)
    short: CodeColumn = wanted.bits[:, 0].dot(missing.astype(wanted.bits.dtype))
    too_large = allocatable[1:] < amounts[1:]  # a full slot count can change, a size cannot
    if np.count_nonzero(too_large):
        short |= np.logical_or.reduce(missing[1:] & too_large, axis=0)
    return short


def _short_of_one(wanted: _Wanted, nodes: NodeView) -> int:
    """The verdict for the only node of the view."""
    free = nodes.free_of_one(wanted.resources)
    if all(map(ge, free, wanted.numbers)):
        return 0
    whole, _ = nodes.amounts_of_one(wanted.resources)
    short = 0
    for place, (resource, amount) in enumerate(wanted.items()):
        if free[place] >= amount or (wanted.served is not None and wanted.served[place, 0] and whole[place] <= 0):
            continue
        short |= 2 << place
        if resource != "pods" and whole[place] < amount:  # a full slot count can change, a size cannot
            short |= _UNRESOLVABLE
    return short


class NodeResourcesFit:
    """Compares requests with free amounts, resource by resource, for all nodes at once."""

    name = "NodeResourcesFit"
    reads = NODE | SPECS
    args_type = Args

    def __init__(self, args: Args, handle: Handle) -> None:
        self._ignored = frozenset(handle.ignored_resources or args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._memo = memo_key(NodeResourcesFit, self._ignored, self._ignored_groups, handle.profile)
        self._extended = handle.state.shared(ExtendedResources, handle.state)
        self._profile = handle.profile
        counted = [each.name for each in args.scoring_strategy.resources]
        amounts, self.reads_own = amounts_of(handle, counted)
        self._strategy: Strategy = build_strategy(args.scoring_strategy, amounts, self.reads_own)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Pods that leave or shrink, nodes that come or grow."""
        return (
            on("pods", Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, self._frees_something),
            on("nodes", Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, self._holds_the_pod),
            on("deviceclasses", Action.ADD | Action.UPDATE, self._serves_the_pod),
        )

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """One bit per resource that is insufficient, and one bit for a request that exceeds the whole node."""
        wanted = self._wanted(pod)
        if len(nodes) > _FEW:
            return _short_by_resource(wanted, nodes)
        if len(nodes) == 1:
            short_of_one = _short_of_one(wanted, nodes)
            return np.array((short_of_one,), dtype=wanted.bits.dtype) if short_of_one else wanted.fits
        return _short_of_few(wanted, nodes)

    def explain(self, cycle: Cycle, pod: PodInfo, code: int) -> Sequence[Reason]:
        """The insufficient resources."""
        resolvable = not code & _UNRESOLVABLE
        return tuple(
            Reason("Too many pods" if resource == "pods" else f"Insufficient {resource}", resolvable)
            for resource, bit in zip(self._wanted(pod).resources, self._wanted(pod).bits.flat, strict=True)
            if code & int(bit)
        )

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """The strategy's score of each node with the pod on it."""
        return self._strategy(pod.cls, nodes)

    def _wanted(self, pod: PodInfo) -> _Wanted:
        found: _Wanted | None = pod.cls.memo.get(self._memo)
        if found is None or found.version is not self._extended.version:
            real = pod.cls.requests.real
            counted = {"pods": 1, **{r: amount for r, amount in real.items() if not self._is_ignored(r)}}
            bits, fits = _bits(len(counted))
            served = self._extended.of(pod.cls) if self._extended.are_given_out_in(self._profile) else {}
            found = pod.cls.memo[self._memo] = _Wanted(
                tuple(counted),
                tuple(counted.values()),
                np.array([*counted.values()], dtype=np.int64)[:, None],
                bits,
                fits,
                np.array([name in served for name in counted])[:, None] if served else None,
                self._extended.version,
            )
        return found

    def _is_ignored(self, resource: str) -> bool:
        return "/" in resource and (resource in self._ignored or resource.split("/", 1)[0] in self._ignored_groups)

    def _frees_something(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
        """Whether a pod that left or shrank had anything that the waiting pod asks for; a pod's slot always counts."""
        if old is None or new is None:
            return True
        before, after = old.cls.requests.real, new.cls.requests.real
        return any(before.get(r, 0) > after.get(r, 0) for r in self._wanted(pod).resources)

    def _holds_the_pod(self, pod: PodInfo, old: object, new: model.Node) -> bool:
        """Whether the node, if it were empty, would be large enough."""
        allocatable = requests.allocatable(new.status.allocatable, "status.allocatable")
        wanted = self._wanted(pod)
        served = [False] * len(wanted.resources) if wanted.served is None else wanted.served.flat
        return all(
            allocatable.get(resource, 0) >= amount or (by_class and not allocatable.get(resource, 0))
            for (resource, amount), by_class in zip(wanted.items(), served, strict=True)
        )

    def _serves_the_pod(self, pod: PodInfo, old: object, new: object) -> bool:
        """Whether some class serves what the pod asks for."""
        return bool(self._extended.of(pod.cls))
