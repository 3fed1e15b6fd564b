"""What the garbage collector looks at, and how often."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from gangline.process import memory
from gangline.process.memory import (
    collect_rarely,
    collected_rarely,
    looked_at_once,
    memory_left,
    nothing_collected,
    settle_when,
    skim,
)


class Ring:
    """Garbage that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """As it was, after the test too."""
    threshold, callbacks = gc.get_threshold(), list(gc.callbacks)
    gc.collect()
    yield
    assert gc.callbacks == callbacks and gc.isenabled()
    gc.set_threshold(*threshold)


def until(read: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def listed() -> None:
        await read.wait()

    return listed


def is_looked_at(thing: object) -> bool:
    return any(each is thing for each in gc.get_objects())


def test_what_lives_at_a_collection_is_looked_at_once() -> None:
    with looked_at_once():
        kept = Ring()
        assert is_looked_at(kept)

        gc.collect(0)

        assert not is_looked_at(kept)


def test_what_is_garbage_at_a_collection_is_freed() -> None:
    with looked_at_once():
        garbage = weakref.ref(Ring())

        gc.collect(0)

        assert garbage() is None


def test_collections_come_by_themselves_and_often() -> None:
    gc.set_threshold(10**9, 50, 100)
    with looked_at_once():
        garbage = weakref.ref(Ring())

        kept: list[list[int]] = [[] for _ in range(2 * memory.YOUNG)]

    assert garbage() is None and kept
    assert gc.get_threshold() == (10**9, 50, 100)


def test_after_the_block_nothing_of_it_is_looked_at_and_what_is_new_is() -> None:
    with looked_at_once():
        kept = Ring()
    new = Ring()

    gc.collect()

    assert not is_looked_at(kept) and is_looked_at(new)


def test_the_collector_never_looks_at_many_new_objects_at_once() -> None:
    collect_rarely()

    assert gc.get_threshold()[0] <= memory.YOUNG


async def test_while_there_is_no_garbage_the_collector_looks_at_a_sample() -> None:
    gc.set_threshold(10**9, 50, 100)
    looked: list[int] = []
    with looked_at_once() as looks:
        gc.set_threshold(10**9)
        gc.callbacks.append(note := lambda phase, info: looked.append(gc.get_count()[0]) if phase == "start" else None)
        skimming = asyncio.create_task(skim(looks, 0.0))
        kept: list[Ring] = []
        while len(looked) < 3:  # each turn of the loop is a pause of the skimming
            kept.append(Ring())
            await asyncio.sleep(0)
        gc.callbacks.remove(note)
        skimming.cancel()

    assert len(kept) >= 3 * memory.SAMPLE - 1 and not any(map(is_looked_at, kept[:-1]))


async def test_once_there_is_garbage_no_new_object_is_left_out() -> None:
    garbage = [weakref.ref(Ring()) for _ in range(memory.GARBAGE)]
    with looked_at_once() as looks:
        gc.collect(0)
        await asyncio.wait_for(skim(looks, 0.0), 60)  # ends at once

        kept, more = Ring(), weakref.ref(Ring())

        assert looks.found_garbage and is_looked_at(kept)
        gc.collect(0)

    assert more() is None and not any(each() for each in garbage)


async def test_a_sample_with_garbage_ends_the_skimming() -> None:
    with looked_at_once() as looks:
        skimming = asyncio.create_task(skim(looks, 0.0))
        while not skimming.done():
            for _ in range(memory.GARBAGE):
                Ring()
            await asyncio.sleep(0)

    assert looks.found_garbage


def test_after_a_block_in_which_it_runs_rarely_the_collector_runs_as_often_as_before() -> None:
    before = (memory.YOUNG // 2, 7, 5)
    gc.set_threshold(*before)

    with collected_rarely():
        within = gc.get_threshold()

    assert within[0] == memory.YOUNG and gc.get_threshold() == before


def test_modules_are_not_looked_at() -> None:
    with nothing_collected():
        assert not gc.isenabled()
        kept = Ring()

    assert gc.isenabled() and not is_looked_at(kept)


async def test_all_that_was_read_is_settled_when_it_is_read() -> None:
    read = asyncio.Event()
    settling = asyncio.create_task(settle_when(until(read)))
    await asyncio.sleep(0)
    kept, garbage = Ring(), weakref.ref(Ring())
    gc.collect(0)
    assert garbage() is None and not is_looked_at(kept)

    read.set()
    await settling
    new = Ring()
    gc.collect(0)

    assert is_looked_at(new)


async def test_where_reading_takes_long_no_new_object_is_left_out() -> None:
    with looked_at_once() as looks:
        await asyncio.wait_for(skim(looks, 0.0, longest=0.0), 60)  # ends at once

        kept, garbage = Ring(), weakref.ref(Ring())

        assert not looks.found_garbage and is_looked_at(kept)
        gc.collect(0)

    assert garbage() is None


@pytest.mark.parametrize("longest", [0.0, 60.0], ids=["too-long", "in-time"])
async def test_the_collector_never_looks_at_everything_however_long_reading_takes(longest: float) -> None:
    read = asyncio.Event()
    looked: list[int] = []
    gc.callbacks.append(note := lambda phase, info: looked.append(info["generation"]))
    settling = asyncio.create_task(settle_when(until(read), longest))
    await asyncio.sleep(0)
    kept = [[Ring()] for _ in range(4 * memory.YOUNG)]

    read.set()
    await settling
    gc.callbacks.remove(note)

    assert looked and set(looked) == {0}
    assert not any(each is kept[0] or each is kept[-1] for each in gc.get_objects())


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 500\ninactive_file 150\n"}, 450),
        ({"memory.max": "1000", "memory.current": "1100", "memory.stat": ""}, 0),
        ({"memory.max": "max", "memory.current": "700", "memory.stat": ""}, None),
        (
            {
                "memory/memory.limit_in_bytes": "1000",
                "memory/memory.usage_in_bytes": "600",
                "memory/memory.stat": "total_inactive_file 50",
            },
            450,
        ),
        ({}, None),
    ],
    ids=["limit", "over", "no-limit", "version-1", "no-cgroup"],
)
def test_memory_that_is_left_is_that_of_the_container(tmp_path: Path, files: dict[str, str], left: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert memory_left(tmp_path) == left
