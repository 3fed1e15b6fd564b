"""Gangs for tests of plugins: a cluster of spines, leaves and nodes, gangs that wait, and a scheduling cycle for each.

gangs = Gangs(fabric(), MyPlugin)
placed = gangs.place(gangs.gang("train", 4, annotations={REQUIRED: "leaf"}))
assert leaves_of(placed) == {"s0-l0": 4}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gangline import model
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.groups import Groups, keys
from gangline.groups.members import Grouping
from gangline.kube.resources import SCHEDULER_PLUGINS_POD_GROUPS
from gangline.profile.handle import Pending
from gangline.profile.registry import Catalog
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.testing import FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline.testing.deciding import decide_group

DOMAIN = "topology.gangline.dev"
SPINE, LEAF = f"{DOMAIN}/spine", f"{DOMAIN}/leaf"
"""The labels of the nodes of `fabric`."""
GROUP = keys.POD_GROUP
"""The label of a pod that names its PodGroup."""
REQUIRED, PREFERRED, FALLBACK = keys.TOPOLOGY_REQUIRED, keys.TOPOLOGY_PREFERRED, keys.TOPOLOGY_FALLBACK
"""The annotations of a gang that say how close its pods have to be."""
PLUGINS = ("NodeResourcesFit", "GangPermit", "TopologyPlacement")
"""The installed plugins of a profile for gangs."""


def fabric(spines: int = 2, leaves: int = 4, nodes: int = 4, gpus: int = 8) -> Cache:
    """A cluster of this many spines, leaves per spine and nodes per leaf; node s0-l1-n2 is in leaf-1 of spine-0."""
    return cluster(
        make_node(
            f"s{s}-l{leaf}-n{n}",
            gpus=gpus,
            cpu=64,
            memory="512Gi",
            labels={SPINE: f"spine-{s}", LEAF: f"leaf-{leaf}"},
        )
        for s in range(spines)
        for leaf in range(leaves)
        for n in range(nodes)
    )


class Gangs:
    """A profile that places gangs on a cluster: the installed plugins `PLUGINS`, and those of the test."""

    def __init__(
        self,
        cache: Cache,
        *plugins: type[Any],
        args: Mapping[str, Any] | None = None,
        grouping: Grouping | None = None,
        pending: Pending | None = None,
    ) -> None:
        self.cache = cache
        self.handle = FakeHandle(cache, grouping=grouping or Groups(cache), pending=pending)
        installed = [Catalog.discover().load(name) for name in PLUGINS]
        self.runtime: Runtime = make_runtime(cache, *installed, *plugins, handle=self.handle, args=args)

    def gang(
        self,
        name: str,
        size: int,
        gpus: int = 8,
        min_member: int | None = None,
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> list[PodInfo]:
        """The pods of a group, and its PodGroup object."""
        self.define(name, min_member or size)
        return [self.pod(name, i, gpus, annotations, **spec) for i in range(size)]

    def define(self, name: str, min_member: int) -> None:
        """The PodGroup object of a group."""
        self.cache.store(SCHEDULER_PLUGINS_POD_GROUPS).upsert(
            model.PodGroup(
                metadata=model.ObjectMeta(name=name, namespace="default", uid=f"group-{name}"),
                spec=model.PodGroupSpec(min_member=min_member),
            )
        )

    def pod(
        self, group: str, index: int, gpus: int = 8, annotations: Mapping[str, str] | None = None, **spec: Any
    ) -> PodInfo:
        """One member of a group."""
        return self.cache.record(
            make_pod(f"{group}-{index}", gpus=gpus, cpu=1, labels={GROUP: group}, annotations=annotations, **spec)
        )

    def decide(self, pods: Sequence[PodInfo], waited: float = 0.0) -> GroupDecision | GroupRejection:
        """One cycle for these members of one group."""
        return decide_group(self.runtime, pods, waited)

    def place(self, pods: Sequence[PodInfo], waited: float = 0.0) -> dict[str, str]:
        """Pod name to node, for a group that must find its place."""
        decided = self.decide(pods, waited)
        assert isinstance(decided, GroupDecision), decided.message
        return {decision.pod.name: decision.node for decision in decided.members}

    def occupy(self, node: str, gpus: int) -> None:
        """A pod on its own that is on a node."""
        pod = make_pod(f"busy-{node}-{len(self.cache.pods)}", gpus=gpus, node=node)
        self.cache.upsert_pod(self.cache.record(pod))


def leaves_of(placed: Mapping[str, str]) -> Counter[str]:
    """How many pods are in each leaf, "s0-l1"."""
    return Counter(node.rsplit("-", 1)[0] for node in placed.values())


def spines_of(placed: Mapping[str, str]) -> Counter[str]:
    """How many pods are in each spine, "s0"."""
    return Counter(node.split("-")[0] for node in placed.values())
