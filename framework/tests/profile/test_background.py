"""Background work of plugins ends with its configuration and its process, whatever it does about its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from gangline import Handle, config, hookimpl
from gangline.failures import Failures, being_built
from gangline.loop.scheduler import Scheduler
from gangline.profile.background import FIRST_PAUSE, GRACE, LINGER, POINT, Background
from gangline.profile.registry import Catalog
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run

LEFT = f"plugin Stubborn at {POINT}: goes on {LINGER:g} s after it was cancelled, and is left"


async def deaf() -> None:
    """Never ends."""
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1.0)


async def deafer() -> None:
    """Never ends, and does not even let itself be closed."""
    while True:
        with suppress(BaseException):
            await asyncio.sleep(1.0)


async def forgetful() -> None:
    """Goes on once, without another look at its cancellation."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(3600.0)
    await asyncio.get_running_loop().create_future()


async def failing() -> None:
    """Turns its cancellation into an error."""
    try:
        await asyncio.sleep(3600.0)
    except asyncio.CancelledError:
        raise OSError("interrupted") from None


async def tidy() -> None:
    """Cleans up for a while."""
    try:
        await asyncio.sleep(3600.0)
    finally:
        await asyncio.sleep(LINGER - 1.0)


async def waits() -> None:
    """Awaits a task that never ends: a cancellation reaches that one alone."""
    await asyncio.create_task(deaf())


async def gathers() -> None:
    """The same with several at once."""
    await asyncio.gather(deaf(), deaf())


async def groups() -> None:
    """Waits at the end of a group of tasks."""
    async with asyncio.TaskGroup() as group:
        group.create_task(deaf())


class World:
    """The background work of one configuration, in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.failures = Failures()
        self.background = Background(self.failures)

    async def lead(self, work: Callable[[], Awaitable[None]], how: str, seconds: float = 100.0) -> float:
        """Lead for some seconds, and then no longer; returns the seconds until all work has ended."""
        token = being_built.set("Stubborn")
        if how == "run":
            self.background.run(work)  # type: ignore[arg-type]
        stop = asyncio.Event()

        async def leading() -> None:
            async with asyncio.TaskGroup() as group:
                self.background.start(group)
                if how == "spawn":
                    self.background.spawn(work)  # type: ignore[arg-type]
                await stop.wait()

        task = asyncio.create_task(leading())
        being_built.reset(token)
        await asyncio.sleep(seconds)
        ended = self.clock.monotonic()
        task.cancel()
        await asyncio.wait((task,), timeout=3600.0)
        return self.clock.monotonic() - ended


@pytest.mark.parametrize(
    ("work", "seconds", "faults"),
    [
        (deaf, LINGER, 1),
        (deafer, LINGER, 1),
        (forgetful, LINGER, 1),
        (waits, LINGER, 1),
        (gathers, LINGER, 1),
        (groups, LINGER, 1),
        (failing, 0.0, 1),
        (tidy, LINGER - 1.0, 0),
    ],
)
@pytest.mark.filterwarnings("ignore:Exception ignored in.*deafer")  # that is all that is left of it
@pytest.mark.parametrize("how", ["run", "spawn"])
def test_cancelled_work_ends_in_time(
    how: str, work: Callable[[], Awaitable[None]], seconds: float, faults: int
) -> None:
    world = World()

    assert run(world.lead(work, how), world.clock) == pytest.approx(seconds)
    assert sum(world.failures.counts.values()) == faults


@pytest.mark.parametrize("work", [waits, gathers, groups])
def test_tasks_that_work_has_started_keep_no_simulation_from_ending(
    work: Callable[[], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    world = World()

    seconds = run(world.lead(work, "run", 1.0), world.clock)

    assert world.clock.monotonic() == pytest.approx(1.0 + seconds + LINGER)
    assert any(
        message.endswith(f" (deaf) goes on {LINGER:g} s after it was cancelled, and is left")
        for message in caplog.messages
    )


def test_cleaning_up_goes_on_when_work_is_cancelled_again() -> None:
    world = World()
    cleaned = list[float]()

    async def cleans() -> None:
        try:
            await asyncio.sleep(3600.0)
        finally:
            await asyncio.sleep(LINGER - 1.0)
            cleaned.append(world.clock.monotonic())

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            world.background.start(group)
            world.background.run(cleans)
            await asyncio.sleep(10.0)
            world.background.end()
            await asyncio.sleep(1.0)
            world.background.end()

    run(story(), world.clock)

    assert cleaned == [10.0 + LINGER - 1.0]


def test_work_that_is_left_is_named_in_log_and_metric(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    run(world.lead(deaf, "run"), world.clock)

    assert caplog.messages == [LEFT]
    assert world.failures.failed.labels("Stubborn", POINT)._value.get() == 1


def test_a_timeout_within_the_work_is_no_cancellation() -> None:
    world, turns = World(), list[float]()

    async def waits() -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER / 2):
                    await asyncio.sleep(3600.0)
            turns.append(world.clock.monotonic())

    run(world.lead(waits, "run", 10 * LINGER + 1.0), world.clock)

    assert len(turns) == 20
    assert not world.failures.counts


@pytest.mark.parametrize("how", ["run", "spawn"])
def test_work_of_a_configuration_that_was_replaced_ends(how: str) -> None:
    world = World()

    async def story() -> int:
        async with asyncio.TaskGroup() as group:
            world.background.start(group)
            (world.background.run if how == "run" else world.background.spawn)(deaf)
            await asyncio.sleep(FIRST_PAUSE)
            world.background.end()
            await asyncio.sleep(GRACE + LINGER + 1.0)
            return len(world.background)

    assert run(story(), world.clock) == 0


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Stubborn}]}}}]
"""


def test_a_simulation_with_work_that_goes_on_ends() -> None:
    class Stubborn:
        name = "Stubborn"

        def __init__(self, handle: Handle) -> None:
            handle.run(deaf)

        @hookimpl
        def pre_enqueue(self) -> None:
            """Every pod may enter."""

    clock = VirtualClock()
    catalog = Catalog.discover().with_classes(Stubborn)
    scheduler = Scheduler(config.load(CONFIG, ""), SimulatedClient(InMemoryServer(clock)), clock, catalog)

    async def story() -> None:
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(10.0)
        task.cancel()
        await asyncio.wait((task,), timeout=3600.0)

    run(story(), clock)

    assert clock.monotonic() <= 10.0 + 2 * LINGER
    assert scheduler.metrics.failures.counts["Stubborn", POINT] == 1
