"""The loop of the agent: it reads at the start, after every event and regularly, and goes on without NVML."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gangline.model import Node, NodeStatus, ObjectMeta
from gangline.wire.custom_resources import GpuNodeStatusStatus
from gangline_agent import hardware
from gangline_agent.observing import BURST, WITHIN, Observer
from gangline_agent.publishing import Publisher, Reporter
from gangline_agent.readings import Reading, Unavailable
from gangline_agent.signs import Signs

from .stories import cluster, eventually

PLAIN = Node(metadata=ObjectMeta(name="node"))
PLUGGED = Node(metadata=ObjectMeta(name="node"), status=NodeStatus(capacity={"nvidia.com/gpu": "4"}))
LOST = Unavailable("DriverNotLoaded", "Driver Not Loaded")


class FakeSession:
    """Gives the reading that is set; `news` ends a wait."""

    def __init__(self, reading: Reading | Unavailable) -> None:
        self.reading = reading
        self.watching = True
        self.closed = False
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()

    def change(self, reading: Reading | Unavailable) -> None:
        """There is something new to read."""
        self.reading = reading
        self._news.put(None)

    def read(self) -> Reading:
        """See Session."""
        if isinstance(self.reading, Unavailable):
            raise self.reading
        return self.reading

    def wait(self, seconds: float) -> bool:
        """See Session."""
        try:
            self._news.get(timeout=seconds)
        except queue.Empty:
            return False
        return True

    def close(self) -> None:
        """See Session."""
        self.closed = True


class ListeningReporter(Reporter):
    """Hands on what is reported instead of publishing it."""

    def __init__(self) -> None:
        super().__init__(Publisher(cluster(), lambda node: {}), "node", self._node)
        self.reports: asyncio.Queue[tuple[GpuNodeStatusStatus, dict[str, str]]] = asyncio.Queue()

    def report(self, status: GpuNodeStatusStatus, wanted_labels: object) -> None:
        """See Reporter."""
        assert isinstance(wanted_labels, dict)
        self.newest = status
        self.reports.put_nowait((status, wanted_labels))

    async def _node(self) -> Node:
        return Node(metadata=ObjectMeta(name="node"))


@asynccontextmanager
async def observing(
    session: FakeSession, root: Path, period: float = 600.0, node: Node = PLAIN
) -> AsyncIterator[ListeningReporter]:
    async def find() -> Node:
        return node

    reporter = ListeningReporter()
    running = asyncio.create_task(Observer(session, root, reporter, period, Signs(root, find)).run())
    yield reporter
    running.cancel()
    await asyncio.wait((running,))


async def test_the_first_reading_is_reported_at_once(tmp_path: Path) -> None:
    session = FakeSession(hardware.dgx_h100())

    async with observing(session, tmp_path) as reporter:
        status, labels = await reporter.reports.get()

    assert status.total == 8
    assert labels["nvidia.com/gpu.count"] == "8"
    assert session.closed


async def test_an_event_is_reported_without_waiting_for_the_heartbeat(tmp_path: Path) -> None:
    reading = hardware.pcie_4()
    sick = replace(reading, gpus=(replace(reading.gpus[0], problems=("XID 79",)), *reading.gpus[1:]))
    session = FakeSession(reading)

    async with observing(session, tmp_path) as reporter:
        await reporter.reports.get()
        session.change(sick)
        status, _ = await reporter.reports.get()

    assert [device.health for device in status.devices] == ["Unhealthy", "Healthy", "Healthy", "Healthy"]


async def test_events_without_end_cost_few_readings(tmp_path: Path) -> None:
    class Restless(FakeSession):
        def wait(self, seconds: float) -> bool:
            return True

    async with observing(Restless(hardware.pcie_4()), tmp_path) as reporter:
        for _ in range(BURST):
            await reporter.reports.get()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(WITHIN / 10):
                await reporter.reports.get()


async def test_without_any_event_it_reads_again_after_the_period(tmp_path: Path) -> None:
    session = FakeSession(hardware.pcie_4())
    session.watching = False

    async with observing(session, tmp_path, period=0.01) as reporter:
        reports = [await reporter.reports.get() for _ in range(3)]

    assert [status.total for status, _ in reports] == [4, 4, 4]


async def test_nvml_that_hangs_is_told_once_and_reported_when_it_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging(FakeSession):
        goes_on = threading.Event()

        def read(self) -> Reading:
            self.goes_on.wait(10)
            return super().read()

    reporter, session = ListeningReporter(), Hanging(hardware.pcie_4())
    observer = Observer(session, tmp_path, reporter, 600.0, Signs(tmp_path, reporter._node), patience=0.01)
    looking = asyncio.create_task(observer.look())
    await eventually(lambda: "NVML has not answered for 0.01 s; until it does nothing is reported" in caplog.messages)
    session.goes_on.set()
    await looking

    assert reporter.reports.qsize() == 1
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told[1:] == ["NVML answers again"]


async def test_without_nvml_it_says_so_and_goes_on_until_nvml_is_there(tmp_path: Path) -> None:
    session = FakeSession(LOST)

    async with observing(session, tmp_path, node=PLUGGED) as reporter:
        without, no_labels = await reporter.reports.get()
        session.change(hardware.pcie_4())
        with_nvml, _ = await reporter.reports.get()

    assert (without.total, without.conditions[0].reason, no_labels) == (0, "DriverNotLoaded", {})
    assert (with_nvml.total, with_nvml.conditions[0].status) == (4, "True")


@pytest.mark.parametrize("reading", [LOST, Reading()], ids=["no NVML", "no GPUs"])
async def test_where_there_is_no_sign_of_gpus_nothing_is_reported_and_it_is_ready(
    tmp_path: Path, reading: Reading | Unavailable
) -> None:
    session = FakeSession(reading)

    async with observing(session, tmp_path, period=0.01) as reporter:
        await eventually(lambda: reporter.waiting_for() is None)
        assert reporter.reports.empty()
        session.change(hardware.pcie_4())
        status, _ = await reporter.reports.get()

    assert status.total == 4


def test_every_reading_is_offered_and_without_nvml_one_without_gpus() -> None:
    offered: list[Reading] = []
    reading = hardware.pcie_4()
    session = FakeSession(reading)

    async def find() -> Node:
        return PLAIN

    async def story() -> None:
        signs = Signs(Path("/nowhere"), find)
        observer = Observer(session, Path("/nowhere"), ListeningReporter(), 30.0, signs, offer=offered.append)
        await observer.look()
        session.reading = LOST
        await observer.look()

    asyncio.run(story())

    assert offered == [reading, Reading()]
