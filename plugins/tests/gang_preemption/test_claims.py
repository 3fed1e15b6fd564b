"""Gangs whose GPUs are handed out by claims: devices are counted like any other resource."""

from __future__ import annotations

from gangline import PodInfo, custom_resources, model, resources
from gangline_plugins.gpu.claim import GpuClaim as GpuClaimPlugin
from gangline_plugins.gpu.named_hardware import devices

from .preemption_cases import REQUIRED, Bench, leaf


def bench_with_devices(leaves: int, nodes: int) -> Bench:
    """Nodes of eight GPUs that their agents report."""
    bench = Bench(leaves, nodes, None, GpuClaimPlugin)
    for name in [name for each in range(leaves) for name in leaf(each, nodes)]:
        report = custom_resources.GpuNodeStatusStatus(total=8, devices=devices("hgx-h100"))
        status = custom_resources.GpuNodeStatus(
            model.ObjectMeta(name=name), custom_resources.GpuNodeStatusSpec(name), report
        )
        bench.cache.store(resources.GPU_NODE_STATUSES).upsert(status)
    return bench


def claim(bench: Bench, name: str, wanted: custom_resources.ClaimDevices) -> None:
    bench.cache.store(resources.GPU_CLAIMS).upsert(
        custom_resources.GpuClaim(
            model.ObjectMeta(name=name, namespace="default"), custom_resources.GpuClaimSpec(wanted)
        )
    )


def holder(bench: Bench, name: str, node: str, ids: str, priority: int = 0) -> None:
    """A pod that has these devices."""
    claim(bench, name, custom_resources.ClaimDevices(len(ids.split(","))))
    bench.run(name, node, priority, gpus=0, annotations={custom_resources.CLAIM: name, custom_resources.ALLOCATED: ids})


def members(bench: Bench, size: int, wanted: custom_resources.ClaimDevices) -> list[PodInfo]:
    claim(bench, "new", wanted)
    return bench.members("new", size, gpus=0, annotations={custom_resources.CLAIM: "new", REQUIRED: "leaf"})


def test_those_go_that_hold_the_devices() -> None:
    bench = bench_with_devices(leaves=1, nodes=2)
    for node in leaf(0):
        holder(bench, f"half-{node}", node, "0,1,2,3")
        holder(bench, f"rest-{node}", node, "4,5,6,7")
        bench.run(f"none-{node}", node, gpus=0)

    victims = bench.preempt(members(bench, 2, custom_resources.ClaimDevices(8)))

    assert victims == ["half-l0-n0", "half-l0-n1", "rest-l0-n0", "rest-l0-n1"]


def test_no_more_go_than_hold_the_devices_that_are_missing() -> None:
    bench = bench_with_devices(leaves=1, nodes=1)
    for first in (0, 2, 4, 6):
        holder(bench, f"two-{first}", "l0-n0", f"{first},{first + 1}", priority=first)

    assert bench.preempt(members(bench, 2, custom_resources.ClaimDevices(2))) == ["two-0", "two-2"]


def test_fractions_of_a_device_are_counted() -> None:
    bench = bench_with_devices(leaves=1, nodes=1)
    holder(bench, "one", "l0-n0", "0")
    holder(bench, "seven", "l0-n0", "1,2,3,4,5,6,7", priority=5)

    victims = bench.preempt(members(bench, 4, custom_resources.ClaimDevices(1, exclusivity="Shared", fraction=0.25)))

    assert victims == ["one"]
