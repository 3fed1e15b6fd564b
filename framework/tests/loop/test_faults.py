"""A fault of the scheduler itself concerns the unit that met it: it is told, counted, and the work goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gangline.kube.resources import NODES, PODS
from gangline.loop.binding import Binder
from gangline.loop.workers import BindingJob
from gangline.simulate import SimulatedCluster
from gangline.telemetry.metrics import Metrics
from gangline.testing import FakeClock, make_node, make_pod

PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: whole
- schedulerName: broken
"""


def test_a_decision_that_fails_is_told_on_the_pod_and_the_others_are_bound(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("n"))

    async def story() -> float:
        async with cluster.scheduling(PROFILES) as scheduler:
            del scheduler.runtimes["broken"]
            cluster.create(PODS, make_pod("bad", scheduler_name="broken"))
            await cluster.until(lambda: "the scheduler failed: KeyError" in cluster.message("bad"))
            cluster.create(PODS, make_pod("good", scheduler_name="whole"))
            await cluster.until(lambda: "good" in cluster.bound())
            return scheduler.metrics.registry.get_sample_value("gangline_faults_total", {"doing": "deciding"}) or 0.0

    with caplog.at_level(logging.ERROR):
        assert cluster.play(story) >= 1

    assert "deciding went wrong: KeyError('broken')" in caplog.text and "Traceback" in caplog.text


async def test_a_binding_whose_end_cannot_be_noted_leaves_the_binder_at_work() -> None:
    done = asyncio.Event()
    metrics = Metrics()
    binder = Binder(lambda decision, status: None, FakeClock(), metrics, concurrency=1)

    async def bad() -> None:
        raise RuntimeError("a bug")

    async def good() -> None:
        done.set()

    binder.workers_of("p").enqueue(BindingJob(bad))
    binder._start(bad())
    binder.workers_of("p").enqueue(BindingJob(good))
    running = asyncio.create_task(binder.run())
    async with asyncio.timeout(10):
        await done.wait()
    running.cancel()

    assert metrics.registry.get_sample_value("gangline_faults_total", {"doing": "binding"}) == 2
