"""Leases are freed when their pod has ended, was made anew or is elsewhere, when their node is gone, and only then."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from gangline import LANDING, Forbidden, resources
from gangline.testing import FakeClock, FakeHandle, cluster, make_node, make_pod
from gangline_plugins.gpu.leases.book import lease_book
from gangline_plugins.gpu.leases.holds import Hold, holders_of, lease_of
from gangline_plugins.gpu.leases.leaders import FRESH
from gangline_plugins.gpu.leases.locks import Locks
from gangline_plugins.gpu.leases.reaper import ABANDONED, BREATH, SWEEP, Reaper

from ..lease_cases import ELECTION, NAMESPACE, LeaseCluster, plain

NOW = "2026-01-01T00:00:00.000000Z"
SOON = 2.0  # seconds in which devices are free again
GRANULARITIES = pytest.mark.parametrize("granularity", ["device", "node"])


def one_pod() -> LeaseCluster:
    cluster = LeaseCluster(nodes=2)
    cluster.add_claim(count=4)
    cluster.add_pod("train")
    return cluster


def lock(cluster: LeaseCluster, uid: str, pod: str, node: str = "node-0", id: int = 0) -> None:
    holders = {uid: Hold(pod=pod, by="dead.1", ids=(id,))}
    cluster.add_lease(lease_of(f"gpu-{node}-{id}", NAMESPACE, node, holders, NOW))


@GRANULARITIES
@pytest.mark.parametrize("end", ["deleted", "Succeeded", "Failed"])
def test_devices_are_free_soon_after_the_pod_has_ended(end: str, granularity: str) -> None:
    cluster = one_pod()
    cluster.add_pod("stays")

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound("train", "stays")
            if end == "deleted":
                cluster.server.delete(resources.PODS, "train", grace_period_seconds=0)
            else:
                cluster.set_phase("train", end)
            await cluster.until(lambda: len(cluster.held()) == 4, SOON)

    cluster.play(story)

    assert {uid for uids in cluster.held().values() for uid in uids} == {cluster.pod("stays").metadata.uid}


def test_a_freed_device_is_given_to_a_pod_that_waits() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=8)
    cluster.add_pod("first")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound("first")
            second = cluster.add_pod("second")
            await cluster.until(lambda: bool(cluster.notes("second")), 5)
            cluster.server.delete(resources.PODS, "first", grace_period_seconds=0)
            await cluster.until_bound("second", seconds=15)
            await cluster.until(lambda: cluster.held() == {("node-0", id): [second] for id in range(8)}, 5)

    cluster.play(story)

    assert cluster.held() == cluster.allocated()


def test_what_the_reaper_of_one_profile_frees_that_of_another_leaves_alone() -> None:
    cluster = LeaseCluster(nodes=2)
    for id in range(8):
        lock(cluster, f"uid-{id}", f"default/gone-{id}", id=id)
    requests: Counter[tuple[str, str]] = Counter()

    def note(verb: str, resource: resources.Resource[Any], name: str) -> None:
        requests[verb, name] += 1

    async def story() -> None:
        async with cluster.scheduler("gpus", "other", faults=note):
            await asyncio.sleep(2 * SWEEP)

    cluster.play(story)

    assert not cluster.held()
    asked = {name: count for (verb, name), count in requests.items() if verb == "get" and name.startswith("gone")}
    assert asked == {f"gone-{id}": 1 for id in range(8)}


def test_a_pod_that_has_gone_is_not_asked_for_per_lease_and_no_lease_is_deleted_twice() -> None:
    cluster = LeaseCluster(nodes=2)
    cluster.add_claim(count=8)
    cluster.add_claim("small", count=4)
    requests: Counter[tuple[str, str]] = Counter()

    def note(verb: str, resource: resources.Resource[Any], name: str) -> None:
        requests[verb, name] += 1

    async def story() -> None:
        async with cluster.scheduler(faults=note):
            for name in ("first", "second"):
                cluster.add_pod(name)
            await cluster.until_bound("first", "second")
            for number in range(3):
                cluster.add_pod(f"next-{number}", uses="small")
            for name in ("first", "second"):
                cluster.server.delete(resources.PODS, name, grace_period_seconds=0)
            await cluster.until_bound("next-0", "next-1", "next-2", seconds=15)
            await cluster.until(lambda: cluster.held() == cluster.allocated(), SOON)
            await asyncio.sleep(2 * SWEEP)

    cluster.play(story)

    most = 3  # by the reaper and, at the same time, by the pods that take the devices
    assert all(1 <= requests["get", name] <= most for name in ("first", "second")), requests
    deleted = {name: count for (verb, name), count in requests.items() if verb == "delete"}
    assert set(deleted.values()) == {1}, deleted


@GRANULARITIES
def test_leases_of_a_node_that_is_gone_stay_until_the_pod_is_deleted(granularity: str) -> None:
    cluster = one_pod()

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound("train")
            cluster.server.delete(resources.NODES, cluster.pod("train").spec.node_name)
            await asyncio.sleep(2 * SWEEP)
            assert len(cluster.held()) == 4
            cluster.server.delete(resources.PODS, "train", grace_period_seconds=0)
            await cluster.until(lambda: not cluster.leases(), SWEEP + SOON)

    cluster.play(story)


def test_leases_of_a_node_that_only_cannot_be_read_are_kept() -> None:
    cluster = one_pod()

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until_bound("train")
            node = cluster.pod("train").spec.node_name
            cluster.server.patch(
                resources.NODES, node, {"status": {"allocatable": {"cpu": "lots"}}}, subresource="status"
            )
            await cluster.until(lambda: scheduler.cache.nodes.row_of(node) is None, 5)
            await asyncio.sleep(2 * SWEEP)

    cluster.play(story)

    assert len(cluster.held()) == 4


@pytest.mark.parametrize("uid", ["pod-default-train", "an-older-uid"], ids=["gone", "made anew"])
def test_what_a_dead_scheduler_left_behind_is_freed_at_the_start(uid: str) -> None:
    cluster = LeaseCluster(nodes=1)
    lock(cluster, uid, "default/train", id=3)
    if uid == "an-older-uid":
        cluster.add_pod("train", uses="", scheduler="another")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: not cluster.leases(), SOON)

    cluster.play(story)


def test_a_lease_of_a_pod_that_another_scheduler_may_be_binding_is_kept() -> None:
    cluster = LeaseCluster(nodes=1)
    uid = cluster.add_pod("train", uses="", scheduler="another")
    lock(cluster, uid, "default/train")

    async def story() -> None:
        async with cluster.scheduler():
            await asyncio.sleep(3 * SWEEP)

    cluster.play(story)

    assert list(cluster.leases()) == ["gpu-node-0-0"]


@GRANULARITIES
def test_a_lease_of_a_pod_that_is_deleted_before_it_is_bound_is_freed_soon(granularity: str) -> None:
    cluster = LeaseCluster(nodes=1)
    uid = cluster.add_pod("train", uses="", scheduler="another")
    holders = {uid: Hold(pod="default/train", by="dead.1", ids=(2,))}
    name = "gpu-node-0-2" if granularity == "device" else "gpu-node-0"

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await asyncio.sleep(SWEEP / 2)
            cluster.add_lease(lease_of(name, NAMESPACE, "node-0", holders, NOW))
            await asyncio.sleep(SWEEP / 4)
            cluster.server.delete(resources.PODS, "train", grace_period_seconds=0)
            await cluster.until(lambda: not cluster.leases(), SOON)

    cluster.play(story)


def test_a_lease_that_is_written_after_its_pod_was_deleted_is_freed_soon() -> None:
    cluster = LeaseCluster(nodes=1)

    async def story() -> None:
        async with cluster.scheduler():
            await asyncio.sleep(SWEEP / 2)
            lock(cluster, "pod-default-train", "default/train")
            await cluster.until(lambda: not cluster.leases(), SOON)

    cluster.play(story)


def test_devices_are_free_soon_although_others_keep_changing_the_lease_of_the_node() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=1)
    cluster.add_pod("train")
    other = cluster.add_pod("other", uses="", scheduler="another")
    changes = iter(range(3))

    def interfere(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if (
            resource is resources.LEASES
            and verb in ("delete", "replace")
            and (number := next(changes, None)) is not None
        ):
            lease = cluster.leases()["gpu-node-0"]
            holders = {**holders_of(lease), other: Hold(pod="default/other", by=f"other.{number}", ids=(7,))}
            cluster.server.replace(
                resources.LEASES, plain(lease_of("gpu-node-0", NAMESPACE, "node-0", holders, NOW, lease))
            )

    async def story() -> None:
        async with cluster.scheduler(granularity="node", faults=interfere):
            await cluster.until_bound("train")
            cluster.server.delete(resources.PODS, "train", grace_period_seconds=0)
            await cluster.until(lambda: cluster.held() == {("node-0", 7): [other]}, SOON)

    cluster.play(story)

    assert next(changes, None) is None


def test_a_lease_of_a_pod_that_never_goes_anywhere_is_freed_in_the_end() -> None:
    cluster = LeaseCluster(nodes=1)
    uid = cluster.add_pod("train", uses="", scheduler="another")
    lock(cluster, uid, "default/train")

    async def story() -> float:
        async with cluster.scheduler():
            return await cluster.until(lambda: not cluster.leases(), ABANDONED + 2 * SWEEP)

    assert cluster.play(story) >= ABANDONED


def elect(cluster: LeaseCluster, identity: str, number: int) -> None:
    """Somebody else becomes the leader, or nobody."""
    namespace, _, name = ELECTION.partition("/")
    spec = {"holderIdentity": identity, "leaseTransitions": number}
    cluster.server.apply(resources.LEASES, name, {"spec": spec}, field_manager="test", namespace=namespace)


def lock_under(cluster: LeaseCluster, term: str) -> None:
    """A leader locks a device for a pod that waits."""
    uid = cluster.add_pod("train", uses="", scheduler="another")
    hold = Hold(pod="default/train", by="first.1", ids=(0,), term=term)
    cluster.add_lease(lease_of("gpu-node-0-0", NAMESPACE, "node-0", {uid: hold}, NOW))


@pytest.mark.parametrize(("leader", "number"), [("another", 8), ("first", 8), ("", 7)])
def test_a_lease_of_a_waiting_pod_ends_soon_after_its_scheduler_leads_no_more(leader: str, number: int) -> None:
    cluster = LeaseCluster(nodes=1)
    elect(cluster, "first", 7)
    lock_under(cluster, f"{ELECTION}/7")

    async def story() -> float:
        async with cluster.scheduler():
            await asyncio.sleep(3 * SWEEP)
            assert cluster.leases()
            elect(cluster, leader, number)
            return await cluster.until(lambda: not cluster.leases(), ABANDONED)

    waited = cluster.play(story)

    assert LANDING <= waited <= LANDING + FRESH + SOON


@pytest.mark.parametrize(
    ("term", "may_read"),
    [
        pytest.param(f"{ELECTION}/7", True, id="it leads"),
        pytest.param(f"{ELECTION}/6", False, id="the Lease cannot be read"),
        pytest.param(f"{ELECTION}/six", True, id="its number cannot be read"),
        pytest.param("", True, id="without election"),
    ],
)
def test_a_lease_of_a_waiting_pod_is_kept_while_its_scheduler_may_lead(term: str, may_read: bool) -> None:
    cluster = LeaseCluster(nodes=1)
    elect(cluster, "first", 7)
    lock_under(cluster, term)

    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        is_read = (verb, name) == ("get", ELECTION.partition("/")[2])
        return Forbidden(403, "Forbidden", "leases is forbidden") if is_read and not may_read else None

    async def story() -> float:
        async with cluster.scheduler(faults=refuse):
            return await cluster.until(lambda: not cluster.leases(), ABANDONED + 2 * SWEEP)

    assert cluster.play(story) >= ABANDONED - SWEEP


def test_a_lease_of_a_process_that_led_under_the_same_number_ends_soon() -> None:
    """Somebody has deleted the Lease of the election, so numbers begin anew."""
    cluster = LeaseCluster(nodes=1)
    lock_under(cluster, f"{ELECTION}/0")

    async def story() -> float:
        async with cluster.scheduler(identity="second"):
            return await cluster.until(lambda: not cluster.leases(), ABANDONED)

    assert LANDING <= cluster.play(story) <= LANDING + SWEEP + SOON


def test_a_lease_that_a_scheduler_has_adopted_ends_soon_after_the_attempt_and_its_first_scheduler() -> None:
    """The Lease of the election was deleted, so the first scheduler's number is no proof that it came before."""
    cluster = one_pod()
    uid = cluster.pod("train").metadata.uid
    hold = Hold(pod="default/train", by="first.1", ids=(0,), term=f"{ELECTION}/7")
    cluster.add_lease(lease_of("gpu-node-0-0", NAMESPACE, "node-0", {uid: hold}, NOW))
    cluster.server.patch(resources.NODES, "node-1", {"spec": {"unschedulable": True}})

    owners: set[str] = set()

    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb != "bind":
            return None
        owners.update(hold.owner for hold in holders_of(cluster.leases()["gpu-node-0-0"]).values())
        return Forbidden(403, "Forbidden", "no bindings")

    async def story() -> float:
        async with cluster.scheduler(identity="second", faults=refuse):
            await cluster.until(lambda: "first.1" in owners, 10)
            cluster.server.patch(resources.NODES, "node-0", {"spec": {"unschedulable": True}})
            return await cluster.until(lambda: not cluster.leases(), ABANDONED)

    assert cluster.play(story) <= LANDING + SWEEP + SOON


def test_leases_that_are_not_ours_are_left_alone() -> None:
    cluster = LeaseCluster(nodes=1)
    foreign = lease_of("gpu-node-0-0", "elsewhere", "node-0", {"gone": Hold(pod="a/gone", by="x.1", ids=(0,))}, NOW)
    cluster.add_lease(foreign)

    async def story() -> None:
        async with cluster.scheduler():
            await asyncio.sleep(2 * SWEEP)

    cluster.play(story)

    assert cluster.server.get(resources.LEASES, "gpu-node-0-0", namespace="elsewhere")


def test_a_lease_without_holders_is_deleted() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_lease(lease_of("gpu-node-0", NAMESPACE, "node-0", {}, NOW))

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: not cluster.leases(), SOON)

    cluster.play(story)


async def test_a_look_at_very_many_leases_lets_others_have_their_turns() -> None:
    count = 8 * BREATH
    cache = cluster([make_node("a")], [make_pod(f"p{n}", node="a") for n in range(count)])
    leases = cache.store(resources.LEASES)
    for n in range(count):
        holders = {f"pod-default-p{n}": Hold(pod=f"default/p{n}", by="one.1", ids=(0,))}
        leases.upsert(lease_of(f"gpu-a-{n}", NAMESPACE, "a", holders, NOW))
    handle, book = FakeHandle(cache), lease_book(cache)
    reaper = Reaper(handle, Locks(handle.client, NAMESPACE, FakeClock(), leases, book.held), book)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(other())
    await reaper.sweep()
    task.cancel()

    assert turns >= count // BREATH - 1
