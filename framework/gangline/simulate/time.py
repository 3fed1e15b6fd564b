"""Virtual time: an asyncio event loop that never waits but moves its clock on to the next timer.

Rules
- Time stands still while anything is ready to run; otherwise it jumps to the earliest timer.
- Timers that are due at the same moment run in the order in which they were set.
- There is no I/O and no thread: only the program decides what happens, so two runs are equal.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import logging
import math
import selectors
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar, TypeVarTuple
from weakref import ref

from gangline.errors import GanglineError
from gangline.process.ending import named
from gangline.profile.background import LINGER

log = logging.getLogger(__name__)

EPOCH = 1767225600.0
"""The default start of virtual time, in seconds since 1970: 2026-01-01T00:00:00Z."""
NAMED = 8  # waiting tasks that an error names
_FEW_TASKS = 64

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Deadlock(GanglineError):
    """Every task waits for another one, or for ever, and no timer is set: virtual time cannot go on."""

    def __init__(self, waiting: tuple[str, ...]) -> None:
        super().__init__(waiting)
        self.waiting = waiting

    def __str__(self) -> str:
        named = ", ".join(self.waiting[:NAMED])
        more = f" and {len(self.waiting) - NAMED} more" if len(self.waiting) > NAMED else ""
        return f"virtual time cannot go on: no timer is set, and these tasks wait: {named}{more}"


class VirtualClock:
    """Implements `gangline.api.plugin.Clock`; a `VirtualLoop` moves it on."""

    def __init__(self, epoch: float = EPOCH) -> None:
        self._epoch = epoch
        self._elapsed = 0.0

    def monotonic(self) -> float:
        """Virtual seconds since the clock was made."""
        return self._elapsed

    def now(self) -> float:
        """Virtual seconds since 1970."""
        return self._epoch + self._elapsed

    def move_to(self, moment: float) -> None:
        """Sets the time of `monotonic`; it never goes back."""
        self._elapsed = max(self._elapsed, moment)


def run(coroutine: Coroutine[Any, Any, Result], clock: VirtualClock | None = None) -> Result:
    """Runs a coroutine to its end in virtual time, then cancels what it left behind.

    Raises Deadlock when nothing can happen any more. Tasks that set timers for ever keep time going: bound the
    coroutine with `asyncio.timeout`, which counts virtual seconds. Tasks that go on `LINGER` seconds after they were
    cancelled are named in the log, and left.
    """
    with looping(clock or VirtualClock()) as loop:
        return loop.run_until_complete(coroutine)


@contextmanager
def looping(clock: VirtualClock) -> Iterator[VirtualLoop]:
    """A loop that may run several coroutines, one after the other; what they leave behind stands still in between.

    At the end everything is cancelled, as `run` says.
    """
    loop = VirtualLoop(clock)
    try:
        yield loop
    finally:
        loop.run_until_complete(_end_others(loop))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end_others(loop: VirtualLoop) -> None:
    others = [task for task in loop.tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    if not others:
        return
    for task in (await asyncio.wait(others, timeout=LINGER))[1]:
        log.warning("the task %s goes on %g s after it was cancelled, and is left", named(task), LINGER)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a `VirtualClock`."""

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual = clock
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._tasks: list[ref[asyncio.Task[Any]]] = []
        """All tasks that are not done, in the order in which they were created, and some that are."""
        self._most_tasks = _FEW_TASKS
        self.fired = 0
        """How many timers have been fired so far."""
        super().__init__(_NoSelector(self._move_on))

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual.monotonic()

    def create_task(self, coro: Any, **more: Any) -> asyncio.Task[Any]:
        """Runs the coroutine as a task of this loop."""
        task: asyncio.Task[Any] = super().create_task(coro, **more)
        self._tasks.append(ref(task))  # a WeakSet takes three times as long
        if len(self._tasks) > self._most_tasks:
            self._tasks = [ref(each) for each in self.tasks()]
            self._most_tasks = _FEW_TASKS + 2 * len(self._tasks)
        return task

    def tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks that are not done. `asyncio.all_tasks` walks those of all loops that the process has ever had, for
        as long as the collector has not freed them: 3 % of the time of thousands of simulations.
        """
        return [task for each in self._tasks if (task := each()) is not None and not task.done()]

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Calls back at a moment of virtual time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Calls back as soon as this step is over; a shorter way than asyncio's own, which a replay takes 12 times for
        each pod.
        """
        own: Any = self  # what loops have of asyncio is not listed
        if own._closed or own._debug:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        own._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """The same as `call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Arguments], Result],
        *args: *Arguments,
    ) -> asyncio.Future[Result]:
        """Calls the function at once, in this thread; the future is done."""
        future: asyncio.Future[Result] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def until_next_timer(self) -> float:
        """Virtual seconds until the first timer fires; infinity when none is set."""
        self._drop_cancelled()
        return self._timers[0][0] - self.time() if self._timers else math.inf

    def _drop_cancelled(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)

    def _move_on(self, idle: bool) -> None:
        """Makes the timers that are due ready; when idle, moves time on to the first of them."""
        self._drop_cancelled()
        if idle:
            if not self._timers or self._timers[0][0] == math.inf:
                self._give_up()
            self._virtual.move_to(self._timers[0][0])
        now = self.time()
        while self._timers and self._timers[0][0] <= now:
            self.fired += 1
            # The loop leaves out a handle that is cancelled before its turn.
            self._add_callback(heapq.heappop(self._timers)[2])  # type: ignore[attr-defined]  # for loops, so not listed

    def _give_up(self) -> NoReturn:
        tasks = sorted(self.tasks(), key=lambda task: (len(task.get_name()), task.get_name()))
        raise Deadlock(tuple(named(task) for task in tasks))


def virtual_loop() -> VirtualLoop:
    """The loop that runs the caller."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "time is not virtual here"
    return loop


class _NoSelector(selectors.BaseSelector):
    """Takes the place of the operating system: nothing is ever ready, and waiting takes no time."""

    def __init__(self, move_on: Callable[[bool], None]) -> None:
        self._move_on = move_on
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._move_on(timeout is None)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._keys:  # the first is the loop's own pipe, which nobody writes to
            raise RuntimeError("there is no I/O in virtual time")
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys
