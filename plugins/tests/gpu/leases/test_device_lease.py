"""DeviceLease: devices are locked on the API server before a pod is bound, all of them or none."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gangline import Conflict, Invalid, Unavailable, custom_resources, resources
from gangline_plugins.gpu.leases.holds import Hold, holders_of, lease_of
from gangline_plugins.gpu.leases.reaper import SWEEP

from ..lease_cases import NAMESPACE, LeaseCluster, plain

NOW = "2026-01-01T00:00:00.000000Z"
RACED_NODES = 25 if os.environ.get("CI") else 4
"""Nodes whose devices two schedulers give away at the same time."""


def hold(pod: str, *ids: int, by: str = "other.1") -> Hold:
    return Hold(pod=f"default/{pod}", by=by, ids=ids)


def test_each_device_of_a_bound_pod_has_a_lease_that_the_pod_holds() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=2)
    uid = cluster.add_pod("train")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound("train")

    cluster.play(story)

    assert (cluster.pod("train").metadata.annotations or {})[custom_resources.ALLOCATED] == "0,1"
    leases = cluster.leases()
    assert sorted(leases) == ["gpu-node-0-0", "gpu-node-0-1"]
    lease = leases["gpu-node-0-1"]
    assert lease.spec.holder_identity == uid
    assert lease.metadata.labels == {
        custom_resources.MANAGED: "true",
        custom_resources.LEASE_NODE: "node-0",
        custom_resources.LEASE_POD: "train",
        custom_resources.LEASE_POD_NAMESPACE: "default",
    }


def test_one_lease_of_the_node_says_which_pod_has_which_device() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim("three", count=3)
    first, second = cluster.add_pod("first", "three"), cluster.add_pod("second", "three")

    async def story() -> None:
        async with cluster.scheduler(granularity="node"):
            await cluster.until_bound("first", "second")

    cluster.play(story)

    assert list(cluster.leases()) == ["gpu-node-0"]
    assert cluster.held() == cluster.allocated()
    assert sorted(uid for uids in cluster.held().values() for uid in uids) == sorted([first] * 3 + [second] * 3)


def test_a_pod_of_eight_devices_costs_one_write_per_node_lease() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=8)
    cluster.add_pod("train")
    writes: list[str] = []

    def count(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if resource is resources.LEASES and verb in ("create", "replace", "delete"):
            writes.append(verb)

    async def story() -> None:
        async with cluster.scheduler(granularity="node", faults=count):
            await cluster.until_bound("train")

    cluster.play(story)

    assert writes == ["create"]


@pytest.mark.parametrize("granularity", ["device", "node"])
def test_long_names_of_nodes_and_pods_are_no_hindrance(granularity: str) -> None:
    cluster = LeaseCluster(nodes=2, prefix="gpu-worker." * 22 + "a")
    cluster.add_claim(count=8)
    pods = ["trainer." * 25 + end for end in ("a", "b")]
    for pod in pods:
        cluster.add_pod(pod)

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound(*pods, seconds=5)

    cluster.play(story)

    assert cluster.held() == cluster.allocated() and len(cluster.held()) == 16
    labels = [value for lease in cluster.leases().values() for value in (lease.metadata.labels or {}).values()]
    assert all(len(name) <= 253 for name in cluster.leases()) and all(len(value) <= 63 for value in labels)


@pytest.mark.parametrize("names", [("gpus", "gpus"), ("gpus", "more")], ids=["replicas", "two names"])
@pytest.mark.parametrize("granularity", ["device", "node"])
def test_two_schedulers_at_once_never_give_a_device_to_two_pods(granularity: str, names: tuple[str, str]) -> None:
    cluster = LeaseCluster(nodes=RACED_NODES)
    cluster.add_claim()
    devices = 8 * RACED_NODES
    for number in range(devices * 3 // 2):
        cluster.add_pod(f"pod-{number}", scheduler=names[number % 2])

    async def story() -> None:
        async with AsyncExitStack() as stack:
            for seed, name in enumerate(names):
                await stack.enter_async_context(cluster.scheduler(name, seed=seed, granularity=granularity))
            await cluster.until(lambda: len(cluster.allocated()) == devices, 3600)
            await cluster.until(lambda: cluster.held() == cluster.allocated(), 60)

    cluster.play(story)

    assert len(cluster.allocated()) == devices
    assert all(len(uids) == 1 for uids in cluster.allocated().values())
    assert sum(bool(pod.spec.node_name) for pod in cluster.pods()) == devices


def test_two_schedulers_with_pods_of_several_devices_do_not_block_each_other() -> None:
    cluster = LeaseCluster(nodes=6)
    cluster.add_claim(count=4)
    for number in range(12):
        cluster.add_pod(f"pod-{number}", scheduler=("gpus", "more")[number % 2])

    async def story() -> None:
        async with cluster.scheduler("gpus", seed=1), cluster.scheduler("more", seed=2):
            await cluster.until(lambda: len(cluster.allocated()) == 48, 3600)
            await cluster.until(lambda: cluster.held() == cluster.allocated(), 60)

    cluster.play(story)

    assert all(len(uids) == 1 for uids in cluster.allocated().values())


@pytest.mark.parametrize("granularity", ["device", "node"])
def test_devices_that_another_scheduler_has_locked_are_left_out(granularity: str) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=2)
    other = cluster.add_pod("other", uses="", scheduler="another")
    name = "gpu-node-0-0" if granularity == "device" else "gpu-node-0"
    cluster.add_lease(lease_of(name, NAMESPACE, "node-0", {other: hold("other", 0)}, NOW))
    cluster.add_pod("train")

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound("train", seconds=5)

    cluster.play(story)

    assert (cluster.pod("train").metadata.annotations or {})[custom_resources.ALLOCATED] == "1,2"
    assert cluster.held()["node-0", 0] == [other]
    assert not any("locked" in note for note in cluster.notes("train"))


def test_a_pod_that_found_all_devices_locked_is_tried_again_when_one_is_given_back() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=8)
    other = cluster.add_pod("other", uses="", scheduler="another")
    cluster.add_lease(lease_of("gpu-node-0-5", NAMESPACE, "node-0", {other: hold("other", 5)}, NOW))
    cluster.add_pod("train")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: bool(cluster.notes("train")), 5)
            cluster.server.delete(resources.LEASES, "gpu-node-0-5", namespace=NAMESPACE)
            await cluster.until_bound("train", seconds=15)

    cluster.play(story)

    assert not any("locked" in note for note in cluster.notes("train"))


def test_a_lost_race_gives_back_what_was_taken_and_names_the_holder() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=8)
    other = cluster.add_pod("other", uses="", scheduler="another")
    cluster.add_pod("train")
    stolen = False

    def steal(verb: str, resource: resources.Resource[Any], name: str) -> None:
        nonlocal stolen
        if (verb, name) == ("create", "gpu-node-0-4") and not stolen:
            stolen = True
            cluster.add_lease(lease_of("gpu-node-0-5", NAMESPACE, "node-0", {other: hold("other", 5)}, NOW))

    async def story() -> None:
        async with cluster.scheduler(faults=steal):
            await cluster.until(lambda: bool(cluster.notes("train")), 10)
            await cluster.until(lambda: list(cluster.leases()) == ["gpu-node-0-5"], 1)

    cluster.play(story)

    why = "GPU 5 of node node-0 is locked for pod default/other by another scheduler (lease locks/gpu-node-0-5)"
    assert why in cluster.notes("train")
    assert not cluster.pod("train").spec.node_name


def test_a_pod_that_lost_a_race_gets_other_devices() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=4)
    other = cluster.add_pod("other", uses="", scheduler="another")
    cluster.add_pod("train")
    lease = lease_of("gpu-node-0-2", NAMESPACE, "node-0", {other: hold("other", 2)}, NOW)

    def steal(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if (verb, name) == ("create", "gpu-node-0-1") and "gpu-node-0-2" not in cluster.leases():
            cluster.add_lease(lease)

    async def story() -> None:
        async with cluster.scheduler(faults=steal):
            await cluster.until_bound("train", seconds=5)
            await cluster.until(lambda: len(cluster.held()) == 5, 5)

    cluster.play(story)

    assert set(cluster.held()) - set(cluster.allocated()) == {("node-0", 2)}


def test_an_api_server_that_fails_is_no_lack_of_devices_and_leaves_no_lease() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=4)
    cluster.add_pod("train")
    calls: list[tuple[str, str]] = []

    def fail(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        calls.append((verb, name))
        if calls.count(("create", "gpu-node-0-2")) == 1 and calls[-1] == ("create", "gpu-node-0-2"):
            return Unavailable(503, "ServiceUnavailable", "etcd is on holiday")
        return None

    async def story() -> None:
        async with cluster.scheduler(faults=fail):
            await cluster.until_bound("train")

    cluster.play(story)

    assert "503 ServiceUnavailable: etcd is on holiday" in cluster.notes("train")
    assert ("delete", "gpu-node-0-0") in calls and ("delete", "gpu-node-0-1") in calls
    assert cluster.held() == cluster.allocated()


def test_a_release_that_fails_is_made_up_for() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=2)
    cluster.add_pod("train")
    refused: list[str] = []

    def fail(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == "bind":
            cluster.server.patch(resources.NODES, "node-0", {"spec": {"unschedulable": True}})
            return Conflict(409, "Conflict", "not there")
        if verb == "delete" and len(refused) < 2:
            refused.append(name)
            return Unavailable(503, "ServiceUnavailable", "not now")
        return None

    async def story() -> None:
        async with cluster.scheduler(faults=fail):
            await cluster.until(lambda: len(refused) == 2, 10)
            await cluster.until(lambda: not cluster.leases(), 31)

    cluster.play(story)

    assert not cluster.pod("train").spec.node_name


def test_a_lease_that_the_watch_never_brings_is_in_the_way_once_and_not_for_ever() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim("two", count=2)
    cluster.add_claim("six", count=6)
    other = cluster.add_pod("other", uses="", scheduler="another")
    unmarked = lease_of("gpu-node-0-0", NAMESPACE, "node-0", {other: hold("other", 0)}, NOW)
    unmarked.metadata.labels = None
    cluster.add_lease(unmarked)
    cluster.add_pod("train", "two")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound("train", seconds=5)
            cluster.server.delete(resources.LEASES, "gpu-node-0-0", namespace=NAMESPACE)
            await asyncio.sleep(SWEEP)
            cluster.add_pod("late", "six")
            await cluster.until_bound("late", seconds=5)

    cluster.play(story)

    assert sum("locked" in note for note in cluster.notes("train")) == 1
    assert len(cluster.allocated()) == 8


@pytest.mark.parametrize("granularity", ["device", "node"])
def test_a_lease_that_another_scheduler_takes_over_meanwhile_is_not_deleted(granularity: str) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=1)
    uid = cluster.add_pod("train")
    name = "gpu-node-0-0" if granularity == "device" else "gpu-node-0"
    theirs = hold("train", 0, by="other.7")
    taken_over = False

    def interfere(verb: str, resource: resources.Resource[Any], changed: str) -> Exception | None:
        nonlocal taken_over
        if verb == "bind":
            cluster.server.patch(resources.NODES, "node-0", {"spec": {"unschedulable": True}})
            return Conflict(409, "Conflict", "not there")
        if (verb, changed) == ("delete", name) and not taken_over:
            taken_over = True
            lease = lease_of(name, NAMESPACE, "node-0", {uid: theirs}, NOW, cluster.leases()[name])
            cluster.server.replace(resources.LEASES, plain(lease))
        return None

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity, faults=interfere):
            await cluster.until(lambda: taken_over, 10)
            await asyncio.sleep(2 * SWEEP)

    cluster.play(story)

    assert holders_of(cluster.leases()[name]) == {uid: theirs}


def test_a_binding_that_is_refused_releases_the_leases() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=2)
    cluster.add_pod("train")
    calls: list[str] = []

    def fail(verb: str, resource: resources.Resource[Any], name: str) -> None:
        calls.append(f"{verb} {name}")
        if verb == "bind":
            cluster.server.patch(resources.PODS, "train", {"spec": {"schedulingGates": [{"name": "wait"}]}})

    async def story() -> None:
        async with cluster.scheduler(faults=fail):
            await cluster.until(lambda: "bind train" in calls, 10)
            await cluster.until(lambda: not cluster.leases(), 1)

    cluster.play(story)

    assert {"delete gpu-node-0-0", "delete gpu-node-0-1"} <= set(calls)


@pytest.mark.parametrize("granularity", ["device", "node"])
def test_after_a_crash_a_waiting_pod_takes_its_leases_over(granularity: str) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=8)
    uid = cluster.add_pod("train")
    never = {"bind": 1e6, "create": 0.004}

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity, latency=never):
            await cluster.until(lambda: len(cluster.held()) == 8, 10)
        assert not cluster.pod("train").spec.node_name
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound("train", seconds=5)

    cluster.play(story)

    assert cluster.held() == cluster.allocated()
    assert {tuple(uids) for uids in cluster.held().values()} == {(uid,)}


@pytest.mark.parametrize("granularity", ["device", "node"])
def test_leases_of_a_dead_scheduler_are_freed_when_the_pod_goes_elsewhere(granularity: str) -> None:
    cluster = LeaseCluster(nodes=2)
    cluster.server.patch(resources.NODES, "node-0", {"spec": {"unschedulable": True}})
    cluster.add_claim(count=8)
    uid = cluster.add_pod("train")
    name, ids = ("gpu-node-0-2", (2,)) if granularity == "device" else ("gpu-node-0", (2, 3))
    cluster.add_lease(lease_of(name, NAMESPACE, "node-0", {uid: hold("train", *ids)}, NOW))

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound("train", seconds=5)
            await cluster.until(lambda: cluster.held() == cluster.allocated(), 2)

    cluster.play(story)

    assert {node for node, _ in cluster.held()} == {"node-1"}


def test_a_node_lease_of_the_same_pod_on_other_devices_stays_until_the_pod_is_bound() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=1)
    uid = cluster.add_pod("train")
    cluster.add_lease(lease_of("gpu-node-0", NAMESPACE, "node-0", {uid: hold("train", 5)}, NOW))
    both: list[bool] = []

    def look(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if verb == "bind":
            both.append(set(cluster.held()) == {("node-0", 0), ("node-0", 5)})

    async def story() -> None:
        async with cluster.scheduler(granularity="node", faults=look):
            await cluster.until_bound("train", seconds=5)
            await cluster.until(lambda: cluster.held() == cluster.allocated(), 31)

    cluster.play(story)

    assert both == [True]


def test_another_schedulers_attempt_on_the_same_pod_is_not_released() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=1)
    uid = cluster.add_pod("train")
    cluster.add_lease(lease_of("gpu-node-0-0", NAMESPACE, "node-0", {uid: hold("train", 0)}, NOW))

    owners: list[str] = []

    def held() -> Hold:
        return holders_of(cluster.leases()["gpu-node-0-0"])[uid]

    def fail(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb != "bind":
            return None
        owners.append(held().owner)
        return Invalid(422, "Invalid", "no")

    async def story() -> None:
        async with cluster.scheduler(faults=fail):
            await cluster.until(lambda: len(owners) >= 2 and held().by == "other.1", 20)

    cluster.play(story)

    assert set(owners) == {"other.1"}


def test_pods_of_a_map_share_the_lease_of_their_device() -> None:
    cluster = LeaseCluster(nodes=1)
    note = {custom_resources.SCHEDULING_MAP: "0=node-0:3\n1=node-0:3"}
    uids = [cluster.add_pod(f"app-{index}", uses="", annotations=note) for index in range(2)]

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound("app-0", "app-1")

    cluster.play(story)

    assert sorted(cluster.held()["node-0", 3]) == sorted(uids)


def test_shared_claims_of_two_schedulers_never_exceed_a_device() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(exclusivity="Shared", fraction=0.4)
    for number in range(24):
        cluster.add_pod(f"pod-{number}", scheduler=("gpus", "more")[number % 2])

    async def story() -> None:
        async with cluster.scheduler("gpus", seed=1), cluster.scheduler("more", seed=2):
            await cluster.until(lambda: sum(map(len, cluster.allocated().values())) == 16, 600)
            await cluster.until(lambda: sum(map(len, cluster.held().values())) == 16, 60)

    cluster.play(story)

    assert all(len(uids) == 2 for uids in cluster.allocated().values())


@pytest.mark.parametrize("granularity", ["device", "node"])
def test_after_a_restart_a_pod_whose_claim_is_gone_keeps_its_devices_and_no_others(granularity: str) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim("three", count=3)
    cluster.add_claim("five", count=5)
    cluster.add_pod("old", "three")

    async def story() -> None:
        async with cluster.scheduler(granularity=granularity):
            await cluster.until_bound("old", seconds=5)
        cluster.server.delete(resources.GPU_CLAIMS, "three")
        async with cluster.scheduler(granularity=granularity):
            cluster.add_pod("new", "five")
            await cluster.until_bound("new", seconds=5)

    cluster.play(story)

    assert cluster.held() == cluster.allocated() and len(cluster.held()) == 8
    assert all(len(uids) == 1 for uids in cluster.held().values())


def test_after_a_restart_shared_devices_are_filled_up_further() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(exclusivity="Shared", fraction=0.25)
    cluster.add_claim("rest", count=7)
    for number in range(2):
        cluster.add_pod(f"old-{number}")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound("old-0", "old-1", seconds=5)
        async with cluster.scheduler():
            cluster.add_pod("whole", "rest")
            await cluster.until_bound("whole", seconds=5)
            for number in range(2):
                cluster.add_pod(f"new-{number}")
            await cluster.until_bound("new-0", "new-1", seconds=5)

    cluster.play(story)

    assert sorted(map(len, cluster.allocated().values())) == [1] * 7 + [4]
