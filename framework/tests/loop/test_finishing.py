"""A leader that is told to stop while bindings take long: which writes the next leader has to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gangline import Cycle, PodInfo, Status, hookimpl
from gangline.kube.outbox import ANSWERED_WITHIN, Outbox
from gangline.kube.resources import NODES, PODS, Resource
from gangline.loop.finishing import FINISHING
from gangline.loop.following import TOLD_WITHIN
from gangline.loop.scheduler import Options
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.simulate.client import Answer
from gangline.simulate.cluster import make_scheduler, running
from gangline.testing import make_node, make_pod

PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins: {multiPoint: {enabled: [{name: Waits}, {name: PrioritySort}, {name: DefaultBinder}]}}
"""


class Waits:
    """A plugin whose pre-bind waits for a volume that never comes."""

    name = "Waits"

    @hookimpl
    async def pre_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        if pod.name == "patient":
            await asyncio.Event().wait()
        return None


class CountingClient(SimulatedClient):
    """Counts its bindings in an outbox, as the client over HTTP counts its writes."""

    outbox: Outbox

    async def _call(self, verb: str, resource: Resource[Any], name: str, act: Callable[[], Answer]) -> Answer:
        if verb != "bind":
            return await super()._call(verb, resource, name, act)
        with self.outbox:
            return await super()._call(verb, resource, name, act)


@pytest.mark.parametrize(
    ("pod", "bind_s", "is_clean", "seconds"),
    [
        pytest.param("plain", 1.0, True, 1.0, id="a binding that is answered soon"),
        pytest.param("plain", FINISHING + 4, True, FINISHING + 4, id="a binding that is answered late"),
        pytest.param("plain", 100.0, False, FINISHING + ANSWERED_WITHIN, id="a binding that is not answered"),
        pytest.param("patient", 1.0, True, FINISHING, id="a plugin that waits and writes nothing"),
    ],
)
def test_the_next_leader_waits_for_writes_and_not_for_plugins(
    pod: str, bind_s: float, is_clean: bool, seconds: float
) -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a"))

    async def story() -> float:
        client = CountingClient(cluster.server, latency={"bind": bind_s})
        outbox = client.outbox = Outbox(monotonic=cluster.clock.monotonic)
        options = Options(seed=1, stop_writing=outbox.close)
        scheduler = make_scheduler(PROFILE, client, cluster.clock, plugins=[Waits], options=options)
        async with running(scheduler.run()):
            await asyncio.sleep(1)
            cluster.create(PODS, make_pod(pod))
            await cluster.until(lambda: bool(scheduler.binder.pending + scheduler.binder.slow))
            began = cluster.clock.monotonic()
            assert await scheduler.finish() is is_clean
            return cluster.clock.monotonic() - began

    assert cluster.play(story) == pytest.approx(seconds, abs=TOLD_WITHIN + 0.2)
    assert cluster.bound() == ({"plain": "a"} if pod == "plain" and is_clean else {})
