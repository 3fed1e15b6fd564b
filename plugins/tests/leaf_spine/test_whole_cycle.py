"""Gangs are really placed by the rules: one whole scheduling cycle with the plugins of a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from gangline import custom_resources, model, resources
from gangline.testing import FakeHandle, Groups, Runtime, cluster, make_pod, make_runtime
from gangline.testing.deciding import GroupDecision, GroupRejection, decide_group
from gangline_plugins.gang_permit import GangPermit
from gangline_plugins.gpu.claim import GpuClaim
from gangline_plugins.gpu.named_hardware import devices
from gangline_plugins.leaf_spine import LeafSpine
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.topology_annotations import TopologyAnnotations
from gangline_plugins.topology_placement import TopologyPlacement

from .leaf_cases import busy, fabric, whole

GROUP = "scheduling.x-k8s.io/pod-group"
PREFERRED, STRATEGY = "topology.scheduler/preferred-domain", "topology.scheduler/placement-strategy"


class Cluster:
    """Nodes, pods on them, and a profile that places gangs."""

    def __init__(self, nodes: Iterable[model.Node], taken: Mapping[str, int]) -> None:
        self.cache = cluster(nodes, busy(taken))
        handle = FakeHandle(self.cache, grouping=Groups(self.cache))
        plugins = (GpuClaim, NodeResourcesFit, GangPermit, TopologyPlacement, LeafSpine, TopologyAnnotations)
        self.runtime: Runtime = make_runtime(self.cache, *plugins, handle=handle)

    def decide(
        self, size: int, gpus: int = 8, annotations: Mapping[str, str] | None = None
    ) -> GroupDecision | GroupRejection:
        """One cycle for a gang of so many pods."""
        meta = model.ObjectMeta(name="gang", namespace="default", uid="group-gang")
        group = model.PodGroup(meta, model.PodGroupSpec(min_member=size))
        self.cache.store(resources.SCHEDULER_PLUGINS_POD_GROUPS).upsert(group)
        pods = [make_pod(f"m-{i}", gpus=gpus, labels={GROUP: "gang"}, annotations=annotations) for i in range(size)]
        return decide_group(self.runtime, [self.cache.record(pod) for pod in pods])

    def leaves(self, size: int, gpus: int = 8, annotations: Mapping[str, str] | None = None) -> dict[str, int]:
        """For each leaf ("s0-l1") how many pods of a gang it gets; none where the gang waits."""
        decided = self.decide(size, gpus, annotations)
        if not isinstance(decided, GroupDecision):
            return {}
        return dict(Counter(member.node.rpartition("-")[0] for member in decided.members))

    def why(self, size: int, gpus: int = 8) -> str:
        """Why a gang waits."""
        decided = self.decide(size, gpus)
        return decided.message if isinstance(decided, GroupRejection) else ""


@pytest.mark.parametrize(
    ("size", "leaves"),
    [
        (1, {"s0-l1": 1}),
        (2, {"s0-l1": 2}),
        (4, {"s0-l0": 4}),
        (8, {"s0-l2": 4, "s0-l3": 4}),
        (6, {"s0-l0": 4, "s0-l1": 2}),
        (16, {"s1-l0": 4, "s1-l1": 4, "s1-l2": 4, "s1-l3": 4}),
    ],
)
def test_gangs_go_where_the_rules_say(size: int, leaves: dict[str, int]) -> None:
    nodes = Cluster(fabric(2, 4), {"s0-l1-n0": 8, "s0-l1-n1": 8})

    assert nodes.leaves(size) == leaves


def test_a_gang_for_which_the_rule_has_no_place_waits_and_says_why() -> None:
    nodes = Cluster(fabric(1, 2), {"s0-l0-n0": 1, "s0-l1-n3": 1})

    assert "no complete leaf of 4 nodes is free" in nodes.why(4, gpus=5)


def test_many_small_members_share_one_node() -> None:
    nodes = Cluster(fabric(1, 2), {"s0-l0-n0": 4, "s0-l1-n0": 1})
    decided = nodes.decide(4, gpus=1)

    assert isinstance(decided, GroupDecision)
    assert {member.node for member in decided.members} == {"s0-l0-n0"}


def test_the_preferred_domain_decides_between_leaves_that_are_alike() -> None:
    nodes = Cluster(fabric(2, 2), {})

    assert nodes.leaves(2, annotations={PREFERRED: "spine-1/leaf-1"}) == {"s1-l1": 2}


def test_a_distributed_gang_is_spread_over_leaves() -> None:
    nodes = Cluster(fabric(2, 2), {})

    assert nodes.leaves(4, annotations={STRATEGY: "distributed"}) == {"s0-l0": 1, "s0-l1": 1, "s1-l0": 1, "s1-l1": 1}


def test_a_gang_larger_than_any_run_is_placed_on_several_spines() -> None:
    nodes = Cluster(fabric(2, 2), whole("s0-l0"))

    assert nodes.leaves(10) == {"s0-l1": 2, "s1-l0": 4, "s1-l1": 4}


def test_a_gang_whose_claims_fill_four_nodes_gets_a_complete_leaf() -> None:
    nodes = Cluster(fabric(1, 3), {"s0-l0-n0": 8})
    for name in map(str, nodes.cache.nodes.names):
        status = custom_resources.GpuNodeStatusStatus(total=8, devices=devices("hgx-h100"))
        nodes.cache.store(resources.GPU_NODE_STATUSES).upsert(
            custom_resources.GpuNodeStatus(
                model.ObjectMeta(name=name, uid=f"gns-{name}"), custom_resources.GpuNodeStatusSpec(name), status
            )
        )
    spec = custom_resources.GpuClaimSpec(devices=custom_resources.ClaimDevices(count=8))
    nodes.cache.store(resources.GPU_CLAIMS).upsert(
        custom_resources.GpuClaim(model.ObjectMeta(name="claim", namespace="default", uid="claim"), spec)
    )

    assert nodes.leaves(4, gpus=0, annotations={custom_resources.CLAIM: "claim"}) in ({"s0-l1": 4}, {"s0-l2": 4})
