"""Members whose GPUs are asked for by a claim alone are counted by the devices that are free."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.cache import Cache
from gangline.model import ObjectMeta
from gangline.testing import cluster, make_node
from gangline.wire import (
    CLAIM,
    ClaimDevices,
    GpuClaim,
    GpuClaimSpec,
    GpuNodeStatus,
    GpuNodeStatusSpec,
    GpuNodeStatusStatus,
)
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.named_hardware import devices
from gangline_plugins.leaf_spine.claimed import counted

from .leaf_cases import Bench, attempt, fabric, role


def report(node: str) -> GpuNodeStatus:
    """Eight healthy GPUs."""
    found = devices("hgx-h100")
    status = GpuNodeStatusStatus(total=len(found), devices=found)
    return GpuNodeStatus(ObjectMeta(name=node, uid=f"gns-{node}"), GpuNodeStatusSpec(node), status)


def claim(**of_devices: Any) -> GpuClaim:
    spec = GpuClaimSpec(devices=ClaimDevices(**of_devices))
    return GpuClaim(ObjectMeta(name="claim", namespace="default", uid="claim"), spec)


def held(cache: Cache, **of_devices: Any) -> list[int]:
    """How many of eight members with such a claim fit on each node."""
    cache.store("gpuclaims").upsert(claim(**of_devices))
    members = role(cache, 8, gpus=0, annotations={CLAIM: "claim"})
    return counted(members, cache.nodes.view(), device_table(cache)).capacity.tolist()


@pytest.mark.parametrize(
    ("of_devices", "fitting"),
    [
        pytest.param({"count": 4}, [2], id="whole devices"),
        pytest.param({"count": 3}, [2], id="whole devices with a rest"),
        pytest.param({"count": 2, "exclusivity": "Shared", "fraction": 0.6}, [4], id="fractions"),
        pytest.param({"count": 4, "exclusivity": "Shared", "memory_gi_b": 30}, [4], id="memory"),
        pytest.param({"count": 1, "exclusivity": "MIG", "mig_profile": "1g.10gb"}, [1], id="instances"),
    ],
)
def test_a_node_holds_as_many_members_as_it_has_devices_for(of_devices: dict[str, Any], fitting: list[int]) -> None:
    cache = cluster([make_node("n")])
    device_table(cache)
    cache.store("gpunodestatuses").upsert(report("n"))

    assert held(cache, **of_devices) == fitting


def test_a_gang_of_claims_that_fills_four_nodes_gets_a_complete_leaf() -> None:
    bench = Bench(fabric(1, 2))
    for name in bench.cache.nodes.names:
        bench.cache.store("gpunodestatuses").upsert(report(str(name)))
    bench.cache.store("gpuclaims").upsert(claim(count=8))
    members = role(bench.cache, 4, gpus=0, annotations={CLAIM: "claim"})

    placements = bench.offered(attempt([members]))

    assert [len(bench.nodes(placement)) for placement in placements] == [4, 4]
