"""A scheduler that is cut off from the API server in the middle of a binding gives no device away a second time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gangline import Unavailable, resources
from gangline.simulate import SimulatedClient, Tenure
from gangline.testing import make_node
from gangline_plugins.gpu.leases.reaper import ABANDONED, SWEEP

from ..lease_cases import LATENCY, LeaseCluster

Answer = TypeVar("Answer")
TIMEOUT = 30.0  # seconds after which the client gives a request up
STUCK = 55.0  # seconds for which the API server may hold a request that it has taken before it acts on it
WRITES = ("create", "replace", "delete", "bind")
LOST, UNANSWERED, LATE = "lost", "unanswered", "late"


class CutClient(SimulatedClient):
    """Is cut off for some seconds at its first write, second write and so on: requests get no answer, watches stall.

    The write at that moment is `lost`, or done but `unanswered`, or done `late`, after the client has given it up.
    """

    def __init__(self, cluster: LeaseCluster, moment: int, seconds: float, fate: str) -> None:
        super().__init__(cluster.server, latency=LATENCY)
        self.is_cut = asyncio.Event()
        self.tenure = Tenure(cluster.clock)
        """Bounds the writes of a scheduler that was elected."""
        self.is_elected = False
        self._clock = cluster.clock
        self._moment = moment
        self._seconds = seconds
        self._fate = fate
        self._until = 0.0
        self._count = 0

    async def _call(self, verb: str, resource: resources.Resource[Any], name: str, act: Callable[[], Answer]) -> Answer:
        if verb in WRITES and (name.startswith("gpu-") or verb == "bind"):
            if self.is_elected and not self.tenure.holds():
                raise Unavailable(0, "NotLeading", "not sent: this process is no longer the leader")
            self._count += 1
            if self._count == self._moment:
                self._until = self._clock.monotonic() + self._seconds
                self.is_cut.set()
                return await self._meets_its_fate(act)
        if (left := self._left()) > 0:
            await asyncio.sleep(min(left, TIMEOUT))
            if left > TIMEOUT:
                raise Unavailable(0, "Timeout", f"{verb} {name}: no answer in time")
        return await super()._call(verb, resource, name, act)

    async def _meets_its_fate(self, act: Callable[[], Answer]) -> Answer:
        def do() -> None:
            try:
                act()
            except Exception:  # nobody is told
                return

        if self._fate == UNANSWERED:
            do()
        elif self._fate == LATE:
            asyncio.get_running_loop().call_later(STUCK, do)
        await asyncio.sleep(TIMEOUT)
        raise Unavailable(0, "Timeout", "no answer in time")

    async def watch(self, resource: resources.Resource[Any], **selected: Any) -> AsyncIterator[Any]:
        """See the interface."""
        async for event in super().watch(resource, **selected):
            if (left := self._left()) > 0:
                await asyncio.sleep(left)
            yield event

    def _left(self) -> float:
        return self._until - self._clock.monotonic()


@settings(max_examples=settings().max_examples * 2 // 5)
@given(
    moment=st.integers(1, 9),
    seconds=st.one_of(st.sampled_from([200.0, 290.0, 310.0, 400.0]), st.floats(10, 1000)),
    fate=st.sampled_from([LOST, UNANSWERED, LATE]),
    both=st.booleans(),
    node_goes=st.booleans(),
)
@example(moment=9, seconds=400.0, fate=LOST, both=False, node_goes=False)
@example(moment=9, seconds=400.0, fate=LOST, both=True, node_goes=False)
@example(moment=9, seconds=400.0, fate=LATE, both=False, node_goes=False)
@example(moment=8, seconds=400.0, fate=LATE, both=False, node_goes=False)
@example(moment=9, seconds=25.0, fate=LATE, both=False, node_goes=True)
def test_a_device_has_one_pod_whenever_a_scheduler_is_cut_off_and_for_however_long(
    moment: int, seconds: float, fate: str, both: bool, node_goes: bool
) -> None:
    """Eight leases and the binding of one pod are nine writes. `both` schedulers may serve the pod that is being bound;
    its node may be deleted and made anew meanwhile.
    """
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=8)
    cluster.add_pod("first", scheduler="gpus")
    names = ("gpus", "more") if both else ("more",)

    async def story() -> None:
        one = CutClient(cluster, moment, seconds, fate)
        async with cluster.scheduler("gpus", client=one):
            await one.is_cut.wait()
            async with cluster.scheduler(*names):
                cluster.add_pod("second", scheduler="more")
                if node_goes:
                    cluster.server.delete(resources.NODES, "node-0")
                    await asyncio.sleep(5)
                    cluster.create(resources.NODES, make_node("node-0"))
                await asyncio.sleep(seconds + ABANDONED + 3 * SWEEP)
                await cluster.until(lambda: bool(cluster.bound()), 600)
                await asyncio.sleep(2 * SWEEP)

    cluster.play(story)

    assert len(cluster.bound()) == 1, cluster.bound()
    assert cluster.held() == cluster.allocated() and len(cluster.held()) == 8


@settings(max_examples=settings().max_examples * 2 // 5)
@given(moment=st.integers(1, 9), seconds=st.floats(10, 1000), fate=st.sampled_from([LOST, UNANSWERED, LATE]))
@example(moment=9, seconds=400.0, fate=LOST)
@example(moment=9, seconds=400.0, fate=LATE)
@example(moment=9, seconds=12.0, fate=LATE)
def test_a_device_has_one_pod_whenever_a_leader_is_cut_off_and_for_however_long(
    moment: int, seconds: float, fate: str
) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=8)
    cluster.add_pod("first", scheduler="gpus")

    async def story() -> float:
        one = CutClient(cluster, moment, seconds, fate)
        one.is_elected = True
        async with cluster.scheduler("gpus", client=one, identity="one", tenure=one.tenure):
            await one.is_cut.wait()
            async with cluster.scheduler("more", identity="two"):
                cluster.add_pod("second", scheduler="more")
                if seconds < 20:  # the first is still the leader
                    await asyncio.sleep(400)
                return await cluster.until(lambda: bool(cluster.bound()), 200)

    waited = cluster.play(story)

    assert len(cluster.bound()) == 1, cluster.bound()
    assert waited < ABANDONED / 2
