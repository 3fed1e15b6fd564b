"""TopologyAnnotations: preferred domains, bandwidth, latency, GPU types and placement strategy, as workloads ask for
them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import (
    SKIP,
    Action,
    BoolColumn,
    CodeColumn,
    Cycle,
    Domains,
    EventHint,
    GroupAttempt,
    Handle,
    NodeView,
    Placement,
    PodInfo,
    Reason,
    Rows,
    ScoreColumn,
    StateKey,
    Status,
    codes,
    custom_resources,
    gpus_of,
    hookimpl,
    on,
    resources,
    unschedulable,
)
from gangline_plugins.latest import Latest
from gangline_plugins.leaf_spine.configured import configured
from gangline_plugins.topology_annotations.closeness import closeness, compactness, spread
from gangline_plugins.topology_annotations.gpu_types import GpuTypes, WantedTypes, selected_types
from gangline_plugins.topology_annotations.networks import UNKNOWN, Networks
from gangline_plugins.topology_annotations.siblings import Siblings
from gangline_plugins.topology_annotations.wishes import (
    GPU_COUNT,
    KEYS,
    NO_WISHES,
    PREFERRED_DOMAIN,
    Wishes,
    count_of,
    invalid,
    read,
)

WISHES: StateKey[Wishes] = StateKey("TopologyAnnotations wishes")
TYPES: StateKey[WantedTypes] = StateKey("TopologyAnnotations types")
_TOLD = 4096
"""At most this many pods whose reported errors are remembered."""
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _JudgedGroup:
    """The wishes of one group, with the columns by which placements are scored; one value per row."""

    attempt: GroupAttempt
    wishes: Wishes
    levels: Sequence[Domains]
    preferred: BoolColumn | None
    quickness: Values | None

    def score(self, rows: Rows) -> float:
        """The mean score of the wishes for a set of nodes, 0 to 100."""
        parts = list[float]()
        if self.preferred is not None:
            parts.append(float(self.preferred[rows].mean()))
        if self.quickness is not None:
            parts.append((float(self.quickness[rows].mean()) + compactness(rows, self.levels)) / 2)
        if self.wishes.strategy == "consolidated":
            parts.append(compactness(rows, self.levels))
        elif self.wishes.strategy == "distributed":
            parts.append(spread(rows, self.levels))
        return 100.0 * sum(parts) / len(parts) if parts else 0.0


class TopologyAnnotations:
    """Filters by bandwidth and type of GPU; scores nodes for single pods, and placements for groups."""

    name = "TopologyAnnotations"
    reasons = (
        Reason("node(s) had less network bandwidth than the workload asks for", resolvable=False),
        Reason("node(s) had no known network bandwidth", resolvable=False),
        Reason("node(s) were in domains that do not offer the GPU type that the pod names", resolvable=False),
        Reason("node(s) had another GPU type than the pod names", resolvable=False),
        Reason("node(s) had no known GPU type", resolvable=False),
    )

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._configured = configured(handle)
        self.watches = (resources.GPU_NODE_STATUSES, *self._configured.watches)
        self._networks = Networks(handle, self._configured)
        self._types = GpuTypes(handle, self._configured)
        self._siblings = handle.state.tracker(Siblings)
        self._errors = handle.metric("topology_scheduler_errors", "Annotations that cannot be read.", ("type",))
        self._told: Latest[str, tuple[str, ...]] = Latest(_TOLD)
        self._judged: _JudgedGroup | None = None
        self._masks: tuple[list[Domains], dict[str, BoolColumn]] = ([], {})

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Changes of nodes, agents' reports and configured domains: they determine bandwidths and types of GPUs."""
        return (
            on("nodes", Action.ADD | Action.UPDATE_NODE_LABEL),
            on("gpunodestatuses", Action.ADD | Action.UPDATE, _has_other_adapters),
            *self._configured.events(),
        )

    @hookimpl
    def pre_cycle(self, pod: PodInfo) -> None:
        """Bring the configuration of domains up to date; tell of annotations that cannot be read."""
        self._configured.refresh()
        if not pod.node_name:  # a what-if about a running pod tells nothing
            self._tell(pod)

    @hookimpl
    def pre_cycle_all(self, pods: Sequence[PodInfo]) -> None:
        """As `pre_cycle` for each."""
        self._configured.refresh()
        for pod in pods:
            if (pod.annotations or pod.owners) and not pod.node_name:
                self._tell(pod)

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo) -> Status | None:
        """Read the annotations of the pod and its owners; pods without wishes skip the plugin."""
        wishes, selected = self._wishes(pod), selected_types(pod) if self._types.are_listed else ()
        if wishes is NO_WISHES and not selected:
            return SKIP
        types = WantedTypes(wishes.gpu_types, selected)
        cycle.write(WISHES, wishes)
        cycle.write(TYPES, types)
        if why := self._types.why_nowhere(types, self._handle.nodes):
            return unschedulable(why, resolvable=False)
        return None if wishes.gbps or types else SKIP

    @hookimpl
    def filter(self, cycle: Cycle, nodes: NodeView) -> CodeColumn:
        """Nodes with a slow or unknown network, or a different or unknown type of GPU."""
        least, types = cycle.read(WISHES).gbps, cycle.read(TYPES)
        gbps = self._networks.gbps(nodes) if least else np.ones(len(nodes), dtype=np.int64)
        is_slow = (gbps != UNKNOWN) & (gbps < least)
        return codes(is_slow, gbps == UNKNOWN, self._types.lacking(types, nodes), *self._types.others(types, nodes))

    @hookimpl
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        """The wishes of the pod and its owners."""
        wishes = read(annotations)[0] if annotations else NO_WISHES
        return None if wishes is NO_WISHES else wishes

    @hookimpl
    def identity_all(
        self, pods: Sequence[PodInfo], annotations: Sequence[Mapping[str, str]]
    ) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        has_none = all(map(KEYS.isdisjoint, annotations))
        return None if has_none else list(map(self.identity, pods, annotations))

    @hookimpl
    def pre_score(self, cycle: Cycle, pod: PodInfo) -> Status | None:
        """Skip the score unless the pod's wishes make some nodes better than others."""
        wishes = cycle.get(WISHES) or NO_WISHES
        siblings = bool(self._siblings.of(pod)) and wishes.strategy != "balanced"
        return None if wishes.preferred_domain or wishes.latency_sensitive or siblings else SKIP

    @hookimpl
    def score(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """The mean score of the wishes for a node, 0 to 100."""
        wishes, parts = cycle.read(WISHES), list[Values]()
        near = self._near(pod, nodes)
        if wishes.preferred_domain:
            parts.append(self._preferred(wishes.preferred_domain)[nodes.index].astype(np.float64))
        if wishes.latency_sensitive:
            parts.append((self._quickness(nodes) + near) / 2)
        if wishes.strategy == "consolidated":
            parts.append(near)
        elif wishes.strategy == "distributed":
            parts.append(1.0 - near)
        return 100.0 * np.mean(parts, axis=0)

    @hookimpl
    def placement_score(self, attempt: GroupAttempt, placement: Placement, nodes: NodeView) -> float:
        """The mean score of the group's wishes for a set of nodes, 0 to 100; 0 for all sets without wishes."""
        judged = self._judged
        if judged is None or judged.attempt is not attempt:
            judged = self._judged = self._judge(attempt, nodes)
        return judged.score(placement.rows) if judged.wishes is not NO_WISHES else 0.0

    def _judge(self, attempt: GroupAttempt, nodes: NodeView) -> _JudgedGroup:
        wishes = self._wishes(attempt.first)
        return _JudgedGroup(
            attempt,
            wishes,
            self._handle.topology.switches() if wishes is not NO_WISHES else [],
            self._preferred(wishes.preferred_domain) if wishes.preferred_domain else None,
            self._quickness(nodes) if wishes.latency_sensitive else None,
        )

    # Wishes

    def _wishes(self, pod: PodInfo) -> Wishes:
        """The wishes of the workload, without invalid values."""
        return read(self._handle.workload(pod))[0]

    def _tell(self, pod: PodInfo) -> None:
        """Report invalid values of the workload once, in an event."""
        annotations = self._handle.workload(pod)
        if KEYS.isdisjoint(annotations):
            return
        wishes, problems = read(annotations)
        if GPU_COUNT in annotations and (doubt := self._doubt_about(annotations[GPU_COUNT], pod)):
            problems += (f"{GPU_COUNT}: {annotations[GPU_COUNT]!r}{doubt}",)
        domain = wishes.preferred_domain
        if domain and not self._preferred(domain).any():
            problems += (f"{PREFERRED_DOMAIN}: there is no domain {domain!r}",)
        if self._told.get(pod.uid, ()) == problems:
            return
        self._told.keep(pod.uid, problems)
        for kind in invalid(problems):
            self._errors.labels(kind).inc()
        if problems:
            self._handle.recorder.event(pod, "Warning", "InvalidTopologyAnnotation", "; ".join(problems))

    def _doubt_about(self, count: str, pod: PodInfo) -> str:
        """Why a number of GPUs for the whole workload is suspicious; "" if it is not, or is no number."""
        if not _asks_for_gpus(pod):
            return ", but the pods ask for no GPU"
        each, total = gpus_of(pod, self._handle.state), count_of(count)
        if not each or not total or total % each == 0:
            return ""
        members = -(-total // each)
        return f" is no multiple of the {each} GPUs of a pod: {members} pods start together, with {members * each} GPUs"

    # What is known of nodes

    def _near(self, pod: PodInfo, nodes: NodeView) -> Values:
        siblings, size = self._siblings.of(pod), len(self._handle.nodes)
        if not siblings:
            return np.zeros(len(nodes))
        return closeness(siblings, self._handle.topology.switches(), size)[nodes.index]

    def _quickness(self, nodes: NodeView) -> Values:
        """0 to 1: 1 for no latency, 0.5 for the highest configured latency, 0 without a configured latency."""
        latency = self._networks.latency(nodes)
        highest = int(self._networks.latency(self._handle.nodes).max(initial=0))
        return np.where(latency == UNKNOWN, 0.0, 1.0 - latency / max(1, 2 * highest))

    def _preferred(self, name: str) -> BoolColumn:
        """The rows in domains with this name, or with this path from a wider level down."""
        levels = self._handle.topology.chain()
        if self._masks[0] != levels:
            self._masks = (levels, {})
        found = self._masks[1].get(name)
        if found is None:
            found = np.zeros(len(self._handle.nodes), dtype=np.bool_)
            last = name.rpartition("/")[2]
            for level in levels:
                named = [number for number, value in enumerate(level.values) if value in (name, last)]
                wanted = [n for n in named if level.values[n] == name or f"/{level.path(n)}".endswith(f"/{name}")]
                found |= np.isin(level.ids, wanted)
            self._masks[1][name] = found
        return found


def _asks_for_gpus(pod: PodInfo) -> bool:
    """Whether the pod asks for GPUs of any vendor or parts of them, by its requests, a claim or a map."""
    if custom_resources.CLAIM in pod.annotations or custom_resources.SCHEDULING_MAP in pod.annotations:
        return True
    return any(name.endswith("/gpu") or name.startswith("nvidia.com/") for name in pod.cls.requests.real)


def _has_other_adapters(
    pod: PodInfo, old: custom_resources.GpuNodeStatus | None, new: custom_resources.GpuNodeStatus
) -> bool:
    return old is None or old.status.fabric != new.status.fabric
