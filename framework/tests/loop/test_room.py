"""The scheduling cycles wait for room, and the process rests meanwhile."""

from __future__ import annotations

import asyncio
from functools import partial

from gangline.loop.room import REST, BindingRoom, Rests

from ..eventually import until


class Thread:
    """A thread that works and rests."""

    def __init__(self) -> None:
        self.time = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


async def test_who_waits_rests_each_time_that_work_ends_until_there_is_room() -> None:
    rests: list[None] = []
    room = BindingRoom(lambda: rests.append(None))
    room.is_there(False)
    waiting = asyncio.create_task(room.wait())
    await asyncio.sleep(0)
    assert not rests  # nothing has come, so nothing can gather

    for number in (1, 2, 3):
        room.work_ended()
        await until(partial(lambda many: len(rests) == many, number))
    assert not waiting.done()

    room.is_there(True)
    await waiting
    assert len(rests) == 3


async def test_who_finds_room_does_not_rest() -> None:
    rests: list[None] = []
    room = BindingRoom(lambda: rests.append(None))
    room.work_ended()

    await room.wait()

    assert not rests


async def test_without_rests_who_waits_goes_on_when_there_is_room() -> None:
    room = BindingRoom()
    room.is_there(False)
    waiting = asyncio.create_task(room.wait())
    room.work_ended()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()

    room.is_there(True)
    await waiting


def test_a_thread_with_much_work_does_not_rest() -> None:
    thread = Thread()
    rest = Rests(thread.sleep, lambda: thread.time)

    for work, rested in ((0.001, 1), (REST / 2, 2), (REST * 1.5, 2), (0.002, 3)):
        thread.time += work
        rest()
        assert thread.slept == [REST] * rested
