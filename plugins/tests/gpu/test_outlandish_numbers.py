"""Numbers that no node could have, in requests, claims, labels and reports, cost nothing and harm nobody else."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from gangline import custom_resources
from gangline.testing import make_node, make_pod, make_runtime
from gangline.testing.deciding import Decision, Rejection, decide
from gangline_plugins.anti_fragmentation import AntiFragmentation
from gangline_plugins.gpu.claim import GpuClaim as GpuClaimPlugin
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.nvlink_topology import NVLinkTopology
from gangline_plugins.gpu.wants import WantProblem, claim_want
from gangline_plugins.node_resources_fit import NodeResourcesFit

from .gpu_cases import claim, claim_pod, gpu_cluster, report

PLUGINS = (GpuClaimPlugin, NVLinkTopology, AntiFragmentation, NodeResourcesFit)
MIB = 2**20


@contextmanager
def cheap(seconds: float = 1.0, mib: float = 16.0) -> Iterator[None]:
    """What happens here takes no longer and no more than this."""
    tracemalloc.start()
    started = time.thread_time()
    try:
        yield
        taken, peak = time.thread_time() - started, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < seconds and peak < mib * MIB


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"])
@pytest.mark.parametrize("count", [17, 9000, 2**31, 2**52, 2**62])
def test_a_pod_that_asks_for_more_than_any_node_has_is_refused_cheaply(resource: str, count: int) -> None:
    cache = gpu_cluster([report("a"), report("b", "pcie-bridged-4")])
    runtime = make_runtime(cache, *PLUGINS)
    pod = cache.record(make_pod("p", resources={resource: count}))

    with cheap():
        decided = decide(runtime, pod)

    assert isinstance(decided, Rejection) and not decided.is_error, decided


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"])
@pytest.mark.parametrize("count", [9000, 2**52, 2**62])
def test_a_pod_that_runs_with_more_than_any_node_has_is_counted_and_others_are_placed(
    resource: str, count: int
) -> None:
    cache = gpu_cluster([report("a"), report("b")])
    runtime = make_runtime(cache, GpuClaimPlugin, NVLinkTopology, AntiFragmentation)

    with cheap():
        cache.upsert_pod(cache.record(make_pod("p", resources={resource: count}, node="a")))
    decided = decide(runtime, cache.record(make_pod("q", gpus=8)))

    assert isinstance(decided, Decision) and decided.node == "b"
    cache.remove_pod("pod-default-p")
    assert not device_table(cache).columns.busy[0]


def test_profiles_of_instances_that_pods_make_up_leave_nothing_behind() -> None:
    cache = gpu_cluster([report("a")])
    runtime = make_runtime(cache, GpuClaimPlugin)

    for number in range(200):
        pod = cache.record(make_pod(f"p{number}", resources={f"nvidia.com/mig-{number}g.5gb": 1}))
        assert isinstance(decide(runtime, pod), Rejection)

    assert len(device_table(cache).columns.instances) <= 2


def test_a_claim_for_more_memory_than_any_device_has_is_invalid() -> None:
    wanted = claim_want(claim(count=1, exclusivity="Shared", memory_gi_b=2**60))

    assert isinstance(wanted, WantProblem) and "it must be 1 to 1048576" in wanted.message


def test_a_claim_for_more_ports_than_any_node_has_is_refused() -> None:
    cache = gpu_cluster(
        [report("a")], [claim(count=1, network=custom_resources.ClaimNetwork(min_ports=2**62, rdma_required=True))]
    )
    runtime = make_runtime(cache, GpuClaimPlugin)

    decided = decide(runtime, cache.record(claim_pod("p")))

    assert isinstance(decided, Rejection) and "RDMA" in decided.message and not decided.is_error


def test_ids_that_no_device_has_make_no_table_of_their_own() -> None:
    one, other = (
        claim_want(claim(count=2, policy="preferIds", prefer_ids=[1, first, 3])) for first in (10**9, -(2**60))
    )

    assert one == other


def test_a_node_that_says_it_has_more_gpus_than_masks_hold_takes_pods_without_claims() -> None:
    cache = gpu_cluster([])
    for name, gpus in (("many", 72), ("endless", 2**52)):
        cache.upsert_node(msgspec.convert(msgspec.to_builtins(make_node(name, gpus=gpus)), type(make_node("x"))))
    runtime = make_runtime(cache, NodeResourcesFit, AntiFragmentation)

    for number in range(6):
        decided = decide(runtime, cache.record(make_pod(f"p{number}", gpus=16)))
        assert isinstance(decided, Decision)
