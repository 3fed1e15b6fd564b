"""The pod groups of KAI (scheduling.run.ai) and Volcano (scheduling.volcano.sh); all others are in `workloads`."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object, ObjectMeta


class KaiTopologyConstraint(Object):
    """The topology levels within which pods have to be."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KaiSubGroup(Object):
    """A part of a group, or of another part."""

    name: str = ""
    parent: str | None = None
    min_member: int | None = None
    min_sub_group: int | None = None
    topology_constraint: KaiTopologyConstraint | None = None


class KaiPodGroupSpec(Object):
    """spec of KAI's pod group."""

    min_member: int | None = None
    min_sub_group: int | None = None
    sub_groups: list[KaiSubGroup] = []
    topology_constraint: KaiTopologyConstraint | None = None


class KaiPodGroup(Object):
    """KAI's pod group."""

    metadata: ObjectMeta
    spec: KaiPodGroupSpec = msgspec.field(default_factory=KaiPodGroupSpec)


class VolcanoNetworkTopology(Object):
    """The tier of the network within which pods have to be; tiers are counted from the closest."""

    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class VolcanoPodGroupSpec(Object):
    """spec of Volcano's pod group."""

    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    network_topology: VolcanoNetworkTopology | None = None


class VolcanoPodGroup(Object):
    """Volcano's pod group."""

    metadata: ObjectMeta
    spec: VolcanoPodGroupSpec = msgspec.field(default_factory=VolcanoPodGroupSpec)
