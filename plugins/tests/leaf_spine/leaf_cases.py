"""What the tests of LeafSpine share: clusters of spines and leaves, and groups that want to be placed on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gangline import GroupAttempt, Placement, PodGroup, Role, Status, SubGroup, TopologyConstraint, model
from gangline.testing import GPU, Cache, FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline_plugins.leaf_spine import LeafSpine
from gangline_plugins.leaf_spine.arguments import LeafSpineArgs

HOME = "gpu-scheduler"
"""The namespace in which these tests run the scheduler."""
LEAF, SPINE = "topology.gangline.dev/leaf", "topology.gangline.dev/spine"


def fabric(spines: int = 2, leaves: int = 4, nodes: int = 4, gpus: int = 8) -> list[model.Node]:
    """Nodes called s0-l1-n2, all leaves of one size."""
    return [
        make_node(f"s{s}-l{leaf}-n{n}", gpus=gpus, labels={SPINE: f"spine-{s}", LEAF: f"leaf-{leaf}"})
        for s in range(spines)
        for leaf in range(leaves)
        for n in range(nodes)
    ]


def busy(taken: Mapping[str, int]) -> list[model.Pod]:
    """A pod on each of these nodes that has so many GPUs."""
    return [make_pod(f"busy-{node}", gpus=gpus, node=node) for node, gpus in taken.items()]


def whole(*leaves: str, nodes: int = 4, gpus: int = 8) -> dict[str, int]:
    """All nodes of some leaves ("s0-l1"), each with so many GPUs in use."""
    return {f"{leaf}-n{n}": gpus for leaf in leaves for n in range(nodes)}


def role(cache: Cache, count: int, gpus: int = 8, subgroup: str = "", **pod: Any) -> Role:
    """Members that ask for so many GPUs each, with what every node holds of them."""
    pods = [cache.record(make_pod(f"member{subgroup}-{i}", gpus=gpus, **pod)) for i in range(count)]
    nodes = cache.nodes.view()
    free = nodes.allocatable(GPU) - nodes.requested(GPU)
    fits = free // gpus if gpus else np.where(nodes.alive, count, 0)
    return Role(subgroup, pods, np.minimum(np.where(nodes.alive, fits, 0), count).astype(np.int64))


def attempt(
    roles: Iterable[Role],
    needed: int | None = None,
    topology: TopologyConstraint | None = None,
    subgroups: tuple[SubGroup, ...] = (),
    placed: Iterable[str] = (),
    cache: Cache | None = None,
) -> GroupAttempt:
    """A group of these roles; `placed` are names of pods of the cache that belong to it already."""
    listed = list(roles)
    size = sum(len(each.pods) for each in listed)
    needed = size if needed is None else needed
    group = PodGroup("default", "gang", "test", needed, topology=topology or TopologyConstraint(), subgroups=subgroups)
    members = [cache.pods[f"pod-default-{name}"] for name in placed] if cache else []
    return GroupAttempt(group, listed, needed, members)


class Bench:
    """A cluster and the plugin on it."""

    def __init__(
        self,
        nodes: Iterable[model.Node],
        pods: Iterable[model.Pod] = (),
        args: LeafSpineArgs | None = None,
        client: object | None = None,
    ) -> None:
        self.cache = cluster(nodes, pods)
        self.handle = FakeHandle(self.cache, client)
        runtime = make_runtime(self.cache, LeafSpine, args={"LeafSpine": args or LeafSpineArgs()}, handle=self.handle)
        self.plugin: LeafSpine = runtime.profile.plugins["LeafSpine"]

    def gang(self, count: int, gpus: int = 8, **pod: Any) -> GroupAttempt:
        """A group of like members."""
        return attempt([role(self.cache, count, gpus, **pod)])

    def generate(self, group: GroupAttempt) -> list[Placement] | Status | None:
        """What the plugin offers a group."""
        found = self.plugin.placement_generate(group, self.cache.nodes.view())
        return found if found is None or isinstance(found, Status) else list(found)

    def offered(self, group: GroupAttempt) -> list[Placement]:
        """The placements, the first to be tried first; none where there is another answer."""
        found = self.generate(group)
        if not isinstance(found, list):
            return []
        return sorted(found, key=lambda placement: (placement.tier, -self.score(group, placement)))

    def best(self, group: GroupAttempt) -> str:
        """The name of what is tried first."""
        return self.offered(group)[0].name

    def names(self, group: GroupAttempt) -> list[str]:
        """The names of what is offered, in order of the topology."""
        found = self.generate(group)
        return [placement.name for placement in found] if isinstance(found, list) else []

    def nodes(self, placement: Placement) -> list[str]:
        """The names of its nodes."""
        return [self.cache.nodes.names[row] for row in placement.rows.tolist()]

    def score(self, group: GroupAttempt, placement: Placement) -> float:
        """What the plugin says of a placement."""
        return self.plugin.placement_score(group, placement, self.cache.nodes.view())

    def refusal(self, group: GroupAttempt) -> str:
        """Why nothing is offered."""
        found = self.generate(group)
        return found.message if isinstance(found, Status) else ""
