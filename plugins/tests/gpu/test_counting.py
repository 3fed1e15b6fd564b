"""How many pods with the same claim a node can take, and gangs that are placed by that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline import custom_resources, resources
from gangline.model import ObjectMeta, PodGroup, PodGroupSpec
from gangline.testing import FakeHandle, Groups, make_node, make_pod, make_runtime
from gangline.testing.deciding import GroupDecision, decide_group
from gangline.testing.gangs import GROUP
from gangline_plugins.gang_permit import GangPermit
from gangline_plugins.gpu.claim import GpuClaim
from gangline_plugins.gpu.named_hardware import devices

from .gpu_cases import claim, claim_pod, gpu_cluster, report


def capacity(node: custom_resources.GpuNodeStatus, *held: int, **wants: Any) -> int:
    """How many pods with a claim fit on the only node, some devices of which are taken."""
    written = {custom_resources.ALLOCATED: ",".join(map(str, held))}
    pods = [make_pod("held", gpus=len(held), node="a", annotations=written)] if held else []
    cache = gpu_cluster([node], [claim(**wants)], pods, [make_node("a")])
    runtime = make_runtime(cache, GpuClaim)
    (counted,) = runtime.evaluator.capacities(runtime.filter(cache.record(claim_pod("p"))))
    return int(counted[0])


def cut(profiles: int) -> custom_resources.GpuNodeStatus:
    hardware = devices("pcie-4")
    instances = [custom_resources.MigDevice(f"mig-{n}", "1g.10gb") for n in range(profiles)]
    hardware[0] = msgspec.structs.replace(hardware[0], mig_devices=instances)
    return report("a", hardware)


@pytest.mark.parametrize(
    ("held", "wants", "expected"),
    [
        ((), {"count": 1}, 8),
        ((), {"count": 3}, 2),
        ((0, 5), {"count": 2}, 3),
        ((), {"count": 1, "exclusivity": "Shared", "fraction": 0.5}, 16),
        ((0,), {"count": 1, "exclusivity": "Shared", "fraction": 0.4}, 14),
        ((), {"count": 2, "exclusivity": "Shared", "fraction": 0.5}, 8),
    ],
    ids=["one", "three", "two beside two", "halves", "shares of seven", "two halves each"],
)
def test_a_node_holds_as_many_pods_as_it_has_free_devices_or_shares_for(
    held: tuple[int, ...], wants: dict[str, Any], expected: int
) -> None:
    assert capacity(report("a", devices("hgx-h100")), *held, **wants) == expected


def test_instances_are_counted_by_profile() -> None:
    assert capacity(cut(5), count=2, exclusivity="MIG", mig_profile="1g.10gb") == 2


def test_a_gang_with_claims_takes_the_nodes_that_its_devices_need() -> None:
    nodes = [f"n{i}" for i in range(4)]
    cache = gpu_cluster([report(name, devices("hgx-h100")) for name in nodes], [claim(count=4)])
    spec = PodGroupSpec(min_member=8)
    cache.store(resources.SCHEDULER_PLUGINS_POD_GROUPS).upsert(
        PodGroup(ObjectMeta(name="g", namespace="default"), spec)
    )
    handle = FakeHandle(cache, grouping=Groups(cache))
    runtime = make_runtime(cache, GpuClaim, GangPermit, handle=handle)
    pods = [
        cache.record(make_pod(f"p{i}", labels={GROUP: "g"}, annotations={custom_resources.CLAIM: "claim"}))
        for i in range(8)
    ]

    decided = decide_group(runtime, pods)

    assert isinstance(decided, GroupDecision), decided.message
    allocated = sorted((m.node, m.cycle.annotations[custom_resources.ALLOCATED]) for m in decided.members)
    assert allocated == [(name, ids) for name in nodes for ids in ("0,1,2,3", "4,5,6,7")]
