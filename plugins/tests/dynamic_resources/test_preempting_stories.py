"""From the eviction to the binding: devices come free when the controller of claims says so, and for whom they were
freed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from gangline import resources
from gangline.simulate import ClaimController, Kubelet, running

from .claim_cases import PROFILE, Cluster, exactly

GANG = {"gang.scheduling.koordinator.sh/name": "high", "gang.scheduling.koordinator.sh/min-available": "2"}


class Preempting(Cluster):
    """A cluster with GangPreemption, which notes who is evicted."""

    profile = PROFILE.replace("{name: GangPermit}", "{name: GangPermit}, {name: GangPreemption}")

    def __init__(self, **devices: int) -> None:
        super().__init__(**devices)
        self.made: set[str] = set()

    @property
    def evicted(self) -> set[str]:
        """The pods that are gone or going."""
        there = {
            pod.metadata.name for pod in self.simulated.list(resources.PODS) if pod.metadata.deletion_timestamp is None
        }
        return self.made - there

    def pod(self, name: str, template: str = "", claim: str = "", **more: Any) -> None:
        self.made.add(name)
        super().pod(name, template, claim, **more)

    def play_without_controller(
        self, before: Callable[[], Coroutine[Any, Any, None]], after: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """The controller of claims works between the two parts of a story only."""

        async def whole() -> None:
            server = self.simulated.server
            async with (
                running(Kubelet(server, self.simulated.clock).run()),
                self.simulated.scheduling(self.profile, plugins=[]),
            ):
                await before()
                async with running(ClaimController(server).run()):
                    await after()

        self.simulated.play(whole)

    def give_back(self, name: str) -> None:
        """The controller takes the devices from one claim."""
        claim = self.claims()[name]
        bare = msgspec.structs.replace(claim.status, allocation=None, reserved_for=[])
        self.simulated.server.replace(
            resources.RESOURCE_CLAIMS,
            msgspec.to_builtins(msgspec.structs.replace(claim, status=bare)),
            subresource="status",
        )


def test_a_pod_gets_the_device_of_a_pod_of_lower_priority() -> None:
    cluster = Preempting(a=2)

    async def story() -> None:
        cluster.template("one")
        for number in range(2):
            cluster.pod(f"low-{number}", "one")
        await cluster.bound("low-0", "low-1")
        cluster.pod("high", "one", priority=1000)
        await cluster.bound("high")
        await cluster.settle()

    cluster.play(story)
    assert len(cluster.evicted) == 1
    cluster.check()


def test_pods_of_equal_priority_keep_their_devices() -> None:
    cluster = Preempting(a=1)

    async def story() -> None:
        cluster.template("one")
        cluster.pod("first", "one", priority=5)
        await cluster.bound("first")
        cluster.pod("second", "one", priority=5)
        await cluster.told("second", "cannot allocate all claims")
        await cluster.settle()

    cluster.play(story)
    assert not cluster.evicted


def test_a_gang_gets_the_devices_of_pods_of_lower_priority_and_no_more() -> None:
    cluster = Preempting(a=2, b=1)

    async def story() -> None:
        cluster.template("one")
        for number in range(3):
            cluster.pod(f"low-{number}", "one", priority=number)
        await cluster.bound("low-0", "low-1", "low-2")
        for number in range(2):
            cluster.pod(f"high-{number}", "one", priority=1000, annotations=GANG)
        await cluster.bound("high-0", "high-1")
        await cluster.settle()

    cluster.play(story)
    assert cluster.evicted == {"low-0", "low-1"}
    cluster.check()


def test_a_gang_that_would_not_fit_evicts_nobody() -> None:
    cluster = Preempting(a=2)

    async def story() -> None:
        cluster.template("one")
        cluster.pod("low", "one")
        cluster.pod("equal", "one", priority=1000)
        await cluster.bound("low", "equal")
        for number in range(2):
            cluster.pod(f"high-{number}", "one", priority=1000, annotations=GANG)
        await cluster.told("high-0", "the whole gang would not fit")
        await cluster.settle()

    cluster.play(story)
    assert not cluster.evicted


def test_devices_of_a_shared_claim_come_free_with_its_last_consumer() -> None:
    cluster = Preempting(a=1)

    async def story() -> None:
        cluster.claim("shared")
        cluster.claim("mine")
        for number in range(3):
            cluster.pod(f"low-{number}", claim="shared")
        await cluster.bound("low-0", "low-1", "low-2")
        cluster.pod("high", claim="mine", priority=1000)
        await cluster.bound("high")

    cluster.play(story)
    assert cluster.evicted == {"low-0", "low-1", "low-2"}
    cluster.check()


@pytest.mark.parametrize("comes_free", [(), ("c0",)], ids=["nothing is free yet", "a part is free"])
def test_nobody_else_is_evicted_or_served_until_the_devices_are_free(comes_free: tuple[str, ...]) -> None:
    cluster = Preempting(a=2, b=1)

    async def before() -> None:
        for name in ("c0", "c1", "c2", "c3"):
            cluster.claim(name)
        cluster.claim("big", exactly(2))
        for number in range(3):
            cluster.pod(f"low-{number}", claim=f"c{number}", node_selector={"kubernetes.io/hostname": "aab"[number]})
        await cluster.bound("low-0", "low-1", "low-2")
        cluster.pod("high", claim="big", priority=1000)
        await cluster.simulated.until(lambda: {"low-0", "low-1"} <= cluster.evicted)
        await cluster.settle()
        for name in comes_free:
            cluster.give_back(name)
        cluster.pod("later", claim="c3", priority=0)
        await cluster.told("later", "cannot allocate all claims")
        await asyncio.sleep(60)  # in virtual time: both are tried again and again
        assert set(cluster.simulated.bound()) == {"low-2"}

    async def after() -> None:
        await cluster.bound("high")
        await cluster.settle()

    cluster.play_without_controller(before, after)
    assert cluster.evicted == {"low-0", "low-1"}
    assert "later" not in cluster.simulated.bound()
    cluster.check()


def test_a_gang_waits_for_its_devices_and_evicts_nobody_more() -> None:
    cluster = Preempting(a=2, b=1)

    async def before() -> None:
        for name in ("c0", "c1", "c2", "m0", "m1"):
            cluster.claim(name)
        for number in range(3):
            cluster.pod(f"low-{number}", claim=f"c{number}", priority=number)
        await cluster.bound("low-0", "low-1", "low-2")
        for number in range(2):
            cluster.pod(f"high-{number}", claim=f"m{number}", priority=1000, annotations=GANG)
        await cluster.simulated.until(lambda: {"low-0", "low-1"} <= cluster.evicted)
        await asyncio.sleep(60)  # in virtual time: the gang is tried again and again
        assert set(cluster.simulated.bound()) == {"low-2"}

    async def after() -> None:
        await cluster.bound("high-0", "high-1")
        await cluster.settle()

    cluster.play_without_controller(before, after)
    assert cluster.evicted == {"low-0", "low-1"}
    cluster.check()
