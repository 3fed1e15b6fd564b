"""GpuClaim's filter: each reason on its own, over kept verdicts too."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline import custom_resources, resources
from gangline.model import Pod
from gangline.testing import Cache, FakeHandle, make_node, make_pod, make_runtime, run_filter
from gangline_plugins.gpu.claim import GpuClaim, GpuClaimArgs
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.named_hardware import devices

from .gpu_cases import claim, claim_pod, gpu_cluster, report

TIME_SLICED = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
MPS = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps"}


def verdict(
    node: custom_resources.GpuNodeStatus,
    pods: list[Pod] | None = None,
    labels: Any = None,
    pod: Pod | None = None,
    **wants: Any,
) -> str:
    """Why the only node does not suit a pod that uses a claim with these fields, "" when it does."""
    args = wants.pop("args", None)
    nodes = [make_node(node.metadata.name, gpus=8, labels=labels)]
    cache = gpu_cluster([node], [claim(**wants)], pods or [], nodes)
    return "".join(run_filter(GpuClaim, pod or claim_pod("p"), cache, args)[node.metadata.name])


def held(*ids: int) -> list[Pod]:
    """A pod that has these devices of node a."""
    return [make_pod("held", len(ids), node="a", annotations={custom_resources.ALLOCATED: ",".join(map(str, ids))})]


def cut(profiles: list[str]) -> custom_resources.GpuNodeStatus:
    """A node whose first device is cut into instances."""
    hardware = devices("pcie-4")
    instances = [custom_resources.MigDevice(f"mig-{n}", profile) for n, profile in enumerate(profiles)]
    hardware[0] = msgspec.structs.replace(hardware[0], mig_devices=instances)
    return report("a", hardware)


@pytest.mark.parametrize(
    ("health", "count", "why"),
    [
        ({}, 4, ""),
        ({}, 5, "node(s) didn't have enough GPUs"),
        ({0: "Unhealthy"}, 4, "node(s) didn't have enough healthy GPUs"),
        ({0: "Unknown"}, 4, "node(s) didn't have enough healthy GPUs"),
        ({0: "Unhealthy"}, 3, ""),
    ],
)
def test_enough_healthy_devices_must_be_there(health: dict[int, str], count: int, why: str) -> None:
    assert verdict(report("a", "pcie-4", health), count=count) == why


def test_devices_of_unknown_health_are_allocated_only_when_the_profile_says_so() -> None:
    allowed = GpuClaimArgs(allow_unknown_health=True)

    assert verdict(report("a", "pcie-4", {0: "Unknown"}), count=4, args=allowed) == ""
    assert (
        verdict(report("a", "pcie-4", {0: "Unhealthy"}), count=4, args=allowed)
        == "node(s) didn't have enough healthy GPUs"
    )


def test_devices_that_are_taken_are_not_free() -> None:
    assert verdict(report("a", "pcie-4"), held(0, 1, 2), count=2) == "node(s) didn't have enough free GPUs"
    assert verdict(report("a", "pcie-4"), held(0, 1), count=2) == ""


def test_the_selector_must_match_the_node() -> None:
    wants: dict[str, Any] = {"selector": {"rack": "r1", "kind": "h100"}}

    assert verdict(report("a"), labels={"rack": "r1"}, **wants) == "node(s) didn't match the claim's selector"
    assert verdict(report("a"), labels={"rack": "r1", "kind": "h100"}, **wants) == ""


def test_required_links_must_be_there_and_free() -> None:
    wants: dict[str, Any] = {"count": 2, "mode": "Required", "min_gbps": 400}

    assert verdict(report("a", "pcie-4"), **wants) == "node(s) didn't have GPUs linked as the claim requires"
    free = "node(s) didn't have free GPUs linked as the claim requires"
    assert verdict(report("a", "pcie-bridged-4"), held(0, 2), **wants) == free
    assert verdict(report("a", "pcie-bridged-4"), held(0, 1), **wants) == ""
    assert verdict(report("a", "pcie-4"), **{**wants, "mode": "Preferred"}) == ""


def test_a_node_without_a_report_serves_no_claim_but_plain_pods() -> None:
    cache = gpu_cluster(claims=[claim()], nodes=[make_node("a", gpus=8)])

    assert run_filter(GpuClaim, claim_pod("p"), cache) == {"a": ("node(s) didn't report their GPUs",)}
    assert run_filter(GpuClaim, make_pod("q", 2), cache) == {"a": ()}


def test_a_report_that_cannot_be_used_is_told_from_none() -> None:
    twice = report("a", [*devices("pcie-4"), devices("pcie-4")[0]])

    assert verdict(twice) == "node(s) had a GpuNodeStatus that cannot be used"
    assert verdict(twice, pod=make_pod("p", 2)) == ""


def test_an_instance_without_a_uuid_cannot_be_shown_to_a_pod() -> None:
    nameless = devices("pcie-4")
    nameless[0] = msgspec.structs.replace(nameless[0], mig_devices=[custom_resources.MigDevice(profile="1g.10gb")])

    why = verdict(report("a", nameless), exclusivity="MIG", mig_profile="1g.10gb")
    assert why == "node(s) didn't have enough MIG instances of the profile"


def test_plain_pods_are_claims_where_devices_are_reported() -> None:
    cache = gpu_cluster([report("a", "pcie-4", {0: "Unhealthy"})])

    assert run_filter(GpuClaim, make_pod("p", 4), cache) == {"a": ("node(s) didn't have enough healthy GPUs",)}
    assert run_filter(GpuClaim, make_pod("p", 4), cache, GpuClaimArgs(implicit_claims=False)) == {"a": ()}
    assert run_filter(GpuClaim, make_pod("q", cpu=1), cache) == {"a": ()}


def test_a_report_that_is_too_old_says_nothing() -> None:
    old = report("a", heartbeat="1970-01-01T00:11:39Z")  # the clock stands at second 1000

    assert verdict(old) == "node(s) had GPUs of unknown state, not reported on for too long"
    assert verdict(old, args=GpuClaimArgs(stale_after_seconds=400)) == ""
    assert verdict(old, args=GpuClaimArgs(allow_unknown_health=True)) == ""


def test_shared_claims_need_room_on_a_device() -> None:
    shared: dict[str, Any] = {"exclusivity": "Shared", "fraction": 0.6}
    others = [claim_pod(f"o{n}", node="a") for n in range(4)]

    assert verdict(report("a", "pcie-4"), others[:3], **shared) == ""
    assert verdict(report("a", "pcie-4"), others, **shared) == "node(s) didn't have enough room on shared GPUs"
    assert (
        verdict(report("a", "pcie-4"), held(0, 1, 2, 3), **shared) == "node(s) didn't have enough room on shared GPUs"
    )


def test_shared_claims_need_devices_that_are_large_enough() -> None:
    wants: dict[str, Any] = {"exclusivity": "Shared", "memory_gi_b": 49}

    assert verdict(report("a", "pcie-4"), **wants) == "node(s) didn't have GPUs with enough memory"


def test_exclusive_claims_do_not_go_to_devices_that_are_shared() -> None:
    assert verdict(report("a"), labels=TIME_SLICED) == "node(s) shared out their GPUs by time-slicing or MPS"
    cache = gpu_cluster(
        [report("a", "pcie-4")],
        [claim("part", exclusivity="Shared", fraction=0.1), claim("all", count=4)],
        [claim_pod("q", "part", node="a")],
    )
    assert run_filter(GpuClaim, claim_pod("p", "all"), cache) == {"a": ("node(s) didn't have enough free GPUs",)}


def test_mig_claims_need_free_instances_of_the_profile() -> None:
    wants: dict[str, Any] = {"exclusivity": "MIG", "mig_profile": "1g.10gb"}
    holder = [claim_pod("holder", node="a")]

    assert verdict(cut(["1g.10gb"]), **wants) == ""
    assert verdict(cut(["3g.40gb"]), **wants) == "node(s) didn't have enough MIG instances of the profile"
    assert verdict(cut(["1g.10gb"]), holder, **wants) == "node(s) didn't have enough free MIG instances of the profile"


def test_a_plain_request_on_a_time_sliced_node_is_for_replicas() -> None:
    sliced = report("a", "pcie-4")

    assert verdict(sliced, labels=TIME_SLICED, pod=make_pod("p", 16)) == ""
    assert verdict(sliced, labels=TIME_SLICED, pod=make_pod("p", 17)) == "node(s) didn't have enough GPUs"
    full = [make_pod("o", 14, node="a")]
    assert verdict(sliced, full, TIME_SLICED, make_pod("p", 3)) == "node(s) didn't have enough room on shared GPUs"
    assert verdict(sliced, full, TIME_SLICED, make_pod("p", 2)) == ""
    assert verdict(sliced, full, TIME_SLICED, make_pod("p", resources={custom_resources.SHARED_GPU: 2})) == ""


@pytest.mark.parametrize(("labels", "strict"), [(MPS, False), (TIME_SLICED, True)])
def test_the_labels_of_a_node_without_an_agent_say_so_too(labels: dict[str, str], strict: bool) -> None:
    args = GpuClaimArgs(fail_requests_greater_than_one=strict)
    cache = gpu_cluster(nodes=[make_node("a", gpus=8, labels=labels), make_node("b", gpus=8)])

    def verdicts(gpus: int, resource: str = custom_resources.GPU) -> dict[str, str]:
        said = run_filter(GpuClaim, make_pod("p", resources={resource: gpus}), cache, args)
        return {node: "".join(why) for node, why in said.items()}

    one_each = "node(s) gave no pod more than one replica of a shared GPU"
    assert verdicts(2) == {"a": one_each, "b": ""}
    assert verdicts(2, custom_resources.SHARED_GPU)["a"] == one_each
    assert verdicts(1) == {"a": "", "b": ""}


@pytest.mark.parametrize(("labels", "strict"), [(MPS, False), (TIME_SLICED, True)])
def test_some_sharing_nodes_give_a_pod_one_replica_at_most(labels: dict[str, str], strict: bool) -> None:
    args = GpuClaimArgs(fail_requests_greater_than_one=strict)
    why = "node(s) gave no pod more than one replica of a shared GPU"

    assert verdict(report("a"), labels=labels, pod=make_pod("p", 2), args=args) == why
    assert verdict(report("a"), labels=labels, pod=make_pod("p", 1), args=args) == ""


def test_with_the_single_mig_strategy_a_plain_request_is_for_instances() -> None:
    single = {"nvidia.com/mig.strategy": "single"}

    assert verdict(cut(["1g.10gb"] * 2), labels=single, pod=make_pod("p", 2)) == ""
    why = "node(s) didn't have enough MIG instances of the profile"
    assert verdict(cut(["1g.10gb"] * 2), labels=single, pod=make_pod("p", 3)) == why


def test_with_the_mixed_mig_strategy_instances_have_resources_of_their_own() -> None:
    pod = make_pod("p", resources={"nvidia.com/mig-1g.10gb": 1})

    assert verdict(cut(["1g.10gb"]), pod=pod) == ""
    assert verdict(cut(["2g.20gb"]), pod=pod) == "node(s) didn't have enough MIG instances of the profile"
    assert verdict(cut(["1g.10gb"]), pod=make_pod("q", 4)) == "node(s) didn't have enough GPUs"


def test_the_fabric_must_be_there() -> None:
    up, down = (
        custom_resources.Hca("mlx5_0", ports=2, state="ACTIVE"),
        custom_resources.Hca("mlx5_1", ports=2, state="DOWN"),
    )
    node = report("a", fabric=custom_resources.Fabric(hcas=[up, down]))

    assert verdict(report("a"), network=custom_resources.ClaimNetwork(rdma_required=True)) == "node(s) didn't have RDMA"
    assert verdict(node, network=custom_resources.ClaimNetwork(True, 2)) == ""
    assert verdict(node, network=custom_resources.ClaimNetwork(True, 3)) == "node(s) didn't have enough RDMA ports"
    assert verdict(node, storage=custom_resources.ClaimStorage("Required")) == "node(s) didn't have cuFile"
    assert (
        verdict(
            report("a", fabric=custom_resources.Fabric(cu_file_enabled=True)),
            storage=custom_resources.ClaimStorage("Required"),
        )
        == ""
    )


def test_what_cannot_be_cured_is_told_before_what_can() -> None:
    why = verdict(report("a", "pcie-4"), held(0, 1, 2, 3), storage=custom_resources.ClaimStorage("Required"))

    assert why == "node(s) didn't have cuFile"


@pytest.mark.parametrize(
    ("wants", "why"),
    [
        ({"count": 0}, "devices.count is 0; it must be 1 to 16"),
        ({"count": 10_000}, "devices.count is 10000; it must be 1 to 16"),
        ({"count": 2, "policy": "spread", "mode": "Required"}, "policy spread and topology.mode Required contradict"),
        ({"fraction": 0.5}, "devices.fraction and devices.memoryGiB contradict exclusivity Exclusive"),
        ({"exclusivity": "Shared", "fraction": 1.5}, "devices.fraction is 1.5; it must be 0.01 to 1"),
        ({"exclusivity": "Shared", "memory_gi_b": 0}, "devices.memoryGiB is 0; it must be 1 to 1048576"),
        ({"exclusivity": "MIG"}, "exclusivity MIG needs devices.migProfile"),
        ({"exclusivity": "MIG", "mig_profile": "1g.10gb", "count": 65}, "devices.count is 65; it must be 1 to 64"),
        ({"mig_profile": "1g.10gb"}, "devices.migProfile contradicts exclusivity Exclusive"),
    ],
)
def test_a_claim_that_makes_no_sense_says_why(wants: dict[str, Any], why: str) -> None:
    assert verdict(report("a"), **wants).startswith(f'GpuClaim "default/claim": {why}')


def test_a_claim_that_is_not_there_is_named() -> None:
    assert verdict(report("a"), name="other") == 'GpuClaim "default/claim" not found'


def test_kept_verdicts_follow_pods_reports_claims_and_time() -> None:
    cache = gpu_cluster(
        [report("a", "pcie-4", heartbeat="1970-01-01T00:16:00Z"), report("b", "pcie-4")], [claim(count=4)]
    )
    handle = FakeHandle(cache)
    runtime = make_runtime(cache, GpuClaim, handle=handle)

    def feasible(cache: Cache = cache) -> str:
        filtered = runtime.evaluator.filter(cache.record(claim_pod("p")))
        return "".join(name for row, name in enumerate(cache.nodes.names) if filtered.feasible[row])

    seen = [feasible()]
    cache.upsert_pod(cache.record(make_pod("q", 1, node="b")))
    seen.append(feasible())
    cache.remove_pod("pod-default-q")
    seen.append(feasible())
    handle.fake_clock.advance(301)
    seen.append(feasible())
    cache.store(resources.GPU_NODE_STATUSES).upsert(report("a", "pcie-4", heartbeat="1970-01-01T00:21:00Z"))
    seen.append(feasible())
    cache.store(resources.GPU_NODE_STATUSES).upsert(report("b", "pcie-4", {1: "Unhealthy"}))
    seen.append(feasible())
    cache.store(resources.GPU_CLAIMS).upsert(claim(count=3))
    seen.append(feasible())
    assert seen == ["ab", "a", "ab", "b", "ab", "a", "ab"]


def asked(pod: Pod, *, require: bool = False, **wants: Any) -> list[str]:
    """What is told of the requests of a pod with a claim; nothing where it may have both."""
    cache = gpu_cluster([report("a")], [claim(**wants)])
    handle = FakeHandle(cache)
    runtime = make_runtime(cache, GpuClaim, args={"GpuClaim": GpuClaimArgs(require_request=require)}, handle=handle)

    filtered = [runtime.evaluator.filter(cache.record(pod)) for _ in range(2)]
    for each in filtered:
        if not each.feasible[0]:
            runtime.reject(runtime.evaluator.diagnose(each))

    told = [f"{event.reason}: {event.note}" for event in handle.fake_recorder.events]
    assert [bool(each.feasible[0]) for each in filtered] == [not told] * 2
    return told


@pytest.mark.parametrize(
    ("pod", "wants", "told"),
    [
        (claim_pod("p", gpus=2), {"count": 2}, ""),
        (claim_pod("p"), {"count": 2}, ""),
        (claim_pod("p", gpus=1), {"count": 2}, "2 GPUs, and it requests nvidia.com/gpu: 1: it may request"),
        (claim_pod("p", gpus=3), {"count": 2}, "2 GPUs, and it requests nvidia.com/gpu: 3: it may request"),
        (
            claim_pod("p", gpus=1),
            {"exclusivity": "Shared", "fraction": 0.5},
            "shares of GPUs, and it requests nvidia.com/gpu: 1: it may request no GPUs besides",
        ),
        (
            claim_pod("p", gpus=1),
            {"count": 2, "exclusivity": "MIG", "mig_profile": "1g.10gb"},
            "2 MIG instances, and it requests nvidia.com/gpu: 1: it may request 2 of them, or none",
        ),
        (
            claim_pod("p", resources={custom_resources.SHARED_GPU: 2}),
            {"count": 2},
            "2 GPUs, and it requests nvidia.com/gpu.shared: 2: it may request nvidia.com/gpu: 2, or none",
        ),
    ],
)
def test_what_a_claim_and_a_request_would_both_count_is_held(pod: Pod, wants: Any, told: str) -> None:
    found = asked(pod, **wants)

    assert len(found) == bool(told)
    assert all(f"GpuRequestDisagrees: the pod's claim gives it {told}" in each for each in found)


def test_a_pod_has_to_request_what_its_claim_gives_where_the_profile_says_so() -> None:
    assert asked(claim_pod("p", gpus=2), require=True, count=2) == []
    assert asked(claim_pod("p"), require=True, count=2) == [
        "GpuRequestMissing: the pod's claim gives it 2 GPUs: it has to request nvidia.com/gpu: 2"
    ]


def test_where_the_profile_says_so_requests_are_for_nodes_that_report() -> None:
    nodes = [make_node(name, gpus=8) for name in "ab"]
    cache = gpu_cluster([report("a")], [], [], nodes)

    assert run_filter(GpuClaim, make_pod("p", 2), cache) == {"a": (), "b": ()}
    assert run_filter(GpuClaim, make_pod("p", 2), cache, GpuClaimArgs(require_report=True)) == {
        "a": (),
        "b": ("node(s) didn't report their GPUs",),
    }


@pytest.mark.parametrize("gpus", [2, 0])
def test_a_request_beside_a_claim_is_counted_once(gpus: int) -> None:
    cache = gpu_cluster([report("a")], [claim(count=2)])
    for number in range(2):
        cache.assume(cache.record(claim_pod(f"p{number}", gpus=gpus)), 0)

    assert int(device_table(cache).columns.busy[0]).bit_count() == 4
