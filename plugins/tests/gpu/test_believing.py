"""What a bound pod says that it has counts as far as a lease, a claim, a request or a map goes with it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import PodInfo, custom_resources, model, resources
from gangline.testing import Cache, cluster, make_node, make_pod
from gangline_plugins.gpu.believing import SETTLE
from gangline_plugins.gpu.devices import DeviceTable, device_table
from gangline_plugins.gpu.leases.book import lease_book
from gangline_plugins.gpu.leases.holds import Hold, lease_of
from gangline_plugins.gpu.wants import MapProfiles

from .gpu_cases import claim, gpu_cluster, report
from .lease_cases import LeaseCluster


class World:
    """A node of 8 GPUs, and what its pods say that they have."""

    def __init__(self) -> None:
        self.cache: Cache = gpu_cluster([report("a")])
        self.table: DeviceTable = device_table(self.cache)
        lease_book(self.cache)
        self.now = 0.0

    def pod(
        self, name: str, ids: str, claimed: str = "", notes: dict[str, str] | None = None, **fields: Any
    ) -> PodInfo:
        """A bound pod that says it has these devices."""
        annotations = {
            custom_resources.ALLOCATED: ids,
            **({custom_resources.CLAIM: claimed} if claimed else {}),
            **(notes or {}),
        }
        record = self.cache.record(make_pod(name, node="a", annotations=annotations, **fields))
        self.cache.upsert_pod(record)
        return record

    def lock(self, pod: str, *ids: int) -> None:
        """Leases on devices for a pod."""
        for id in ids:
            hold = Hold(pod=f"default/{pod}", by="one.1", ids=(id,))
            lease = lease_of(f"gpu-a-{id}", "locks", "a", {f"pod-default-{pod}": hold}, "")
            self.cache.store(resources.LEASES).upsert(lease)

    def add_claim(self, name: str, count: int) -> None:
        """A claim for whole devices."""
        self.cache.store(resources.GPU_CLAIMS).upsert(claim(name, count=count))

    def settle(self) -> list[str]:
        """Time passes, until all is judged for good; returns what is doubted."""
        for _ in range(3):
            self.now += SETTLE
            list(self.table.settle_beliefs(self.now))
        return [doubt.note for doubt in self.table.beliefs.open_doubts()]

    @property
    def busy(self) -> list[int]:
        """The devices that are taken."""
        mask = int(self.table.columns.busy[0])
        return [id for id in range(16) if mask >> id & 1]


def test_a_pod_that_asks_for_no_gpu_has_none_whatever_it_says() -> None:
    world = World()

    world.pod("forged", "0,1,2,3,4,5,6,7")

    assert world.busy == []
    (doubt,) = world.settle()
    assert doubt == (
        "the pod says that it has GPUs 0,1,2,3,4,5,6,7; counted are none: no lease says so, and it may have 0"
    )


def test_a_pod_has_as_many_as_it_asks_for() -> None:
    world = World()

    world.pod("greedy", "1,2,3,4,5,6,7", gpus=2)

    assert len(world.busy) == 2 and len(world.settle()) == 1
    assert len(world.busy) == 2


def test_a_pod_has_as_many_as_its_claim_gives_it() -> None:
    world = World()
    world.add_claim("two", 2)

    world.pod("honest", "1,2", "two")
    world.pod("greedy", "3,4,5,6", "two")

    assert world.busy == [1, 2, 3, 4] and len(world.settle()) == 1


def test_a_doubt_ends_with_the_lock_of_another_pod_that_gave_rise_to_it() -> None:
    world = World()
    world.lock("another", 1)
    world.pod("p", "0,1", gpus=2)
    assert len(world.settle()) == 1

    world.cache.store(resources.LEASES).remove("locks", "gpu-a-1", "")

    assert world.busy == [0, 1] and world.settle() == []


@pytest.mark.parametrize("locked_first", [True, False])
def test_what_leases_lock_for_a_pod_it_has(locked_first: bool) -> None:
    world = World()
    steps: Sequence[Callable[[], object]] = (lambda: world.lock("p", 0, 5), lambda: world.pod("p", "0,5"))

    for step in steps if locked_first else reversed(steps):
        step()

    assert world.busy == [0, 5] and world.settle() == []


def test_of_two_that_say_they_have_a_device_the_one_with_the_lease_has_it() -> None:
    world = World()
    world.lock("honest", 3)
    world.pod("honest", "3", gpus=1)

    world.pod("liar", "3", gpus=1)

    assert len(world.busy) == 2 and 3 in world.busy, "the other one has one too, nobody knows which"
    assert len(world.settle()) == 1
    world.cache.remove_pod("pod-default-liar")
    assert world.busy == [3]


def test_a_pod_keeps_what_is_locked_for_it_whatever_its_annotation_says_later() -> None:
    world = World()
    world.lock("p", 0)
    world.pod("p", "0", gpus=1)

    world.pod("p", "1", gpus=1)

    assert 0 in world.busy


def test_a_pod_keeps_what_it_was_believed_to_have_when_its_claim_goes() -> None:
    world = World()
    world.add_claim("two", 2)
    world.pod("p", "1,2", "two")
    world.settle()
    world.cache.store(resources.GPU_CLAIMS).remove("default", "two")

    world.pod("p", "1,2", "two", labels={"changed": "true"})
    world.cache.store(resources.GPU_NODE_STATUSES).upsert(report("a", health={7: "Unhealthy"}))

    assert world.busy == [1, 2] and world.settle() == []


def test_a_claim_that_never_comes_speaks_for_nobody() -> None:
    world = World()
    world.pod("forged", "0,1", "nowhere")
    before = world.busy

    assert len(world.settle()) == 1
    assert (before, world.busy) == ([0, 1], [])


def test_devices_that_the_node_does_not_have_are_not_counted() -> None:
    cache = cluster([make_node("a", gpus=4)])
    table = device_table(cache)
    pod = make_pod("p", gpus=2, node="a", annotations={custom_resources.ALLOCATED: "1,9"})
    cache.upsert_pod(cache.record(pod))

    cache.store(resources.GPU_NODE_STATUSES).upsert(report("a", "pcie-4"))

    assert int(table.columns.busy[0]) == 0b10


@pytest.mark.parametrize(("allow", "busy"), [("scheduling-map", [3]), ("", [])])
def test_a_map_speaks_for_its_pod_where_the_namespace_allows_maps(allow: str, busy: list[int]) -> None:
    world = World()
    world.cache.shared(MapProfiles).add("default-scheduler", True, world.cache)
    meta = model.ObjectMeta(name="default", annotations={"gangline.dev/allow": allow})
    world.cache.store(resources.NAMESPACES).upsert(model.Namespace(meta))

    world.pod("app-0", "3", notes={custom_resources.SCHEDULING_MAP: "0=a:3"})
    world.pod("app-1", "4", notes={custom_resources.SCHEDULING_MAP: "1=a:2"})

    assert world.busy == busy


def test_no_instances_but_its_own_number_are_taken_by_a_pod() -> None:
    world = World()
    names = ",".join(f"MIG-{number}" for number in range(7))

    world.pod("forged", "0", gpus=1, notes={custom_resources.ALLOCATED_UUIDS: names})

    found = world.table.allocation("pod-default-forged")
    assert found is not None and len(found.uuids) == 1


EVENTS = ("pod", "claim", "lease", "report", "other")


@given(st.permutations(EVENTS), st.integers(0, 3), st.booleans())
def test_the_order_in_which_news_come_changes_nothing_in_the_end(
    order: list[str], settles_after: int, is_leased: bool
) -> None:
    cache = cluster([make_node("a", gpus=8)])
    world = World.__new__(World)
    world.cache, world.table, world.now = cache, device_table(cache), 0.0
    lease_book(cache)
    steps: dict[str, Callable[[], object]] = {
        "pod": lambda: world.pod("p", "2,3", "two"),
        "claim": lambda: world.add_claim("two", 2),
        "lease": lambda: world.lock("p", *((2, 3) if is_leased else ())),
        "report": lambda: cache.store(resources.GPU_NODE_STATUSES).upsert(report("a")),
        "other": lambda: world.pod("forged", "2,3,4", "nowhere"),
    }
    assert set(steps) == set(EVENTS)

    for number, event in enumerate(order):
        steps[event]()
        if number == settles_after:
            world.now += SETTLE
            list(world.table.settle_beliefs(world.now))
    world.settle()

    assert world.busy == [2, 3]
    for uid in ("pod-default-p", "pod-default-forged"):
        cache.remove_pod(uid)
    assert [uid for uids in world.table.holders(0).values() for uid in uids if not uid.startswith("lease-")] == []


def test_a_forged_allocation_keeps_nobody_out_and_its_pod_is_told_once() -> None:
    world = LeaseCluster(nodes=1)
    world.add_claim(count=8)
    world.create(
        resources.PODS, make_pod("forged", node="node-0", annotations={custom_resources.ALLOCATED: "0,1,2,3,4,5,6,7"})
    )
    world.add_pod("honest")

    async def story() -> None:
        async with world.scheduler() as scheduler:
            await world.until_bound("honest", seconds=5)
            await world.until(lambda: bool(told()), 30)
            await world.until(lambda: scheduler.cache.pods["pod-default-honest"].node_name != "", 30)

    def told() -> list[str]:
        return [note for note in world.notes("forged") if "the pod says that it has GPUs" in note]

    world.play(story)

    assert len(told()) == 1 and world.notes("honest") and not any("says that" in n for n in world.notes("honest"))


def test_after_a_restart_nothing_is_given_out_twice_though_pods_are_seen_before_leases() -> None:
    world = LeaseCluster(nodes=1)
    world.add_claim(count=2)
    names = [f"pod-{number}" for number in range(3)]
    for name in names:
        world.add_pod(name)

    async def story() -> None:
        async with world.scheduler():
            await world.until_bound(*names)
        world.add_pod("late")
        world.add_pod("too-much")
        async with world.scheduler():
            await world.until(lambda: len([pod for pod in world.pods() if pod.spec.node_name]) == 4)

    world.play(story)

    assert all(len(uids) == 1 for uids in world.allocated().values())
    assert not any("says that it has" in note for note in itertools.chain(world.notes()))


def test_an_annotation_that_is_changed_after_the_binding_frees_no_device() -> None:
    world = LeaseCluster(nodes=1)
    world.add_claim(count=1)
    world.add_claim("all", count=8)
    uid = world.add_pod("tampered")

    async def story() -> None:
        async with world.scheduler():
            await world.until_bound("tampered")
            ((node, device),) = world.allocated()
            notes = {custom_resources.ALLOCATED: str(device + 1), custom_resources.ALLOCATED_UUIDS: ""}
            world.server.patch(resources.PODS, "tampered", {"metadata": {"annotations": notes}}, namespace="default")
            world.add_pod("greedy", uses="all")
            for number in range(7):
                world.add_pod(f"other-{number}")
            await world.until_bound(*(f"other-{number}" for number in range(7)))
            await asyncio.sleep(70.0)
            assert world.held()[node, device] == [uid]
            assert not world.pod("greedy").spec.node_name

    world.play(story)


def test_where_nothing_is_settled_pods_that_have_gone_are_forgotten_all_the_same() -> None:
    world = World()
    for number in range(5000):
        world.cache.remove_pod(world.pod(f"p{number}", "0,1").uid)

    beliefs = world.table.beliefs
    assert max(len(beliefs._seen), len(beliefs._new), len(beliefs.doubts)) <= 2048
