"""The plugin's arguments, and the settings that follow from them and from documents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gangline import custom_resources
from gangline_plugins.leaf_spine.documents import (
    SCHEDULER_KINDS,
    Domain,
    SchedulerConfigSpec,
    ScoringWeights,
    TopologyConstraints,
)

_WEIGHTS = ScoringWeights()


class LeafSpineArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments; a whole SchedulerConfig or TopologySchedulerConfig may stand here as well."""

    leaf_level: str = ""
    """The topology level that is a leaf; `leaf`, else the narrowest one with several nodes in a domain."""
    spine_level: str = ""
    """The level that is a spine; `spine`, else the one around the leaves."""
    strict: bool = True
    """A group whose rule cannot be met waits."""
    scoring_weights: ScoringWeights = _WEIGHTS
    topology_constraints: TopologyConstraints = TopologyConstraints()
    domains: list[Domain] = []
    """Leaves and spines that are described rather than labelled, and what they can do."""
    api_version: str = ""
    """Of a whole document."""
    kind: str = ""
    """Of a whole document."""
    metadata: dict[str, Any] = {}
    """Of a whole document; not looked at."""
    spec: SchedulerConfigSpec | None = None

    def __post_init__(self) -> None:
        if not (self.api_version or self.kind or self.spec):
            return
        if self.api_version not in custom_resources.TOPOLOGY_API_VERSIONS:
            raise ValueError(
                f"apiVersion is {self.api_version!r}; it must be {' or '.join(custom_resources.TOPOLOGY_API_VERSIONS)}"
            )
        if self.kind not in SCHEDULER_KINDS:
            raise ValueError(f"kind is {self.kind!r}; it must be {' or '.join(SCHEDULER_KINDS)}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What counts now."""

    weights: ScoringWeights = _WEIGHTS
    max_nodes: int | None = None
    """Nodes of one leaf for one group."""
    max_gpus: int | None = None
    """GPUs of one leaf for one group."""
    min_leaves: int = 1
    """Leaves that a spine needs to take part in a placement on several leaves."""
    max_leaves: int | None = None
    """Leaves of one spine for one group."""
    crosses: bool = True
    """Groups larger than any run of adjacent leaves may be placed on others."""
    strict: bool = True


def settings_of(args: LeafSpineArgs, later: Iterable[SchedulerConfigSpec] = ()) -> Settings:
    """The arguments, with what documents say in their place; the last one counts."""
    own = SchedulerConfigSpec(args.scoring_weights, args.topology_constraints)
    settings = Settings(strict=args.strict)
    for spec in (own, *((args.spec,) if args.spec else ()), *later):
        settings = _with(settings, spec)
    return settings


def _with(settings: Settings, spec: SchedulerConfigSpec) -> Settings:
    if spec.scoring_weights is not None:
        settings = replace(settings, weights=spec.scoring_weights)
    limits = spec.topology_constraints
    if limits is None:
        return settings
    crosses = limits.allow_cross_domain_scheduling
    return replace(
        settings,
        max_nodes=_smaller(limits.max_nodes_per_leaf, limits.max_nodes_per_domain) or settings.max_nodes,
        max_gpus=_smaller(limits.max_gpus_per_leaf, limits.max_gpus_per_domain) or settings.max_gpus,
        min_leaves=limits.min_domains_per_spine or settings.min_leaves,
        max_leaves=limits.max_domains_per_spine or settings.max_leaves,
        crosses=settings.crosses if crosses is None else crosses,
    )


def _smaller(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
