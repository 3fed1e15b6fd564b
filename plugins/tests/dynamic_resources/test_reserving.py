"""Members of a gang are reserved at once where `reserve` would take each of them, and then as `reserve` does it."""

from __future__ import annotations

import pytest

from gangline import Cycle, PodInfo, model, resources
from gangline.testing import FakeHandle, Runtime, cluster, make_node, make_pod, make_runtime
from gangline_plugins.dynamic_resources.claims import MOST_CONSUMERS
from gangline_plugins.dynamic_resources.ledger import Ledger, ledger
from gangline_plugins.dynamic_resources.plugin import DynamicResources

from .claim_cases import DRIVER, spec

MEMBERS = 4


def members(statuses: dict[int, model.ResourceClaimStatus]) -> tuple[Ledger, Runtime, list[PodInfo]]:
    """Four pods with a claim each, of which some have a status, and a node with four devices."""
    cache = cluster([make_node("a"), make_node("b")])
    devices = [model.Device(f"gpu-{number}") for number in range(MEMBERS)]
    offered = model.ResourceSliceSpec(driver=DRIVER, pool=model.ResourcePool("a", 1, 1), node_name="a", devices=devices)
    cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta("a-slice"), offered))
    cache.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu")))
    handle = FakeHandle(cache)
    runtime = make_runtime(cache, DynamicResources, handle=handle)
    pods = []
    for number in range(MEMBERS):
        name = f"claim-{number}"
        metadata = model.ObjectMeta(name, "default", uid=name, resource_version=str(number + 1))
        claim = model.ResourceClaim(metadata, spec(), statuses.get(number, model.ResourceClaimStatus()))
        cache.store(resources.RESOURCE_CLAIMS).upsert(claim)
        entry = model.PodResourceClaim("gpu", name, None)
        pods.append(cache.record(make_pod(f"pod-{number}", resource_claims=[entry])))
    return ledger(handle), runtime, pods


def reserved(at_once: bool) -> list[model.ResourceClaimAllocation | None]:
    """The devices of the claims after the pods were reserved, and taken off their node again."""
    of, runtime, pods = members({})
    cycles, nodes = [Cycle() for _ in pods], ["a"] * len(pods)
    cache = runtime.handle.state
    with cache.transaction() as tx:
        for pod in pods:
            tx.place(pod, 0)
        if at_once:
            steps = runtime.reserving.plan(cycles, pods, nodes)
            assert steps is not None
            runtime.reserving.carry_out(steps)
        else:
            for cycle, pod in zip(cycles, pods, strict=True):
                assert runtime.reserving.one(cycle, pod, "a")[0].is_success
    found = [of.allocation(f"claim-{number}") for number in range(MEMBERS)]
    for cycle, pod in zip(cycles, pods, strict=True):
        runtime.unreserve(cycle, pod, "a")
    assert all(of.allocation(f"claim-{number}") is None for number in range(MEMBERS))
    return found


def test_members_that_are_reserved_at_once_keep_the_devices_that_they_would_have_one_by_one() -> None:
    found = reserved(at_once=True)
    assert None not in found
    assert found == reserved(at_once=False)


def elsewhere() -> model.ResourceClaimStatus:
    only = model.Requirement("metadata.name", "In", ["b"])
    return model.ResourceClaimStatus(
        allocation=model.ResourceClaimAllocation(
            model.AllocatedDevices([model.AllocatedDevice(DRIVER, "b", "gpu-0", request="gpu")]),
            model.NodeSelector([model.NodeSelectorTerm(match_fields=[only])]),
        )
    )


def used_by(number_of_users: int) -> model.ResourceClaimStatus:
    users = [
        model.ResourceClaimConsumerReference(resource="pods", name=f"u{number}", uid=f"u{number}")
        for number in range(number_of_users)
    ]
    return model.ResourceClaimStatus(
        allocation=model.ResourceClaimAllocation(
            model.AllocatedDevices([model.AllocatedDevice(DRIVER, "a", "gpu-0", request="gpu")])
        ),
        reserved_for=users,
    )


@pytest.mark.parametrize(
    "status", [elsewhere(), used_by(MOST_CONSUMERS)], ids=["devices of another node", "256 consumers"]
)
def test_if_one_member_would_be_rejected_all_are_reserved_one_by_one(status: model.ResourceClaimStatus) -> None:
    _, runtime, pods = members({2: status})
    with runtime.handle.state.transaction() as tx:
        for pod in pods:
            tx.place(pod, 0)
        assert runtime.reserving.plan([Cycle() for _ in pods], pods, ["a"] * len(pods)) is None
        assert not runtime.reserving.one(Cycle(), pods[2], "a")[0].is_success


@pytest.mark.parametrize(("users", "is_room"), [(MOST_CONSUMERS - 2, True), (MOST_CONSUMERS - 1, False)])
def test_two_members_that_share_a_claim_are_reserved_only_if_both_have_a_place_in_it(users: int, is_room: bool) -> None:
    _, runtime, (first, *_) = members({0: used_by(users)})
    cache = runtime.handle.state
    second = cache.record(make_pod("pod-9", resource_claims=[model.PodResourceClaim("gpu", "claim-0", None)]))
    pods = [first, second]
    with cache.transaction() as tx:
        for pod in pods:
            tx.place(pod, 0)
        assert (runtime.reserving.plan([Cycle(), Cycle()], pods, ["a", "a"]) is not None) == is_room
        assert all(runtime.reserving.one(Cycle(), pod, "a")[0].is_success for pod in pods) == is_room
