"""A profile whose plugin never returns from a binding harms no pod of another profile."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest

from gangline import config, hookimpl
from gangline.kube.resources import NODES, PODS
from gangline.loop.scheduler import Options
from gangline.loop.workers import LONG, MOST_LONG
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.testing import make_node, make_pod

PLACES = 2
ENDLESS = (MOST_LONG + 1) * PLACES
"""Bindings of one profile that may be under way although none ends."""
PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: whole
- schedulerName: stuck
  plugins:
    multiPoint: {enabled: [{name: Endless}]}
"""
ENDLESS_BIND = (
    PROFILES
    + """\
    bind: {enabled: [{name: Endless}], disabled: [{name: "*"}]}
"""
)


def endless(point: str, released: asyncio.Event | None = None) -> type[Any]:
    """A plugin that does not return at this point before it is released."""

    async def call(self: Any) -> None:
        await (released or asyncio.Event()).wait()

    return type("Endless", (), {"name": "Endless", point: hookimpl(call)})


def _are_bound(cluster: SimulatedCluster, names: set[str]) -> bool:
    return names <= set(cluster.bound())


def filled(cluster: SimulatedCluster, waiting: int = 0) -> None:
    cluster.create(NODES, make_node("n", cpu=200, pods=1000))
    cluster.create(PODS, *(make_pod(f"hangs-{i}", scheduler_name="stuck") for i in range(ENDLESS + waiting)))


@pytest.mark.parametrize("point", ["pre_bind", "bind", "post_bind"])
def test_pods_of_another_profile_are_bound_at_once(point: str) -> None:
    cluster = SimulatedCluster()
    filled(cluster, waiting=20 * PLACES)

    async def story() -> list[float]:
        client = SimulatedClient(cluster.server, latency={"bind": 0.1})
        options = Options(seed=1, concurrency=PLACES)
        profiles = ENDLESS_BIND if point == "bind" else PROFILES
        took: list[float] = []
        async with cluster.scheduling(profiles, client, plugins=[endless(point)], options=options):
            for pause in (0.1, (MOST_LONG + 3) * LONG):  # while places are left, and afterwards
                await asyncio.sleep(pause)
                wanted = {f"good-{len(took)}-{i}" for i in range(10 * PLACES)}
                cluster.create(PODS, *(make_pod(name, scheduler_name="whole") for name in wanted))
                took.append(await cluster.until(partial(_are_bound, cluster, wanted)))
        return took

    first, second = cluster.play(story)
    assert first <= LONG + 10 * 0.1 + 0.2 and second <= 10 * 0.1 + 0.2


def test_what_users_see_of_another_profile_is_written_at_once() -> None:
    cluster = SimulatedCluster()
    filled(cluster)

    async def story() -> float:
        options = Options(seed=1, concurrency=PLACES)
        async with cluster.scheduling(ENDLESS_BIND, plugins=[endless("bind")], options=options):
            await asyncio.sleep((MOST_LONG + 3) * LONG)
            names = [f"big-{i}" for i in range(20)]
            cluster.create(PODS, *(make_pod(name, cpu=1000, scheduler_name="whole") for name in names))
            return await cluster.until(lambda: all(map(cluster.message, names)))

    assert cluster.play(story) < 1.0


def test_the_profile_is_named(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SimulatedCluster()
    filled(cluster, waiting=10 * PLACES)
    message = f'profile "stuck": {ENDLESS} bindings take long, so no other pod of this profile is bound'
    message += f"; plugin Endless at bind has not returned {ENDLESS} times"

    async def story() -> tuple[float | None, ...]:
        options = Options(seed=1, concurrency=PLACES)
        async with cluster.scheduling(ENDLESS_BIND, plugins=[endless("bind")], options=options) as scheduler:
            await cluster.until(lambda: message in cluster.notes())
            value = scheduler.metrics.registry.get_sample_value
            return tuple(value("gangline_long_bindings", {"profile": name}) for name in ("stuck", "whole"))

    with caplog.at_level(logging.WARNING):
        assert cluster.play(story) == (ENDLESS, None)

    assert caplog.text.count(message) == 1


def test_a_profile_goes_on_when_its_bindings_end() -> None:
    cluster = SimulatedCluster()
    filled(cluster, waiting=10 * PLACES)
    released = asyncio.Event()

    async def story() -> None:
        options = Options(seed=1, concurrency=PLACES)
        async with cluster.scheduling(PROFILES, plugins=[endless("pre_bind", released)], options=options) as scheduler:
            await asyncio.sleep((MOST_LONG + 3) * LONG)
            assert not cluster.bound()
            released.set()
            await cluster.until(lambda: len(cluster.bound()) == ENDLESS + 10 * PLACES, seconds=2)
            assert scheduler.metrics.registry.get_sample_value("gangline_long_bindings", {"profile": "stuck"}) == 0

    cluster.play(story)


@pytest.mark.parametrize("point", ["pre_bind", "bind", "post_bind"])
@pytest.mark.parametrize("then", ["another plugin", "fewer profiles"])
def test_a_profile_goes_on_when_a_reload_removes_the_plugin_that_never_returns(point: str, then: str) -> None:
    cluster = SimulatedCluster()
    filled(cluster, waiting=10 * PLACES)
    without = (
        PROFILES.partition("  plugins:")[0] if then == "another plugin" else PROFILES.partition("- schedulerName: s")[0]
    )

    async def story() -> float | None:
        options = Options(seed=1, concurrency=PLACES)
        profiles = ENDLESS_BIND if point == "bind" else PROFILES
        async with cluster.scheduling(profiles, plugins=[endless(point)], options=options) as scheduler:
            await asyncio.sleep((MOST_LONG + 3) * LONG)
            scheduler.use(config.load(without, ""))
            if then == "another plugin":
                await cluster.until(lambda: len(cluster.bound()) == ENDLESS + 10 * PLACES, seconds=30)
            await asyncio.sleep(30)
            return scheduler.metrics.registry.get_sample_value("gangline_long_bindings", {"profile": "stuck"})

    assert cluster.play(story) == 0


def test_a_reload_leaves_calls_of_plugins_that_stay_alone() -> None:
    cluster = SimulatedCluster()
    filled(cluster)
    released = asyncio.Event()

    async def story() -> None:
        async with cluster.scheduling(
            PROFILES, plugins=[endless("pre_bind", released)], options=Options(seed=1)
        ) as scheduler:
            await asyncio.sleep(LONG)
            scheduler.use(config.load(PROFILES + "podMaxBackoffSeconds: 20\n", ""))
            await asyncio.sleep(30)
            assert not cluster.bound()
            released.set()
            await cluster.until(lambda: len(cluster.bound()) == ENDLESS, seconds=0.5)

    cluster.play(story)


def test_while_bindings_wait_but_take_no_longer_than_usual_pods_keep_their_order_over_profiles() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("n", cpu=ENDLESS, pods=1000))
    cluster.create(PODS, *(make_pod(f"first-{i}", cpu=1, priority=9, scheduler_name="stuck") for i in range(ENDLESS)))
    cluster.create(PODS, *(make_pod(f"second-{i}", cpu=1, scheduler_name="whole") for i in range(ENDLESS)))

    class Endless:
        name = "Endless"

        @hookimpl
        async def pre_bind(self) -> None:
            await asyncio.sleep(0.9 * LONG)

    async def story() -> None:
        async with cluster.scheduling(PROFILES, plugins=[Endless], options=Options(seed=1, concurrency=PLACES)):
            await cluster.until(lambda: len(cluster.bound()) == ENDLESS)

    cluster.play(story)
    assert all(name.startswith("first") for name in cluster.bound())
