"""The plugin's arguments, and the settings that result from arguments and configuration documents."""

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
    """Arguments of LeafSpine; they may also be a whole SchedulerConfig or TopologySchedulerConfig."""

    leaf_level: str = ""
    """The topology level of leaves. The default is `leaf`, or else the narrowest level with several nodes per
    domain.
    """
    spine_level: str = ""
    """The topology level of spines. The default is `spine`, or else the next level wider than the leaves."""
    strict: bool = True
    """Whether a gang waits if no place obeys its rule."""
    scoring_weights: ScoringWeights = _WEIGHTS
    topology_constraints: TopologyConstraints = TopologyConstraints()
    domains: list[Domain] = []
    """Leaves and spines that are described here instead of by node labels, and their properties."""
    api_version: str = ""
    """The apiVersion, if the arguments are a whole document."""
    kind: str = ""
    """The kind, if the arguments are a whole document."""
    metadata: dict[str, Any] = {}
    """The metadata, if the arguments are a whole document; not used."""
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
class LeafSpineSettings:
    """The settings that are in force."""

    weights: ScoringWeights = _WEIGHTS
    max_nodes: int | None = None
    """The most nodes of one leaf that one group may use."""
    max_gpus: int | None = None
    """The most GPUs of one leaf that one group may use."""
    min_leaves: int = 1
    """The fewest leaves that a spine needs for placements on several leaves."""
    max_leaves: int | None = None
    """The most leaves of one spine that one group may use."""
    crosses: bool = True
    """Whether groups larger than any run of adjacent leaves may use leaves that are not adjacent."""
    strict: bool = True


def settings_of(args: LeafSpineArgs, later: Iterable[SchedulerConfigSpec] = ()) -> LeafSpineSettings:
    """The settings of the arguments, overridden by the documents in order: the last one counts."""
    own = SchedulerConfigSpec(args.scoring_weights, args.topology_constraints)
    settings = LeafSpineSettings(strict=args.strict)
    for spec in (own, *((args.spec,) if args.spec else ()), *later):
        settings = _with(settings, spec)
    return settings


def _with(settings: LeafSpineSettings, spec: SchedulerConfigSpec) -> LeafSpineSettings:
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
