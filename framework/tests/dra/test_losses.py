"""What is kept of losses and of GPUs is as if it were counted anew, whatever has changed before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.dra.live import Devices
from gangline.model.resource_claims import ResourceClaim, ResourceClaimAllocation

from .offers import allocated, claim, device, exactly, offer
from .test_best import partition, partitions
from .test_live import CLAIMS, PHASES, STEPS, World, go_through, live, plain


class Weighed(World):
    """Live devices, which are asked in the order `best`."""

    def fresh(self) -> Devices:
        """The same devices, told of everything for the first time."""
        devices = Devices(lambda: self.cache.nodes.view())
        devices.class_changed(None, self.device_class)
        for name in sorted(self.slices):
            devices.slice_changed(None, self.slices[name])
        for key, allocation in self.taken.items():
            devices.take(key, allocation)
        return devices

    def check(self) -> None:
        """Hold what is kept against what is counted anew."""
        nodes, fresh = self.cache.nodes.view(), self.fresh()
        alive = np.flatnonzero(nodes.alive)
        for kept, anew in zip(self.devices.gpus(nodes), fresh.gpus(nodes), strict=True):
            assert kept[alive].tolist() == anew[alive].tolist()
        for claims in CLAIMS:
            asked = self.devices.asked(claims)
            assert self.devices.gpus_wanted(asked)[0] == fresh.gpus_wanted(fresh.asked(claims))[0]
            losses = self.devices.losses(asked, nodes)
            assert losses[alive] == pytest.approx(fresh.losses(fresh.asked(claims), nodes)[alive])
            for row in alive.tolist():
                verdict = self.devices.allocate(asked, claims, row, "best")
                again = fresh.allocate(fresh.asked(claims), claims, row, "best")
                assert plain(verdict.allocations) == plain(again.allocations)
                first = self.devices.allocate(asked, claims, row)
                assert verdict.error == first.error
                self.check_devices(verdict.allocations, first.allocations)

    def check_devices(
        self,
        found: tuple[ResourceClaimAllocation, ...] | None,
        first: tuple[ResourceClaimAllocation, ...] | None,
    ) -> None:
        """As many devices for each request as in the order of kube-scheduler, and no device that somebody else has."""
        assert (found is None) == (first is None)
        for each, other in zip(found or (), first or (), strict=True):
            requests = Counter(result.request for result in each.devices.results)
            assert requests == Counter(result.request for result in other.devices.results)
        given_now, given_before = ids(found or ()), ids(self.taken.values())
        assert len(set(given_now)) == len(given_now)
        assert not set(given_now) & set(given_before)


def ids(allocations: Iterable[ResourceClaimAllocation]) -> list[tuple[str, str, str]]:
    """The devices that claims have for themselves."""
    return [
        (result.driver, result.pool, result.device)
        for each in allocations
        for result in each.devices.results
        if not result.admin_access and result.share_id is None
    ]


@settings(max_examples=settings().max_examples * 4 // 5, phases=PHASES)
@given(STEPS, st.integers(0, 2**32))
def test_what_is_kept_is_what_is_counted_anew(steps: list[str], seed: int) -> None:
    go_through(steps, seed, Weighed)


def gpus(*claims: ResourceClaim, slices: int = 1) -> tuple[int, list[int]]:
    """The thousandths of all GPUs of a node with two that are divided and two that are not, and what is free."""
    plain = [device("whole"), device("shared", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})]
    devices, nodes = live([*partitions(2, pool="p"), offer("s", plain), offer("n", [device("n")], driver="nic")])
    for key, each in enumerate(claims):
        allocation = each.status.allocation
        assert allocation is not None
        devices.take(key, allocation)
    total, free = devices.gpus(nodes)
    return int(total[0]), sorted(free[0].tolist(), reverse=True)[:4]


def test_gpus_are_counted_whole_shared_or_divided() -> None:
    share: dict[str, Any] = {"shareID": "x", "consumedCapacity": {"memory": "20Gi"}}

    assert gpus() == (4000, [1000, 1000, 1000, 1000])
    assert gpus(allocated("whole")) == (4000, [1000, 1000, 1000, 0])
    assert gpus(allocated("shared", **share)) == (4000, [1000, 1000, 1000, 750])
    assert gpus(allocated("gpu-0-7g-0", pool="p")) == (4000, [1000, 1000, 1000, 0])
    assert gpus(allocated("gpu-0-4g-0", pool="p")) == (4000, [1000, 1000, 1000, 492])


def test_a_claim_asks_for_whole_gpus_or_parts() -> None:
    devices, _ = live(partitions(1))
    shared = offer("s", [device("d", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})])
    others, _ = live([shared])

    def wanted(of: Devices, asks: ResourceClaim) -> tuple[int, int]:
        return of.gpus_wanted(of.asked([asks]))

    assert wanted(devices, partition("7g")) == (1, 1000)
    assert wanted(devices, partition("1g", 2)) == (2, 127)
    assert wanted(others, claim(exactly(capacity={"requests": {"memory": "20Gi"}}))) == (1, 250)
    assert wanted(live([offer("s", [device("d")])])[0], claim(exactly(3))) == (3, 1000)
    assert wanted(live([offer("s", [device("d")], driver="nic")])[0], claim(exactly(3))) == (0, 0)


def test_unhealthy_gpus_do_not_count() -> None:
    taint = [{"key": "k", "effect": "NoSchedule"}]
    devices, nodes = live([offer("s", [device("d0", taints=taint), device("d1")])])

    assert int(devices.gpus(nodes)[0][0]) == 1000
