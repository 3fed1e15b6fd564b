"""DynamicResources: pods get nodes that have devices for their claims, and the claims get the devices."""

from __future__ import annotations

from typing import Any

from gangline import Conflict, model, resources
from gangline.simulate import SimulatedClient
from gangline.testing import make_node

from .claim_cases import Cluster, exactly


def test_a_pod_goes_where_its_claim_gets_devices_and_the_claim_has_them_before_the_pod_is_bound() -> None:
    cluster = Cluster(a=1, b=2)

    async def story() -> None:
        cluster.template("two", exactly(2))
        cluster.pod("p", "two")
        await cluster.bound("p")

    cluster.play(story)
    assert cluster.simulated.bound() == {"p": "b"}
    (claim,) = cluster.claims().values()
    assert [(each.pool, each.device) for each in claim.status.results] == [("b", "gpu-0"), ("b", "gpu-1")]
    assert claim.status.allocation is not None
    assert claim.status.allocation.allocation_timestamp
    assert [each.name for each in claim.status.reserved_for] == ["p"]
    assert claim.metadata.finalizers == ["resource.kubernetes.io/delete-protection"]


def test_a_pod_waits_until_devices_come_free_and_then_gets_them() -> None:
    cluster = Cluster(a=1)

    async def story() -> None:
        cluster.template("one")
        cluster.pod("first", "one")
        await cluster.bound("first")
        cluster.pod("second", "one")
        await cluster.told("second", "cannot allocate all claims")
        cluster.simulated.server.delete(resources.PODS, "first", namespace="default")
        await cluster.bound("second")

    cluster.play(story)
    cluster.check()


def test_pods_that_come_together_get_different_devices() -> None:
    cluster = Cluster(a=4, b=4)

    async def story() -> None:
        cluster.template("one")
        for number in range(9):
            cluster.pod(f"p{number}", "one")
        await cluster.simulated.until(lambda: len(cluster.simulated.bound()) == 8)
        await cluster.settle()

    cluster.play(story)
    assert len(cluster.given()) == 8
    assert len(cluster.simulated.bound()) == 8
    cluster.check()


def test_a_shared_claim_gets_devices_once_and_all_its_pods_go_there() -> None:
    cluster = Cluster(a=2, b=2)

    async def story() -> None:
        cluster.claim("shared")
        for name in ("p", "q", "r"):
            cluster.pod(name, claim="shared")
        await cluster.bound("p", "q", "r")

    cluster.play(story)
    assert len(set(cluster.simulated.bound().values())) == 1
    (claim,) = cluster.claims().values()
    assert len(claim.status.results) == 1
    assert sorted(each.name for each in claim.status.reserved_for) == ["p", "q", "r"]


def test_all_devices_of_a_node_are_given_or_none() -> None:
    cluster = Cluster(a=3)

    async def story() -> None:
        cluster.template("all", exactly(0, allocation_mode="All"))
        cluster.pod("p", "all")
        await cluster.bound("p")
        cluster.pod("q", "all")
        await cluster.told("q", "cannot allocate all claims")

    cluster.play(story)
    assert len(cluster.given()) == 3


def test_a_node_with_the_better_alternative_is_preferred() -> None:
    cluster = Cluster()
    made = {"a": "small", "b": "big", "c": "small"}

    async def story() -> None:
        cluster.template(
            "best",
            model.DeviceRequest(
                "gpu",
                first_available=[
                    model.DeviceSubRequest(name, "gpu", [_named(name)], "ExactCount", 1) for name in ("big", "small")
                ],
            ),
        )
        cluster.pod("p", "best")
        await cluster.bound("p")

    for node, size in made.items():
        cluster.simulated.create(resources.NODES, make_node(node))
        cluster.offer(node, model.Device("x", attributes={"size": model.DeviceAttribute(string=size)}))
    cluster.play(story)
    assert cluster.simulated.bound() == {"p": "b"}


def _named(size: str) -> model.DeviceSelector:
    return model.DeviceSelector(model.CelDeviceSelector(f'device.attributes["gpu.example.com"].size == "{size}"'))


def test_a_pod_whose_claim_is_not_there_is_held_until_it_comes() -> None:
    cluster = Cluster(a=1)

    async def story() -> None:
        cluster.pod("p", claim="late")
        await cluster.settle()
        assert not cluster.simulated.bound()
        cluster.claim("late")
        await cluster.bound("p")

    cluster.play(story)


def test_a_claim_with_devices_needs_no_label_for_its_admin_access() -> None:
    """The label was removed after the claim got its devices: the API server lets more pods use the claim."""
    cluster = Cluster(a=1)

    async def story() -> None:
        cluster.claim("look", exactly(1, admin_access=True), allocated_on="a")
        cluster.pod("p", claim="look")
        await cluster.bound("p")

    cluster.play(story)
    cluster.check()


def test_admin_access_needs_the_label_of_the_namespace() -> None:
    cluster = Cluster(a=1)

    async def story() -> None:
        cluster.template("look", exactly(1, admin_access=True))
        cluster.pod("p", "look")
        await cluster.told("p", "asks for admin access")

    cluster.play(story)
    assert not cluster.given()


def test_a_tainted_device_is_given_to_nobody_without_a_toleration() -> None:
    cluster = Cluster()

    async def story() -> None:
        cluster.template("one")
        cluster.pod("p", "one")
        await cluster.told("p", "cannot allocate all claims")
        cluster.template("tolerant", exactly(1, tolerations=[model.DeviceToleration("broken", "Exists")]))
        cluster.pod("q", "tolerant")
        await cluster.bound("q")

    cluster.simulated.create(resources.NODES, make_node("a"))
    cluster.offer("a", model.Device("x", taints=[model.DeviceTaint("broken", effect="NoSchedule")]))
    cluster.play(story)


def test_a_class_that_is_missing_is_named() -> None:
    cluster = Cluster(a=1)

    async def story() -> None:
        request = model.DeviceRequest("gpu", model.ExactDeviceRequest("none", allocation_mode="ExactCount", count=1))
        cluster.template("one", request)
        cluster.pod("p", "one")
        await cluster.told("p", "none")

    cluster.play(story)
    assert not cluster.simulated.bound()


def test_a_claim_that_nobody_uses_gives_way_if_its_devices_cannot_be_reached() -> None:
    cluster = Cluster(a=1, b=1)

    async def story() -> None:
        cluster.claim("c", allocated_on="a")
        assert cluster.given() == [("a", "gpu-0")]
        cluster.pod("p", claim="c", node_selector={"kubernetes.io/hostname": "b"})
        await cluster.bound("p")

    cluster.play(story)
    assert cluster.simulated.bound() == {"p": "b"}
    assert cluster.given() == [("b", "gpu-0")]


class FailsToBind(SimulatedClient):
    """Refuses a number of bindings."""

    left = 3

    async def bind(self, *args: Any, **more: Any) -> None:
        if self.left:
            self.left -= 1
            raise Conflict(409, "Conflict", "not now")
        await super().bind(*args, **more)


def test_what_was_written_for_a_pod_that_cannot_be_bound_is_taken_back() -> None:
    cluster = Cluster(a=1, b=1)

    async def story() -> None:
        cluster.template("one")
        cluster.pod("p", "one")
        await cluster.bound("p")
        await cluster.settle()

    cluster.play(story, FailsToBind(cluster.simulated.server))
    assert len(cluster.given()) == 1
    cluster.check()


def test_a_claim_whose_devices_all_nodes_can_use_keeps_them_also_after_a_node_is_gone() -> None:
    cluster = Cluster(a=1, b=1)

    async def story() -> None:
        cluster.claim("c", allocated_on="b")
        await cluster.settle()
        cluster.simulated.server.delete(resources.NODES, "a")
        await cluster.settle()
        cluster.pod("large", claim="c", cpu=1000)
        await cluster.told("large", "Insufficient cpu")
        await cluster.settle()

    cluster.play(story)
    assert cluster.given() == [("b", "gpu-0")]
