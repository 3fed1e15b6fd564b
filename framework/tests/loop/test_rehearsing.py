"""A standby looks where pods would go, so that its first decision as the leader finds verdicts and scores computed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gangline import CodeColumn, NodeView, PodInfo, codes, config, hookimpl
from gangline.kube.resources import NODES, PODS
from gangline.loop.rehearsing import PAUSE
from gangline.loop.scheduler import Options, Scheduler
from gangline.profile.registry import Catalog
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.simulate.cluster import running
from gangline.testing import make_node, make_pod

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: Told}]}}
"""


@pytest.mark.parametrize("fails", [False, True], ids=["works", "fails for the pod"])
def test_a_standby_rehearses_until_it_leads_and_binds_nothing(fails: bool) -> None:
    told: list[tuple[float, str]] = []
    cluster = SimulatedCluster()

    class Told:
        """Notes for which pod it is asked."""

        name = "Told"
        reasons = ()

        @hookimpl
        def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
            """All nodes pass."""
            told.append((cluster.clock.monotonic(), pod.name))
            if fails and pod.name == "first":
                raise ValueError("cannot say")
            return codes(nodes.full(False))

    leads = asyncio.Event()

    async def when_told(lead: Callable[[], Awaitable[None]]) -> None:
        await leads.wait()
        await lead()

    async def story() -> float:
        catalog = Catalog.discover().with_classes(Told)
        scheduler = Scheduler(
            config.load(CONFIG, "test"), SimulatedClient(cluster.server), cluster.clock, catalog, Options(seed=1)
        )
        async with running(scheduler.run(when_told)):
            cluster.create(NODES, make_node("a"))
            cluster.create(PODS, make_pod("first"))
            await asyncio.sleep(10 * PAUSE)
            assert not cluster.bound() and not cluster.notes()
            began = cluster.clock.monotonic()
            leads.set()
            cluster.create(PODS, make_pod("second"))
            await cluster.until(lambda: "second" in cluster.bound(), 20)
            await asyncio.sleep(10 * PAUSE)
            return began

    began = cluster.play(story)

    before = {name for at, name in told if at < began}
    assert before == {"first"}
    assert ("first" in cluster.bound()) == (not fails)
    if not fails:
        assert all(at < began + 1 for at, _ in told)
