"""The ledger holds no device twice, whatever comes in whichever order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gangline import model, resources
from gangline.testing import cluster, make_node, make_pod
from gangline_plugins.dynamic_resources.ledger import Ledger

from .claim_cases import DRIVER, spec

PODS = st.integers(0, 5)
CLAIMS = st.integers(0, 3)
NODES = 2
DEVICES = 1


class Steps(RuleBasedStateMachine):
    """Six pods share four claims on two nodes with one device each."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = cluster([make_node(f"n{row}") for row in range(NODES)])
        self.cache.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu")))
        for row in range(NODES):
            devices = [model.Device(f"d{number}") for number in range(DEVICES)]
            made = model.ResourceSliceSpec(DRIVER, model.ResourcePool(f"n{row}", 1, 1), f"n{row}", devices=devices)
            self.cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(f"s{row}"), made))
        self.ledger = self.cache.tracker(Ledger, self.cache)
        self.version = 0
        self.made: dict[int, model.ResourceClaim] = {}
        self.placed: dict[int, int] = {}
        self.firm: dict[int, list[model.ResourceClaim]] = {}
        self.pods = [
            self.cache.record(make_pod(f"p{number}", resource_claims=[model.PodResourceClaim("c", f"c{number % 4}")]))
            for number in range(6)
        ]
        for number in range(4):
            self.comes(number)

    def _write(self, number: int, claim: model.ResourceClaim, **status: Any) -> None:
        """The API server has a new state of a claim, and the watch brings it."""
        self.version += 1
        metadata = msgspec.structs.replace(claim.metadata, resource_version=str(self.version))
        changed = msgspec.structs.replace(claim.status, **status)
        self.made[number] = msgspec.structs.replace(claim, metadata=metadata, status=changed)
        self.cache.store(resources.RESOURCE_CLAIMS).upsert(self.made[number])

    @rule(number=CLAIMS)
    def comes(self, number: int) -> None:
        if number not in self.made:
            uid = f"u{self.version}-{number}"
            self._write(number, model.ResourceClaim(model.ObjectMeta(f"c{number}", "default", uid), spec()))

    @rule(number=CLAIMS)
    def goes(self, number: int) -> None:
        if number in self.made:
            del self.made[number]
            self.cache.store(resources.RESOURCE_CLAIMS).remove("default", f"c{number}")

    @rule(pod=PODS, row=st.integers(0, NODES - 1))
    def is_placed(self, pod: int, row: int) -> None:
        if pod not in self.placed:
            self.placed[pod] = row
            self.ledger.add(self.pods[pod], row)

    @rule(pod=PODS)
    def is_taken_off(self, pod: int) -> None:
        if pod in self.placed:
            self.ledger.remove(self.pods[pod], self.placed.pop(pod))

    @rule(pod=PODS)
    def is_reserved(self, pod: int) -> None:
        number = pod % 4
        if pod in self.placed and pod not in self.firm and number in self.made:
            claims = [self.made[number]]
            if self.ledger.reserve(self.pods[pod], claims, self.placed[pod]) is not None:
                self.firm[pod] = claims

    @rule(pod=PODS)
    def is_written(self, pod: int) -> None:
        number = pod % 4
        claim = self.made.get(number)
        if pod in self.firm and claim is not None and claim.metadata.uid == self.firm[pod][0].metadata.uid:
            self._write(number, claim, allocation=self.ledger.allocation(claim.metadata.uid))

    @rule(pod=PODS)
    def is_forgotten(self, pod: int) -> None:
        claims = self.firm.pop(pod, None)
        if claims is not None:
            self.ledger.forget(self.pods[pod], tuple(each.metadata.uid for each in claims))

    @rule(number=CLAIMS)
    def is_deallocated(self, number: int) -> None:
        claim = self.made.get(number)
        if claim is not None and claim.status.allocation is not None:
            self._write(number, claim, allocation=None)

    @rule(number=CLAIMS)
    def old_news_comes_late(self, number: int) -> None:
        claim = self.made.get(number)
        if claim is not None:
            before = self.ledger.allocation(claim.metadata.uid)
            late = msgspec.structs.replace(
                claim,
                metadata=msgspec.structs.replace(claim.metadata, resource_version="0"),
                status=model.ResourceClaimStatus(),
            )
            self.ledger.learn(late)
            assert self.ledger.allocation(claim.metadata.uid) is before

    @invariant()
    def no_device_is_in_two_claims(self) -> None:
        allocations = [self.ledger.allocation(each.metadata.uid) for each in self.made.values()]
        taken = Counter(
            (each.pool, each.device) for found in allocations if found is not None for each in found.devices.results
        )
        assert all(number == 1 for number in taken.values())

    @invariant()
    def nothing_is_held_for_nobody(self) -> None:
        for claim in self.made.values():
            uid = claim.metadata.uid
            if claim.status.allocation is None and not any(
                each.metadata.uid == uid for claims in self.firm.values() for each in claims
            ):
                users = [pod for pod in self.placed if self.ledger.consumers(uid) & {self.pods[pod].uid}]
                assert users or self.ledger.allocation(uid) is None

    def teardown(self) -> None:
        for pod in list(self.placed):
            self.is_taken_off(pod)
        for pod in list(self.firm):
            self.is_forgotten(pod)
        for number in list(self.made):
            self.goes(number)
        assert not self.ledger._entries


TestSteps = Steps.TestCase
TestSteps.settings = settings(
    max_examples=settings().max_examples * 3 // 5,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
