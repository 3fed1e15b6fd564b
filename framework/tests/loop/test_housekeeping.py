"""What the scheduler's housekeeping says to the metrics."""

from __future__ import annotations

import asyncio

from gangline import PodInfo, Status, config, hookimpl
from gangline.kube.resources import LEASES, Selection
from gangline.simulate import Scheduler, SimulatedCluster

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
"""
WATCHING = PROFILE + "  plugins: {multiPoint: {enabled: [{name: Watching}]}}\n"


TWO = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: WatchingTwo}]}}
- schedulerName: other
"""


class Watching:
    """Watches leases, which no plugin of the default profile does."""

    name = "Watching"
    watches = (LEASES,)

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        return None


class WatchingTwo(Watching):
    """Watches the leases of two namespaces."""

    name = "WatchingTwo"
    watches = (Selection(LEASES, "a"), Selection(LEASES, "b"))  # type: ignore[assignment]  # of another length


def relists(scheduler: Scheduler) -> float | None:
    """How often leases were listed, as the metrics say it; None if they say nothing of leases."""
    return scheduler.metrics.registry.get_sample_value("gangline_informer_relists", {"resource": LEASES.key})


def test_a_kind_that_is_watched_again_is_in_the_metrics_again() -> None:
    cluster = SimulatedCluster()
    found = []

    async def story() -> None:
        async with cluster.scheduling(WATCHING, plugins=[Watching]) as scheduler:
            for text in (WATCHING, PROFILE, WATCHING):
                scheduler.use(config.load(text, "test"))
                await asyncio.sleep(3.0)
                found.append(relists(scheduler))

    cluster.play(story)

    assert found == [1.0, None, 1.0]


def test_the_lists_of_all_watches_of_a_kind_count() -> None:
    cluster = SimulatedCluster()
    found = []

    async def story() -> None:
        async with cluster.scheduling(TWO, plugins=[WatchingTwo]) as scheduler:
            await asyncio.sleep(3.0)
            found.append(relists(scheduler))
            next(each for each in scheduler.informers if each.resource is LEASES).relist()
            await asyncio.sleep(3.0)
            found.append(relists(scheduler))

    cluster.play(story)

    assert found == [2.0, 3.0]


def test_a_kind_that_is_left_and_watched_again_at_once_is_in_the_metrics() -> None:
    cluster = SimulatedCluster()
    found = []

    async def story() -> None:
        async with cluster.scheduling(WATCHING, plugins=[Watching]) as scheduler:
            await asyncio.sleep(3.0)
            for text in (PROFILE, WATCHING):
                scheduler.use(config.load(text, "test"))
            await asyncio.sleep(3.0)
            found.append(relists(scheduler))

    cluster.play(story)

    assert found == [1.0]
