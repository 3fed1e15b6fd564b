"""Gangs with devices: all leases are taken before any pod is bound, and one that is lost undoes the whole gang."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from gangline import Term, Unavailable, custom_resources, resources
from gangline.testing import make_pod
from gangline_plugins.gpu.leases.holds import Hold, lease_of

from .lease_cases import LATENCY, NAMESPACE, LeaseCluster

GANG = {"gang.scheduling.koordinator.sh/name": "a", "gang.scheduling.koordinator.sh/min-available": "4"}
NAMES = tuple(f"a-{number}" for number in range(4))
NOW = "2026-01-01T00:00:00.000000Z"
LARGE_GANG = (8, 8, 20) if os.environ.get("CI") else (8, 5, 10)
"""Devices of each member, members, and nodes: there is room for two such gangs."""


@pytest.mark.parametrize("granularity", ["device", "node"])
def test_every_member_of_a_gang_has_its_own_devices(granularity: str) -> None:
    cluster = LeaseCluster(nodes=2)
    cluster.add_claim(count=4)
    for name in NAMES:
        cluster.add_pod(name, annotations=GANG)

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity, gangs=True):
            await cluster.until_bound(*NAMES)

    cluster.play(story)

    assert cluster.held() == cluster.allocated() and len(cluster.held()) == 16


def test_a_lease_that_is_lost_undoes_the_whole_gang() -> None:
    cluster = LeaseCluster(nodes=2)
    cluster.add_claim(count=4)
    for name in NAMES:
        cluster.add_pod(name, annotations=GANG)
    other = cluster.add_pod("other", uses="", scheduler="another")
    bound: list[str] = []

    def steal(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if verb == "bind":
            bound.append(name)
        if (
            verb == "create"
            and resource is resources.LEASES
            and name == "gpu-node-1-7"
            and name not in cluster.leases()
        ):
            taken = Hold(pod="default/other", by="other.1", ids=(7,))
            cluster.add_lease(lease_of(name, NAMESPACE, "node-1", {other: taken}, NOW))

    async def story() -> None:
        async with cluster.scheduler(faults=steal, gangs=True) as scheduler:
            await cluster.until(lambda: "gpu-node-1-7" in cluster.leases(), 60)
            await cluster.until(lambda: list(cluster.leases()) == ["gpu-node-1-7"], 60)
            assert not bound and not scheduler.cache.pods

    cluster.play(story)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bound", [1, 2, 3])
def test_a_gang_of_which_a_dead_scheduler_has_bound_a_part_is_whole_soon(bound: int, seed: int) -> None:
    cluster = LeaseCluster(nodes=4)
    cluster.add_claim(count=8)
    for name in NAMES:
        cluster.add_pod(name, annotations=GANG)

    def some() -> bool:
        return sum(bool(cluster.pod(name).spec.node_name) for name in NAMES) >= bound

    tried = 0

    def stop(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        nonlocal tried
        tried += verb == "bind"
        return (
            Unavailable(503, "ServiceUnavailable", "the scheduler is being killed")
            if verb == "bind" and tried > bound
            else None
        )

    async def story() -> None:
        async with cluster.scheduler(gangs=True, faults=stop):
            await cluster.until(some, 60)
        assert sum(bool(cluster.pod(name).spec.node_name) for name in NAMES) == bound
        async with cluster.scheduler(gangs=True, seed=seed):
            await cluster.until_bound(*NAMES, seconds=20)

    cluster.play(story)

    assert cluster.held() == cluster.allocated() and len(cluster.held()) == 32


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_a_leader_that_is_told_to_stop_leaves_no_gang_in_part(bound: int) -> None:
    cluster = LeaseCluster(nodes=4)
    cluster.add_claim(count=8)
    for name in NAMES:
        cluster.add_pod(name, annotations=GANG)
    slow = {**LATENCY, "bind": 1.0}

    async def story() -> None:
        async with cluster.scheduler(gangs=True, latency=slow, concurrency=1) as scheduler:
            await cluster.until(lambda: count_bound(cluster) == bound, 60)
            cluster.add_pod("late")
            await scheduler.finish()
            assert count_bound(cluster) == len(NAMES)
            await asyncio.sleep(10)
        assert not cluster.pod("late").spec.node_name

    cluster.play(story)

    assert cluster.held() == cluster.allocated() and len(cluster.held()) == 32


def test_a_leader_that_is_told_to_stop_waits_for_a_slow_api_server_for_some_seconds_only() -> None:
    cluster = LeaseCluster(nodes=4)
    cluster.add_claim(count=8)
    for name in NAMES:
        cluster.add_pod(name, annotations=GANG)

    async def story() -> None:
        async with cluster.scheduler(gangs=True, latency={**LATENCY, "bind": 20.0}) as scheduler:
            await cluster.until(lambda: len(cluster.held()) == 32, 60)
            await asyncio.sleep(1)
            before = cluster.clock.monotonic()
            await scheduler.finish()
            assert cluster.clock.monotonic() - before == pytest.approx(5.0, abs=0.5)
            assert not count_bound(cluster)

    cluster.play(story)


def count_bound(cluster: LeaseCluster) -> int:
    """How many members have a node."""
    return sum(bool(cluster.pod(name).spec.node_name) for name in NAMES)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
@pytest.mark.parametrize(("count", "members", "nodes"), [(8, 4, 8), (4, 6, 8), (2, 8, 4), LARGE_GANG])
@pytest.mark.parametrize(
    ("terms", "within"),
    [
        pytest.param((Term("locks/us/9"), Term("locks/us/10", 0.0)), 1.0, id="one leader after the other"),
        pytest.param((Term("locks/us/9"), Term("locks/us/10", 1e9)), 10.0, id="after a leader that was killed"),
        pytest.param((Term(), Term()), 10.0, id="without election"),
        pytest.param((Term("locks/us/9"), Term("locks/them/10", 0.0)), 10.0, id="of another election"),
    ],
)
def test_locks_of_a_former_scheduler_never_keep_a_gang_waiting_that_is_placed_elsewhere(
    terms: tuple[Term, Term], within: float, count: int, members: int, nodes: int, part: float
) -> None:
    cluster = LeaseCluster(nodes=nodes)
    cluster.add_claim(count=count)
    names = [f"b-{number}" for number in range(members)]
    for name in names:
        cluster.add_pod(name, annotations={**GANG, "gang.scheduling.koordinator.sh/min-available": str(members)})
    most, created = part * count * members, 0

    def stop(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        nonlocal created
        created += (verb, resource) == ("create", resources.LEASES)
        ended = (resource is resources.LEASES and verb in ("create", "delete") and created > most) or verb == "bind"
        return Unavailable(503, "ServiceUnavailable", "the scheduler is being killed") if ended else None

    async def story() -> None:
        async with cluster.scheduler(gangs=True, faults=stop, term=terms[0]):
            await cluster.until(lambda: created > most, 60)
        first = min(node for node, _ in cluster.held())
        cluster.server.patch(
            resources.NODES, first, {"spec": {"unschedulable": True}}
        )  # so all members have other places
        async with cluster.scheduler(gangs=True, term=terms[1]):
            await cluster.until_bound(*names, seconds=within)
            await cluster.until(lambda: cluster.held() == cluster.allocated(), 60)

    cluster.play(story)

    assert len(cluster.held()) == count * members


@pytest.mark.parametrize(("nodes", "within"), [(4, 15.0), (2, 75.0)], ids=["room elsewhere", "no room elsewhere"])
def test_members_that_change_places_with_each_other_are_bound_although_their_leader_has_died(
    nodes: int, within: float
) -> None:
    cluster = LeaseCluster(nodes=nodes)
    cluster.add_claim(count=4)
    uids = {name: cluster.add_pod(name, annotations=GANG) for name in NAMES}
    places = {"a-0": ("node-0", 4), "a-1": ("node-0", 0), "a-2": ("node-1", 4), "a-3": ("node-1", 0)}
    for name, (node, start) in places.items():
        for id in range(start, start + 4):
            hold = Hold(pod=f"default/{name}", by="dead.1", ids=(id,), term="locks/us/9")
            cluster.add_lease(lease_of(f"gpu-{node}-{id}", NAMESPACE, node, {uids[name]: hold}, NOW))

    async def story() -> None:
        async with cluster.scheduler(gangs=True, term=Term("locks/us/10", 60.0)):
            await cluster.until_bound(*NAMES, seconds=within)
            await cluster.until(lambda: cluster.held() == cluster.allocated(), 90)

    cluster.play(story)

    assert len(cluster.held()) == 16


@pytest.mark.parametrize(("settled", "after", "within"), [(0.0, 0.0, 5.0), (40.0, 40.0, 52.0)], ids=["clean", "killed"])
def test_a_gang_takes_devices_that_a_former_leader_has_locked_for_others_that_wait(
    settled: float, after: float, within: float
) -> None:
    cluster = LeaseCluster(nodes=2)
    cluster.add_claim(count=4)
    other = cluster.add_pod("other", uses="", scheduler="another")
    for node, id in [(f"node-{number}", id) for number in range(2) for id in range(8)]:
        hold = Hold(pod="default/other", by="former.1", ids=(id,), term="locks/us/9")
        cluster.add_lease(lease_of(f"gpu-{node}-{id}", NAMESPACE, node, {other: hold}, NOW))
    for name in NAMES:
        cluster.add_pod(name, annotations=GANG)

    async def story() -> float:
        async with cluster.scheduler(gangs=True, term=Term("locks/us/10", cluster.clock.monotonic() + settled)):
            await cluster.until_bound(*NAMES, seconds=within)
            return cluster.clock.monotonic()

    began = cluster.clock.monotonic()

    assert cluster.play(story) - began >= after
    assert cluster.held() == cluster.allocated() and len(cluster.held()) == 16


def test_a_leader_with_a_smaller_number_is_no_former_one_if_it_appears_later() -> None:
    """Somebody has deleted the Lease of the election: the next leader begins with 0, and this one leads on a while."""
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=8)
    other = cluster.add_pod("other", uses="", scheduler="another")
    hold = Hold(pod="default/other", by="next.1", ids=(7,), term="locks/us/0")

    def lock(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if (verb, name) == ("create", "gpu-node-0-7") and not cluster.leases().get(name):
            cluster.add_lease(lease_of(name, NAMESPACE, "node-0", {other: hold}, NOW))

    async def story() -> None:
        async with cluster.scheduler(term=Term("locks/us/1", 0.0), faults=lock):
            await asyncio.sleep(5)
            cluster.add_pod("train")
            await asyncio.sleep(40)

    cluster.play(story)

    assert cluster.held() == {("node-0", 7): [other]} and not cluster.pod("train").spec.node_name


def test_a_gang_never_waits_for_locks_that_its_own_last_attempt_could_not_release_yet() -> None:
    cluster = LeaseCluster(nodes=2)
    cluster.add_claim(count=4)
    for number, name in enumerate(NAMES):
        notes = {**GANG, custom_resources.CLAIM: "claim"}
        node = {"side": "left" if number < 2 else "right"}
        cluster.create(resources.PODS, make_pod(name, annotations=notes, scheduler_name="gpus", node_selector=node))
    refused: list[str] = []

    def sides(first: str, second: str) -> None:
        for node, side in (("node-0", first), ("node-1", second)):
            cluster.server.patch(resources.NODES, node, {"metadata": {"labels": {"side": side}}})

    def fail(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == "create" and resource is resources.LEASES and len(cluster.held()) == 15 and not refused:
            refused.append(name)
            sides("right", "left")  # so each member needs the devices of others
            return Unavailable(503, "ServiceUnavailable", "not now")
        is_release = verb == "delete" and resource is resources.LEASES and not count_bound(cluster)
        return Unavailable(503, "ServiceUnavailable", "not now") if is_release else None

    async def story() -> float:
        sides("left", "right")
        async with cluster.scheduler(gangs=True, faults=fail):
            await cluster.until(lambda: bool(refused), 60)
            waited = await cluster.until(lambda: count_bound(cluster) == len(NAMES), 60)
            await cluster.until(lambda: cluster.held() == cluster.allocated(), 60)
            return waited

    assert cluster.play(story) < 3.0  # one pause of the queue, and no more
    assert len(cluster.held()) == 16
