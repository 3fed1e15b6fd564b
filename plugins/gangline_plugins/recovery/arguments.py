"""The plugin's arguments."""

from __future__ import annotations

from typing import Annotated

import msgspec


class SparesArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Nodes that are kept free in each domain of a level."""

    level: Annotated[str, msgspec.Meta(min_length=1)]
    """The name of the level, for example leaf."""
    nodes: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many nodes are kept free in each domain."""
    gpus: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The GPUs that the kept nodes of each domain have together, at least. If `nodes` is given too, the larger number
    of nodes is kept.
    """

    def __post_init__(self) -> None:
        if not self.nodes and not self.gpus:
            raise ValueError("expected nodes or gpus above 0")


class DownArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """A domain that is marked as down."""

    level: Annotated[str, msgspec.Meta(min_length=1)]
    """The name of the level, for example leaf."""
    name: Annotated[str, msgspec.Meta(min_length=1)]
    """The name of the domain, for example leaf-3, or spine-1/leaf-3 where several wider domains have a leaf-3."""


class RecoveryArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of Recovery."""

    grace_seconds: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """Seconds for which a node may be not ready before its pods count as lost. What is certain needs no grace: a node
    that was deleted or is out of service, a device that is ill, a domain that is marked as down.
    """
    room_seconds: Annotated[float, msgspec.Meta(gt=0)] = 120.0
    """The longest time, in seconds, for which room is kept for the pods that controllers create, after members were
    removed; for which an eviction that is refused is tried again; and for which room of members that are ending is
    waited for.
    """
    release_seconds: Annotated[float, msgspec.Meta(ge=0)] = 600.0
    """Seconds after which the members that are left of a gang are evicted, if no place was found for the lost ones; 0
    leaves them where they are.
    """
    penalty_half_life_seconds: Annotated[float, msgspec.Meta(ge=0)] = 3600.0
    """Seconds after which a failure counts half against its node when nodes are scored, and for which a GPU that failed
    once is avoided; 0 forgets failures at once.
    """
    down: Annotated[list[DownArgs], msgspec.Meta(max_length=64)] = []
    """Domains that are down: all of their nodes count as lost at once, and no pods come to them."""
    spares: Annotated[list[SparesArgs], msgspec.Meta(max_length=8)] = []
    """Nodes that only gangs that have lost members may use."""
    lent_below_priority: int | None = None
    """Pods of a lower priority than this may use spares, and are deleted when a gang needs their nodes. Without this
    argument no pods may.
    """
    most_lost_fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.55
    """If more nodes than this fraction are not ready at the same time, no pods are moved for it: more likely, nobody
    can see the nodes. Deleted nodes and domains that are marked as down do not count.
    """
    lent_below_runtime_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Pods that run for less than so many seconds, by `activeDeadlineSeconds` or `gangline.dev/max-runtime`, may use
    spares too, and are deleted when a gang of their own priority or a higher one needs these.
    """
    dead_after_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds after which nothing is believed to run on a node that is still not ready, so that lost members are
    deleted there without the node's word, and StatefulSets replace them; 0 never believes that. Only for nodes that are
    certainly off or fenced by then: a pod that runs on has the same name and volumes as its replacement.
    """
