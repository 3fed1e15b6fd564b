"""The background work of plugins: restarted after every fault, and every fault is reported."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from gangline.failures import Failures, being_built, name_of, stepped

Work = Callable[[], Coroutine[Any, Any, None]]

POINT = "Background"
FIRST_PAUSE = 1.0
"""Seconds until failed work is started again; the pause doubles with each failure."""
LONGEST_PAUSE = 300.0
SETTLED = 600.0
"""Seconds of work after which earlier failures no longer count."""
GRACE = 30.0
"""Seconds for which spawned work goes on after its configuration was replaced, so that decisions are carried out."""
LINGER = 5.0
"""Seconds for which cancelled work may go on, to clean up; nobody waits for it any longer."""


class Background:
    """The background work of one configuration's plugins; runs only while this process leads."""

    def __init__(self, failures: Failures, spawned: set[asyncio.Task[bool]] | None = None) -> None:
        """`spawned` has the spawned work of all configurations of a process."""
        self._failures = failures
        self.work: list[tuple[str, Work]] = []
        """The work that runs while this process leads, each with the plugin that asked for it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawned: set[asyncio.Task[bool]] = set()
        self._of_all: set[asyncio.Task[bool]] = set() if spawned is None else spawned
        self._group: asyncio.TaskGroup | None = None
        self._is_over = False

    def __len__(self) -> int:
        """The number of tasks."""
        return len(self._tasks) + len(self._spawned)

    def run(self, work: Work) -> None:
        """Run this work while this process leads."""
        self.work.append((being_built.get(), work))
        if self._group is not None and not self._is_over:
            self._begin(self._group, *self.work[-1])

    def spawn(self, work: Work) -> None:
        """Run this work once, now; do nothing while plugins are built, or if this process does not lead."""
        if self._group is not None:
            task = self._group.create_task(once(work, "", self._failures))
            for tasks in (self._spawned, self._of_all):
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            if self._is_over:
                _end_soon(task)

    async def finished(self) -> None:
        """Wait until no spawned work is left, also of configurations that were in use before."""
        while self._of_all:
            await asyncio.wait(tuple(self._of_all))

    def start(self, group: asyncio.TaskGroup, only_spawned: bool = False) -> None:
        """This process leads now: start the work in this task group, or only what is spawned from now on."""
        for task in self._tasks:
            task.cancel()
        self._group = group
        for plugin, work in () if only_spawned else self.work:
            self._begin(group, plugin, work)

    def stop(self) -> None:
        """This process no longer leads; the tasks end with their task group."""
        self._group = None

    def _begin(self, group: asyncio.TaskGroup, plugin: str, work: Work) -> None:
        task = group.create_task(keep_going(work, plugin, self._failures))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        """Another configuration is in use: cancel the work, and let spawned work go on for `GRACE` seconds."""
        self._is_over = True
        for task in self._tasks:
            task.cancel()
        for spawned in self._spawned:
            _end_soon(spawned)


def _end_soon(task: asyncio.Task[bool]) -> None:
    late = asyncio.get_running_loop().call_later(GRACE, task.cancel)
    task.add_done_callback(lambda _: late.cancel())


async def keep_going(work: Work, plugin: str, failures: Failures) -> None:
    """Do the work until it ends by itself; if it fails, start it again after a pause that grows."""
    pause = FIRST_PAUSE
    loop = asyncio.get_running_loop()
    while True:
        start = loop.time()
        if await once(work, plugin, failures) or is_cancelled():
            return
        if loop.time() - start >= SETTLED:
            pause = FIRST_PAUSE
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE, 2 * pause)


async def once(work: Work, plugin: str, failures: Failures) -> bool:
    """Do the work; returns whether it came to its end.

    Raises only if the task is cancelled: when the work has ended, or `LINGER` seconds later at the latest.
    """
    plugin = plugin or name_of(work)
    is_left = asyncio.Event()
    # The work has a task of its own: work that this task awaited itself could ignore a cancellation of this task.
    doing = asyncio.create_task(_done(work, plugin, failures, is_left.is_set), name=f"{plugin} at {POINT}")
    try:
        await asyncio.wait((doing,))
    except asyncio.CancelledError:
        doing.cancel()
        if not await _has_ended(doing):
            failures.refused(plugin, POINT, f"goes on {LINGER:g} s after it was cancelled, and is left")
            is_left.set()
            doing.cancel()
        raise
    return doing.result()


async def _done(work: Work, plugin: str, failures: Failures, is_left: Callable[[], bool]) -> bool:
    try:
        doing = work()
        if inspect.iscoroutine(doing):
            await stepped(doing, lambda s: failures.slow(plugin, POINT, s), is_left)
        else:
            await doing
    except BaseException as error:  # a plugin's bug ends neither the others' work nor the process
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        failures.raised(plugin, POINT, error)
        return False
    return True


async def _has_ended(doing: asyncio.Task[bool]) -> bool:
    """Whether the task ends within `LINGER` seconds; waits for it even if the waiting task is cancelled again."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LINGER
    while not doing.done() and (left := end - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait((doing,), timeout=left)
    return doing.done()


def is_cancelled() -> bool:
    """Whether the current task is being cancelled; false if a plugin has raised CancelledError by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
