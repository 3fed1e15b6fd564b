"""Selectors over labels and nodes, and the affinities made of them."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object


class Requirement(Object):
    """One expression of a selector: key, operator, values."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Object):
    """A selector over labels; matchLabels and matchExpressions are ANDed."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] = []


class NodeSelectorTerm(Object):
    """Requirements over labels and fields, ANDed."""

    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class NodeSelector(Object):
    """Terms, ORed."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Object):
    """A node selector term with a weight of 1-100."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Object):
    """The nodes that a pod requires or prefers."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Object):
    """Pods (by selector and namespace) and the topology key that says how close."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Object):
    """A pod affinity term with a weight of 1-100."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Object):
    """podAffinity and podAntiAffinity have the same shape."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Object):
    """All the affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Object):
    """How evenly the selected pods have to be spread over the values of a node label."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []
