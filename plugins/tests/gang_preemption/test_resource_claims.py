"""Gangs with ResourceClaims: what victims alone use of the devices comes free with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gangline import PodInfo, model, resources
from gangline.testing.deciding import GroupDecision
from gangline_plugins.dynamic_resources import DynamicResources
from gangline_plugins.gang_preemption.plugin import EvictionPlan

from .preemption_cases import Bench

DRIVER = "gpu.example.com"
NODES = ("l0-n0", "l0-n1")


class Claiming(Bench):
    """One leaf of two nodes with three devices each."""

    def __init__(self, devices: int = 3, is_shareable: bool = False) -> None:
        super().__init__(1, 2, None, DynamicResources)
        self.cache.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu")))
        for node in NODES:
            offered = [
                model.Device(f"d{number}", allow_multiple_allocations=is_shareable or None) for number in range(devices)
            ]
            made = model.ResourceSliceSpec(DRIVER, model.ResourcePool(node, 1, 1), node, devices=offered)
            self.cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(node), made))

    def claim(
        self,
        name: str,
        node: str = "",
        devices: Iterable[int] = (),
        users: Iterable[str] = (),
        owner: str = "",
        count: int = 1,
    ) -> None:
        """A claim, with these devices of the node and reserved for these pods."""
        metadata = model.ObjectMeta(name, "default", f"claim-{name}", resource_version="1")
        if owner:
            metadata.owner_references = [
                model.OwnerReference("Pod", owner, f"pod-default-{owner}", "v1", controller=True)
            ]
        results = [model.AllocatedDevice(DRIVER, node, f"d{each}", request="gpu") for each in devices]
        status = model.ResourceClaimStatus()
        if results:
            status.allocation = model.ResourceClaimAllocation(model.AllocatedDevices(results))
            status.reserved_for = [
                model.ResourceClaimConsumerReference(resource="pods", name=each, uid=f"pod-default-{each}")
                for each in users
            ]
        exactly = model.ExactDeviceRequest("gpu", count=count, allocation_mode="ExactCount")
        spec = model.ResourceClaimSpec(model.DeviceClaim([model.DeviceRequest("gpu", exactly)]))
        self.cache.store(resources.RESOURCE_CLAIMS).upsert(model.ResourceClaim(metadata, spec, status))

    def uses(self, name: str, node: str, claims: Sequence[str], priority: int = 0, **of: Any) -> None:
        """A pod on a node with these claims."""
        entries = [model.PodResourceClaim(f"c{number}", each) for number, each in enumerate(claims)]
        self.run(name, node, priority, gpus=0, resource_claims=entries, **of)

    def holder(self, name: str, node: str, devices: Iterable[int], priority: int = 0, **of: Any) -> None:
        """A pod with a claim of its own."""
        self.claim(name, node, devices, [name], owner=name)
        self.uses(name, node, [name], priority, **of)

    def coming(self, size: int, count: int = 1) -> list[PodInfo]:
        """The members of a gang, each with a claim from a template for so many devices."""
        entry = model.PodResourceClaim("gpu", resource_claim_template_name="any")
        for number in range(size):
            self.claim(f"new-{number}", owner=f"new-{number}", count=count)
        found = self.members("new", size, gpus=0, resource_claims=[entry])
        return [msgspec.structs.replace(pod, claims={"gpu": pod.name}) for pod in found]


def test_those_go_that_have_the_devices() -> None:
    bench = Claiming()
    for node in NODES:
        bench.holder(f"three-{node}", node, [0, 1, 2])
        bench.run(f"none-{node}", node, gpus=0)

    assert bench.preempt(bench.coming(2, count=3)) == ["three-l0-n0", "three-l0-n1"]


def test_no_more_go_than_have_the_devices_that_are_missing() -> None:
    bench = Claiming()
    for number in range(3):
        for place, node in enumerate(NODES):
            bench.holder(f"p{number}{place}", node, [number], priority=2 * number + place)

    assert bench.preempt(bench.coming(3)) == ["p00", "p01", "p10"]


def test_pods_that_share_a_claim_go_together_or_stay_together() -> None:
    bench = Claiming(devices=1)
    bench.claim("shared", "l0-n0", [0], ["p0", "p1"])
    bench.uses("p0", "l0-n0", ["shared"])
    bench.uses("p1", "l0-n0", ["shared"], priority=1)
    bench.holder("alone", "l0-n1", [0], priority=5)

    assert bench.preempt(bench.coming(1)) == ["p0", "p1"]


def test_a_claim_that_a_pod_of_high_priority_uses_too_is_out_of_reach() -> None:
    bench = Claiming(devices=1)
    bench.claim("shared", "l0-n0", [0], ["low", "high"])
    bench.uses("low", "l0-n0", ["shared"])
    bench.uses("high", "l0-n0", ["shared"], priority=10)
    bench.holder("other", "l0-n1", [0], priority=5)

    assert bench.preempt(bench.coming(1)) == ["other"]


def test_a_gang_that_would_not_fit_evicts_nobody() -> None:
    bench = Claiming(devices=1)
    bench.claim("shared", "l0-n0", [0], ["low", "high"])
    bench.uses("low", "l0-n0", ["shared"])
    bench.uses("high", "l0-n0", ["shared"], priority=10)
    bench.holder("other", "l0-n1", [0], priority=5)

    assert "would not fit" in bench.refusal(bench.coming(2))


def test_a_gang_waits_for_devices_that_come_free_anyway() -> None:
    bench = Claiming(devices=1)
    bench.holder("gone", "l0-n0", [0])
    bench.holder("low", "l0-n1", [0])
    bench.remove(["gone"])

    assert bench.preempt(bench.coming(1)) == []


def test_devices_that_several_claims_share_are_left_to_the_filters() -> None:
    bench = Claiming(devices=1, is_shareable=True)
    for node in NODES:
        bench.holder(f"low-{node}", node, [0])

    assert bench.preempt(bench.coming(2)) == ["low-l0-n0"]  # both members share the device there


@dataclass(frozen=True)
class Story:
    """Which claim has which devices, who uses the claims, and what comes."""

    claims: tuple[tuple[int, frozenset[int]], ...]
    """The node and the devices."""
    users: tuple[tuple[int, tuple[int, ...], int], ...]
    """The node, the claims, those on other nodes left out, and the priority."""
    size: int
    count: int

    def bench(self, without: Collection[int] = ()) -> Claiming:
        """The cluster without some pods, and without the devices of claims that nobody else uses."""
        bench = Claiming()
        free = [{0, 1, 2} for _ in NODES]
        for number, (node, devices) in enumerate(self.claims):
            given = free[node] & devices
            free[node] -= given
            users = {n for n, (on, claims, _) in enumerate(self.users) if on == node and number in claims}
            bench.claim(f"c{number}", NODES[node], given if users - set(without) else (), [f"p{n}" for n in users])
        for number, (node, claims, priority) in enumerate(self.users):
            if number not in without:
                mine = [f"c{each}" for each in claims if self.claims[each][0] == node]
                bench.uses(f"p{number}", NODES[node], mine, priority)
        return bench

    def fits(self, without: Collection[int]) -> bool:
        """Whether the gang fits without these pods."""
        bench = self.bench(without)
        return isinstance(bench.decide(bench.coming(self.size, self.count)), GroupDecision)


def stories() -> st.SearchStrategy[Story]:
    """Clusters of two nodes with three devices each."""
    claims = st.tuples(st.integers(0, 1), st.frozensets(st.integers(0, 2), min_size=1, max_size=2))
    uses = st.lists(st.integers(0, 4), min_size=1, max_size=2, unique=True).map(tuple)
    users = st.tuples(st.integers(0, 1), uses, st.sampled_from((0, 1, 2, 10)))
    return st.builds(
        Story,
        st.lists(claims, min_size=5, max_size=5).map(tuple),
        st.lists(users, min_size=2, max_size=7).map(tuple),
        st.integers(1, 4),
        st.integers(1, 3),
    )


@given(stories())
def test_victims_are_enough_and_none_of_them_goes_in_vain(story: Story) -> None:
    bench = story.bench()
    if isinstance(bench.decide(bench.coming(story.size, story.count)), GroupDecision):
        return
    plan = bench.plans[-1]
    if not isinstance(plan, EvictionPlan):
        assert not story.fits({number for number, (*_, priority) in enumerate(story.users) if priority < 10})
        return
    victims = {int(pod.name[1:]) for pod in plan.victims}
    assert story.fits(victims)
    for each in victims:
        assert not story.fits(victims - {each})
