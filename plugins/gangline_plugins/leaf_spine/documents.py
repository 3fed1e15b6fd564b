"""The kinds of `topology.scheduler/v1alpha1` as values: SchedulerConfig, TopologySchedulerConfig and DomainConfig.

A document may be given in plugin arguments, in a ConfigMap, or as a custom resource; all are checked here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from gangline import InvalidObject, custom_resources

SCHEDULER_KINDS = ("SchedulerConfig", "TopologySchedulerConfig")
DOMAIN_KIND = "DomainConfig"
_ROUNDING = 1e-6

Weight = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class ScoringWeights(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """The weight of each term of a placement's score; together they are 1."""

    resource_availability: Weight = 0.4
    topology_alignment: Weight = 0.3
    domain_utilization: Weight = 0.2
    historical_performance: Weight = 0.1

    def __post_init__(self) -> None:
        total = math.fsum(self.values)
        if abs(total - 1.0) > _ROUNDING:
            raise ValueError(f"the weights sum to {total:.6g}; they must sum to 1")

    @property
    def values(self) -> tuple[float, float, float, float]:
        """The weights in the order of the fields."""
        return (
            self.resource_availability,
            self.topology_alignment,
            self.domain_utilization,
            self.historical_performance,
        )


class TopologyConstraints(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Limits on the leaves and spines that one group may use; a limit that is not given does not apply."""

    max_nodes_per_leaf: Positive | None = None
    max_gpus_per_leaf: Positive | None = msgspec.field(default=None, name="maxGPUsPerLeaf")
    max_nodes_per_domain: Positive | None = None
    """Another name of `max_nodes_per_leaf`; the smaller one counts."""
    max_gpus_per_domain: Positive | None = msgspec.field(default=None, name="maxGPUsPerDomain")
    """Another name of `max_gpus_per_leaf`; the smaller one counts."""
    min_domains_per_spine: Positive | None = None
    """A spine with fewer leaves than this is not used for a placement on several leaves."""
    max_domains_per_spine: Positive | None = None
    """The most leaves of one spine that one group may use."""
    allow_cross_domain_scheduling: bool | None = None
    """Whether groups larger than any run of adjacent leaves may use leaves that are not adjacent; true by default."""


class DomainSpec(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The spec of a DomainConfig: a leaf or a spine, and its properties."""

    type: Literal["leaf", "spine"]
    node_selector: dict[str, str] = {}
    """The labels of its nodes. Without labels, it is the domain that node labels call by this name."""
    network_bandwidth: Positive | None = None
    """Bandwidth of the network in Gbps."""
    max_latency: Positive | None = None
    """Latency of the network in microseconds."""
    gpu_types: list[str] = []
    """The types of GPUs in the domain; an empty list states no types."""
    max_nodes: Positive | None = None
    """The most nodes of the domain that one group may use."""
    max_gpus: Positive | None = msgspec.field(default=None, name="maxGPUs")
    """The most GPUs of the domain that one group may use."""


class Domain(DomainSpec, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The spec of a DomainConfig with its name."""

    name: Annotated[str, msgspec.Meta(min_length=1)]


class DomainMetadata(msgspec.Struct, rename="camel", frozen=True):
    """The metadata of a DomainConfig; only the name is used."""

    name: Annotated[str, msgspec.Meta(min_length=1)]


class DomainDocument(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """A DomainConfig as an object."""

    metadata: DomainMetadata
    spec: DomainSpec
    api_version: str = ""
    kind: str = DOMAIN_KIND
    status: dict[str, Any] = {}

    @property
    def domain(self) -> Domain:
        """The spec together with the name."""
        return Domain(
            name=self.metadata.name, **{name: getattr(self.spec, name) for name in self.spec.__struct_fields__}
        )


class SchedulerConfigSpec(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """The spec of a SchedulerConfig or TopologySchedulerConfig; settings that are not given keep their values."""

    scoring_weights: ScoringWeights | None = None
    topology_constraints: TopologyConstraints | None = None
    domain_configs: list[DomainDocument] = []
    enable_metrics: bool | None = None
    """Accepted without effect: metrics are always on."""
    update_interval: str | None = None
    """Accepted without effect: changes are followed as they happen."""


T = TypeVar("T")
Read = SchedulerConfigSpec | Domain


def read_document(data: Any, where: str) -> Read:
    """The contents of a document of this API group. Raises InvalidObject, whose path begins with `where`."""
    if not isinstance(data, Mapping):
        raise InvalidObject(where, None, "this is no document with apiVersion, kind and spec")
    kind, version = data.get("kind"), data.get("apiVersion")
    if version not in custom_resources.TOPOLOGY_API_VERSIONS:
        raise InvalidObject(
            f"{where}: apiVersion", version, f"must be {' or '.join(custom_resources.TOPOLOGY_API_VERSIONS)}"
        )
    if kind == DOMAIN_KIND:
        return converted(data, DomainDocument, where).domain
    if kind in SCHEDULER_KINDS:
        return converted(data.get("spec") or {}, SchedulerConfigSpec, f"{where}: spec")
    raise InvalidObject(f"{where}: kind", kind, f"must be {', '.join(SCHEDULER_KINDS)} or {DOMAIN_KIND}")


def converted(data: Any, type_: type[T], where: str) -> T:
    """The data as a value of `type_`. Raises InvalidObject."""
    try:
        return msgspec.convert(data, type_)
    except msgspec.ValidationError as error:
        raise InvalidObject(where, None, str(error).replace("`", "")) from error
