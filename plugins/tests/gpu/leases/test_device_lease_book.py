"""Devices that are locked for pods which are not known here count as taken, and for no longer."""

from __future__ import annotations

import pytest

from gangline import PodInfo, custom_resources, resources
from gangline.simulate import Tenure
from gangline.testing import Cache, Scope, make_node
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.leases.book import lease_book
from gangline_plugins.gpu.leases.holds import Hold, lease_of

from ..gpu_cases import claim, claim_pod, gpu_cluster, report
from ..lease_cases import LeaseCluster

UID = "pod-default-train"


def locked() -> Cache:
    """One node whose device 0 is locked for the pod `train`, which is not placed here."""
    cache = gpu_cluster([report("node-0")], [claim(count=1)])
    lease_book(cache)
    hold = Hold(pod="default/train", by="other.1", ids=(0,))
    cache.store(resources.LEASES).upsert(lease_of("gpu-node-0-0", "locks", "node-0", {UID: hold}, ""))
    return cache


def busy(cache: Cache) -> int:
    return int(device_table(cache).columns.busy[0])


def train(cache: Cache) -> PodInfo:
    return cache.record(claim_pod("train"))


def test_a_locked_device_is_taken_until_the_lease_is_gone() -> None:
    cache = locked()

    before = busy(cache)
    cache.store(resources.LEASES).remove("locks", "gpu-node-0-0")

    assert (before, busy(cache)) == (1, 0)


def test_a_locked_device_is_free_only_for_the_pod_that_it_is_locked_for() -> None:
    cache, found = locked(), []

    for uid in ("another", UID, "another"):
        lease_book(cache).visit(uid)
        found.append(busy(cache))

    assert found == [1, 0, 1]


def test_a_device_is_taken_again_when_the_pod_is_not_bound_after_all() -> None:
    cache = locked()
    pod = train(cache)
    lease_book(cache).visit(UID)

    cache.assume(pod, 0)
    assumed = device_table(cache).holders(0)
    cache.forget(pod)

    assert assumed == {0: [UID]}
    assert busy(cache) == 1


@pytest.mark.parametrize("name", ["gpu-node-0-0", "gpu-node-0-1"])
def test_a_lease_that_changes_while_its_pod_is_assumed_keeps_its_device(name: str) -> None:
    """The attempt writes its own leases, and may fail afterwards. Then others must not choose what is still locked."""
    cache = locked()
    pod, device = train(cache), int(name[-1])
    lease_book(cache).visit(UID)
    cache.assume(pod, 0)

    hold = Hold(pod="default/train", by="this.1", ids=(device,))
    cache.store(resources.LEASES).upsert(lease_of(name, "locks", "node-0", {UID: hold}, ""))
    cache.forget(pod)
    waiting = busy(cache)
    lease_book(cache).visit(UID)

    assert waiting == 1 | 1 << device
    assert busy(cache) == 0


def test_a_pod_that_turns_out_to_be_bound_is_counted_once() -> None:
    cache = locked()

    cache.upsert_pod(cache.record(claim_pod("train", node="node-0", annotations={custom_resources.ALLOCATED: "0"})))
    known = device_table(cache).holders(0)
    cache.remove_pod(UID)

    assert known == {0: [UID]}
    assert busy(cache) == 0


def test_a_pod_that_may_be_preempted_leaves_its_devices_whatever_its_lease_says() -> None:
    cache = locked()
    cache.upsert_pod(cache.record(claim_pod("train", node="node-0", annotations={custom_resources.ALLOCATED: "0"})))

    with cache.transaction() as tx:
        tx.unplace(cache.pods[UID])
        without = busy(cache)

    assert (without, busy(cache)) == (0, 1)


def test_a_node_that_comes_back_has_its_locked_devices_taken() -> None:
    cache = locked()

    cache.remove_node("node-0")
    cache.upsert_node(make_node("node-0"))

    assert busy(cache) == 1


def test_when_nobody_follows_leases_any_more_no_device_is_taken_because_of_them() -> None:
    cache = gpu_cluster([report("node-0")], [claim(count=1)])
    device_table(cache)
    following = Scope()
    with cache.scopes.opened(following):
        lease_book(cache)
    cache.store(resources.LEASES).upsert(
        lease_of("gpu-node-0-0", "locks", "node-0", {UID: Hold(pod="default/train", by="other.1", ids=(0,))}, "")
    )

    before = busy(cache)
    following.close()

    assert (before, busy(cache)) == (1, 0) and device_table(cache).beliefs.leases is None


def test_on_a_standby_pods_that_end_leave_nothing_behind() -> None:
    """Only the leader's reaper takes suspects; it begins with a look at all leases."""
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=1)
    tenure = Tenure(cluster.clock)

    async def story() -> tuple[int, int]:
        async with cluster.scheduler(identity="one", seed=1):
            await cluster.until(lambda: bool(cluster.list(resources.LEASES, "kube-system")))
            async with cluster.scheduler(identity="two", tenure=tenure) as standby:
                for number in range(10):
                    cluster.add_pod(f"pod-{number}")
                    await cluster.until_bound(f"pod-{number}")
                    cluster.server.delete(resources.PODS, f"pod-{number}", grace_period_seconds=0)
                await cluster.until(lambda: not cluster.leases())
                return len(lease_book(standby.cache).suspects), len(standby.cache.pods)

    assert cluster.play(story) == (0, 0)
    assert not tenure.term.name
