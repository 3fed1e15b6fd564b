"""Pods that are placed at once get the devices that they get one after the other, and leave no trace when undone."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import PodInfo, model, resources
from gangline.testing import cluster, make_node
from gangline_plugins.dynamic_resources.ledger import Ledger
from gangline_plugins.dynamic_resources.orders import BEST, UPSTREAM, Order
from gangline_plugins.twin_gpus import TwinGpus

from .claim_cases import DRIVER, exactly, spec

NODES = 4
DEVICES = 3
KINDS = ("plain", "plain", "plain", "shared", "for all nodes")


class Members:
    """Like pods, some of whose claims are their own, on nodes with a few devices."""

    def __init__(self, seed: int, order: Order, kind: str = "", counts: tuple[int, ...] = (1, 1, 1, 2)) -> None:
        random = Random(seed)
        self.cache = cluster([make_node(f"n{row}") for row in range(NODES)])
        self.cache.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu")))
        self._offer(kind or random.choice(KINDS))
        self.ledger = self.cache.tracker(Ledger, self.cache)
        self.ledger.orders.add("default", order, self.cache)
        self.claims: list[model.ResourceClaim] = []
        entries = [model.PodResourceClaim("own", None, "template")]
        if not kind and random.random() < 0.2:
            entries.append(model.PodResourceClaim("all", "all"))
            self._claim("all", spec())
        size = random.randint(2, 3 * NODES)
        specs = [spec(exactly(count)) for count in random.choices(counts, k=2)]
        odd = random.randrange(size) if not kind and random.random() < 0.2 else -1
        had = random.randrange(size) if not kind and random.random() < 0.2 else -1
        self.pods = [self._pod(f"p{at}", entries, specs[at == odd], on="n0" if at == had else "") for at in range(size)]
        self.guest = self._pod("guest", entries[:1], specs[0])
        self.where = [at % NODES for at in range(size)]

    def _offer(self, kind: str) -> None:
        for row in range(NODES):
            name = f"n{row}"
            devices = [
                model.Device(f"d{at}", allow_multiple_allocations=True if kind == "shared" and at == 2 else None)
                for at in range(DEVICES)
            ]
            is_for_all = kind == "for all nodes" and row == 0
            made = model.ResourceSliceSpec(
                DRIVER,
                model.ResourcePool(name, 1, 1),
                None if is_for_all else name,
                all_nodes=True if is_for_all else None,
                devices=devices,
            )
            self.cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(name), made))

    def _claim(self, name: str, of: model.ResourceClaimSpec, owner: str = "", on: str = "") -> None:
        owners = [model.OwnerReference(kind="Pod", name=owner, uid=owner, controller=True)] if owner else []
        metadata = model.ObjectMeta(name, "default", f"u-{name}", "1", owner_references=owners)
        status = model.ResourceClaimStatus()
        if on:
            had = model.AllocatedDevices([model.AllocatedDevice(DRIVER, on, "d0", request="gpu")])
            status.allocation = model.ResourceClaimAllocation(had)
        self.claims.append(model.ResourceClaim(metadata, of, status))
        self.cache.store(resources.RESOURCE_CLAIMS).upsert(self.claims[-1])

    def _pod(
        self, name: str, entries: list[model.PodResourceClaim], of: model.ResourceClaimSpec, on: str = ""
    ) -> PodInfo:
        self._claim(name, of, owner=name, on=on)
        metadata = model.ObjectMeta(name, "default", name)
        status = model.PodStatus(resource_claim_statuses=[model.PodResourceClaimStatus("own", name)])
        made = model.PodSpec(
            containers=[model.Container("main", "image")], resource_claims=entries, scheduler_name="default"
        )
        return self.cache.record(model.Pod(metadata=metadata, spec=made, status=status))

    def rounds(self) -> list[tuple[list[PodInfo], list[int]]]:
        """As a gang is placed: one pod on each node at a time."""
        pairs = list(zip(self.pods, self.where, strict=True))
        chunks = [pairs[at : at + NODES] for at in range(0, len(pairs), NODES)]
        return [([pod for pod, _ in each], [row for _, row in each]) for each in chunks]

    def known(self) -> list[Any]:
        """All that is known of claims and devices."""
        entries = {
            uid: (plain(each.guess), {*each.consumers}, {*each.guessing}, plain(each.taken), each.taken and each.turn)
            for uid, each in self.ledger._entries.items()
            if each.claim is not None or not each.is_empty
        }
        standing = self.ledger.devices._current()[0]
        usage = [dict(each) for each in (standing.usage.taken, standing.usage.shared, standing.usage.consumed)]
        taken = {uid: plain(each) for uid, each in self.ledger.devices._taken.items()}
        levels = self.ledger.levels.below(1, NODES).tolist()
        return [entries, standing.states.tolist(), usage, taken, dict(self.ledger._pods), levels]


def plain(allocation: model.ResourceClaimAllocation | None) -> Any:
    """An allocation with any shareID as one."""
    found = msgspec.to_builtins(allocation)
    for result in found["devices"]["results"] if found else ():
        result.update({"shareID": "any"} if "shareID" in result else {})
    return found


def narrow(members: Members, random: Random, stack: ExitStack) -> None:
    """What may keep pods from being independent, beyond their claims."""
    ledger = members.ledger
    if random.random() < 0.2:
        ledger.guests.nominated = lambda: {"n1": {members.guest.uid: members.guest}}
    if random.random() < 0.2:
        stack.enter_context(ledger.concessions.made_by([members.pods[0].uid]))
    if random.random() < 0.2:
        uids = frozenset(pod.uid for pod in members.pods)
        stack.enter_context(ledger.narrowings.to(members.claims[:1], uids, np.arange(2)))


@given(st.integers(0, 2**32), st.sampled_from((UPSTREAM, BEST)))
def test_pods_at_once_get_the_devices_that_they_get_one_by_one(seed: int, order: Order) -> None:
    found = []
    for is_at_once in (True, False):
        members, stack = Members(seed, order), ExitStack()
        random = Random(seed)
        with stack, members.cache.transaction() as tx:
            narrow(members, random, stack)
            before = members.known()
            for pods, rows in members.rounds():
                if is_at_once:
                    tx.place_all(pods, rows)
                else:
                    for pod, row in zip(pods, rows, strict=True):
                        tx.place(pod, row)
            found.append(members.known())
            tx.rollback()
            assert members.known() == before
            for pods, rows in members.rounds():
                tx.place_all(pods, rows)
            again = members.known()
        assert without_turns(again) == without_turns(found[-1])
    assert found[0] == found[1]


def without_turns(known: list[Any]) -> list[Any]:
    return [{uid: each[:-1] for uid, each in known[0].items()}, *known[1:]]


@pytest.mark.parametrize("order", [UPSTREAM, BEST])
def test_a_round_of_independent_pods_is_one_step(order: Order) -> None:
    members = Members(1, order, "plain", counts=(1,))
    pods, rows = members.rounds()[0]
    calls = []
    each = members.ledger.devices.allocate_each

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(each(*args, **options))
        return calls[-1]

    members.ledger.devices.allocate_each = counted  # type: ignore[method-assign]  # the ledger's own, to see the calls
    with members.cache.transaction() as tx:
        tx.place_all(pods, rows)
        assert len(calls) == 1 and calls[0] is not None and len(calls[0]) == len(pods)


def test_pods_on_nodes_that_report_the_devices_as_gpus_come_one_by_one() -> None:
    members = Members(1, UPSTREAM, "plain", counts=(1,))
    told: list[int] = []

    class Told(TwinGpus):
        def concern(self, devices: Any) -> bool:
            return True

        def claims_changed(self, devices: Any) -> None:
            told.append(len(list(devices)))

    members.ledger.twins = Told(members.cache)
    pods, rows = members.rounds()[0]
    with members.cache.transaction() as tx:
        tx.place_all(pods, rows)
        assert told == [1] * len(pods)
