"""Memory of the process: how glibc frees memory, and when Python's garbage collector runs."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LISTING = 120.0
"""Seconds, at most, for which `skim` goes on while the cluster is read; two million pods take less."""
YOUNG = 50_000
"""New objects after which the collector runs: a run over so many takes some 15 ms."""
PAUSE = 0.05
"""Seconds, while the cluster is read, after which new objects are set aside; fewer than YOUNG come in this time."""
SAMPLE = 8
"""The collector looks at the objects of each so many'th pause."""
GARBAGE = YOUNG // 100
"""Objects freed by one run of the collector, from which on it looks at all new objects."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_CGROUPS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)
"""For each version of cgroups: the file of the limit, the file of the memory in use, and the name in memory.stat of the
memory of files that are not in use.
"""


def keep_memory() -> None:
    """Let glibc's allocator keep the memory of freed arrays; without glibc nothing happens.

    Returning the memory to the system and requesting it again takes a third of the time of a decision on a pod of a new
    class at 5,000 nodes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, 128 * 1024 * 1024)
        mallopt(_M_MMAP_THRESHOLD, 32 * 1024 * 1024)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """A block in which the garbage collector is off and whose objects it never looks at: for imports, which otherwise
    take a tenth longer.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_rarely() -> None:
    """Most objects live long: make the garbage collector look at them less often, and at few at a time."""
    gc.set_threshold(YOUNG, 200, 100)


@contextmanager
def collected_rarely() -> Iterator[None]:
    """A block in which the garbage collector runs as after `collect_rarely`."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)


def settle_memory() -> None:
    """The garbage collector never looks at the present objects again."""
    gc.collect()
    gc.freeze()
    collect_rarely()


class Looks:
    """What the collector has found since `looked_at_once` began."""

    found_garbage = False

    def after(self, phase: str, info: dict[str, int]) -> None:
        """The collector has ended a run, or begins one: what it has left alive is never looked at again."""
        if phase == "stop":
            self.found_garbage |= info["collected"] >= GARBAGE
            gc.freeze()


@contextmanager
def looked_at_once() -> Iterator[Looks]:
    """A block in which the garbage collector looks once at each new object, or not at all (`skim`), and later never
    again at an object that it has left alive.

    Reading a cluster creates millions of objects that stay. Without this block the collector looks at each of them
    several times and, at the end, at all of them together, which blocks the loop for a second on a large cluster.
    """
    before, looks = gc.get_threshold(), Looks()
    gc.set_threshold(YOUNG, *before[1:])
    gc.callbacks.append(looks.after)
    try:
        yield looks
    finally:
        gc.callbacks.remove(looks.after)
        gc.freeze()
        gc.set_threshold(*before)


async def skim(looks: Looks, pause: float = PAUSE, longest: float = LISTING) -> None:
    """While the collector finds no garbage, let it look at a sample of the new objects, for ``longest`` seconds.

    A look at each object takes 6 % of the time in which a cluster is read, and there is no garbage among them unless
    something goes wrong. Once a sample has garbage, or reading takes long, the collector looks at all new objects.
    """
    end = time.monotonic() + longest
    while not looks.found_garbage and time.monotonic() < end:
        for _ in range(SAMPLE - 1):
            await asyncio.sleep(pause)
            gc.freeze()
        await asyncio.sleep(pause)
        gc.collect(0)


async def settle_when(listed: Callable[[], Awaitable[None]], longest: float = LISTING) -> None:
    """Wait for ``listed``, which returns when the cluster has been read; see `looked_at_once` for the collector.

    If reading takes longer than ``longest`` seconds, the collector looks at each new object for the rest of the time,
    so that garbage does not pile up while an API server does not answer. Even then it looks at no object twice: a look
    at all objects at the end would block the loop for as long as the cluster is large.
    """
    with looked_at_once() as looks:
        skimming = asyncio.create_task(skim(looks, longest=longest))
        try:
            await listed()
        finally:
            skimming.cancel()


def memory_left(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes until the memory limit of the container, without those of cached files; None if there is no limit."""
    for limit, used, files in _CGROUPS:
        with suppress(OSError, ValueError):
            most, now = int((root / limit).read_text()), int((root / used).read_text())
            stat = (root / used).with_name("memory.stat").read_text().split()
            unused = int(stat[stat.index(files) + 1]) if files in stat else 0
            return max(0, most - now + unused)
    return None
