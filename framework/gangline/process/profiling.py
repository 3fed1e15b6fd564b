"""Finds out where this process spends CPU time: after each hundredth of a second of CPU time, the stacks are sampled.

The file has a line for each stack: its functions, the outermost first, and then microseconds of CPU time. speedscope,
flamegraph.pl and inferno read this format. The file names threads and functions, and has no values of variables.

Rules
- A timer of CPU time sends a signal, which Python handles between two instructions of the main thread. A sampling
  thread would see the main thread mostly at places where a C library lets other threads run.
- The CPU time of a thread since the last sample is added to the thread's stack. If the thread is at rest, the time is
  added to the next stack that is sampled. The time of a C library counts for the Python function that called it.
- The number of stacks, and of functions in one of them, is bounded.
- The file is replaced as a whole, once a minute and at the end. After the start, an error in writing is only logged.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Protocol

from gangline.errors import ConfigError
from gangline.process.whole_files import is_special

log = logging.getLogger(__name__)

OPTION = "--profile-cpu"
BETWEEN = 0.01
"""Seconds of CPU time of the process between two samples."""
WRITTEN_EVERY = 60.0
"""Seconds between two writes of the file."""
MOST_STACKS = 5_000
"""Different stacks of one thread, and of all threads that have ended together; further stacks count as one."""
MOST_NAMES = 20_000
DEEPEST = 100
"""Functions of a stack that are written, at most: the innermost ones."""
OTHERS = ("(other stacks)",)
UNSEEN = ("(not seen)",)
AT_REST = {
    ("asyncio.runners", "Runner.run"),  # uvloop waits below this function
    ("concurrent.futures.thread", "_worker"),
    *(("threading", name) for name in ("Condition.wait", "Thread._wait_for_tstate_lock", "Thread.join")),
    *(("selectors", f"{kind}Selector.select") for kind in ("Epoll", "Poll", "Select", "Kqueue")),
}
"""Modules and functions that are innermost while a thread waits."""

Stack = tuple[str, ...]


class Thread(Protocol):
    """The attributes of a `threading.Thread` that are read."""

    @property
    def name(self) -> str: ...

    @property
    def ident(self) -> int | None: ...

    @property
    def native_id(self) -> int | None: ...


class _Seen:
    """The samples of one thread."""

    def __init__(self, name: str, cpu: int) -> None:
        self.name = name
        self.told = self.cpu = cpu
        """Nanoseconds of CPU time up to the last sample that found the thread at work; and up to the last sample."""
        self.stacks: Counter[Stack] = Counter()
        """Nanoseconds by stack."""

    def nanoseconds(self) -> Iterator[tuple[Stack, int]]:
        """The CPU time of the thread by its stacks."""
        for stack, nanoseconds in dict(self.stacks).items():  # a copy, because the main thread may take a sample
            yield (self.name, *stack), nanoseconds
        if self.cpu > self.told:
            yield (self.name, *UNSEEN), self.cpu - self.told


class Samples:
    """The sampled stacks of all threads."""

    def __init__(self, most_stacks: int = MOST_STACKS, deepest: int = DEEPEST) -> None:
        self._most_stacks = most_stacks
        self._deepest = deepest
        self._threads: dict[int, _Seen] = {}
        self._ended: Counter[Stack] = Counter()
        """Microseconds of threads that have ended."""
        self._names: dict[CodeType, str] = {}

    def take(self, threads: Iterable[Thread], frames: Mapping[int, FrameType], used: Mapping[int, int]) -> None:
        """Take a sample. `frames` has the innermost frame by the identity of the thread, and `used` the nanoseconds of
        CPU time by its native identity.
        """
        for native_id in self._threads.keys() - used.keys():
            for stack, nanoseconds in self._threads.pop(native_id).nanoseconds():
                self._ended[self._kept(stack, self._ended)] += nanoseconds
        for thread in threads:
            cpu, frame = used.get(thread.native_id or 0), frames.get(thread.ident or 0)
            if cpu is None or frame is None or thread.native_id is None:
                continue
            seen = self._threads.get(thread.native_id)
            if seen is None:
                seen = self._threads[thread.native_id] = _Seen(thread.name, cpu)
            seen.cpu = cpu
            if cpu > seen.told and not _at_rest(frame):
                seen.stacks[self._kept(self._stack(frame), seen.stacks)] += cpu - seen.told
                seen.told = cpu

    def lines(self) -> Iterator[str]:
        """The lines of the file: the stacks of all threads, each with its microseconds."""
        total = Counter(dict(self._ended))
        for seen in list(self._threads.values()):
            for stack, nanoseconds in seen.nanoseconds():
                total[stack] += nanoseconds
        for stack, nanoseconds in sorted(total.items()):
            yield f"{';'.join(each.replace(';', ',') for each in stack)} {round(nanoseconds / 1000)}"

    def _kept(self, stack: Stack, stacks: Counter[Stack]) -> Stack:
        """The stack; OTHERS if there are too many different stacks."""
        return stack if stack in stacks or len(stacks) < self._most_stacks else OTHERS

    def _stack(self, frame: FrameType | None) -> Stack:
        names: list[str] = []
        while frame is not None and len(names) < self._deepest:
            names.append(self._name(frame))
            frame = frame.f_back
        return tuple(reversed(names))

    def _name(self, frame: FrameType) -> str:
        code = frame.f_code
        name = self._names.get(code)
        if name is None:
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            name = self._names[code] = f"{frame.f_globals.get('__name__', '?')}:{code.co_qualname}"
        return name


def _at_rest(frame: FrameType) -> bool:
    return (frame.f_globals.get("__name__"), frame.f_code.co_qualname) in AT_REST


class _Sampler:
    """Takes samples in the main thread, and writes the file in another thread."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._samples = Samples()
        self._stopped = threading.Event()
        self._writer = threading.Thread(target=self._write_often, name="profile-cpu", daemon=True)
        self._failure: Exception | None = None
        self._looking = False

    def start(self) -> None:
        """Begin to take samples. Raises ConfigError if the file cannot be written, or the system has no CPU times."""
        if _cpu_time(threading.get_native_id()) is None:
            raise ConfigError(OPTION, "", "this system does not tell the CPU time of threads in /proc")
        try:
            self._write()
        except OSError as error:
            raise ConfigError(OPTION, str(self._file), f"cannot be written: {error.strerror}") from error
        self._look(sys._getframe())
        signal.signal(signal.SIGPROF, self._on_signal)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, BETWEEN, BETWEEN)
        self._writer.start()

    def stop(self) -> None:
        """Stop taking samples, and write the file."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)  # a signal may be under way, and would end the process
        self._stopped.set()
        self._writer.join()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Take a sample. No exception may leave this method: Python calls it at any point of the main thread."""
        if frame is None or self._looking:
            return
        self._looking = True
        try:
            self._look(frame)
        except RecursionError:  # the main thread is near the end of its stack
            return
        except Exception as error:  # the scheduler goes on without a profile
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            self._failure = error
        finally:
            self._looking = False

    def _look(self, frame: FrameType) -> None:
        threads = [each for each in threading.enumerate() if each is not self._writer]
        used = {each.native_id: cpu for each in threads if each.native_id and (cpu := _cpu_time(each.native_id))}
        frames = sys._current_frames() | {threading.main_thread().ident or 0: frame}
        self._samples.take(threads, frames, used)

    def _write_often(self) -> None:
        stopped = False
        while not stopped:
            stopped = self._stopped.wait(WRITTEN_EVERY)
            self._try_to_write()
            if self._failure is not None:
                log.error("%s: the profile ends here: %r", OPTION, self._failure)
                return

    def _try_to_write(self) -> None:
        try:
            self._write()
        except OSError as error:
            log.warning("%s: %s cannot be written: %s", OPTION, self._file, error.strerror)

    def _write(self) -> None:
        if is_special(self._file):  # it would be replaced by a file
            raise OSError(errno.EINVAL, "it is no regular file")
        new = self._file.with_name(f"{self._file.name}.new")
        try:
            new.write_text("".join(f"{line}\n" for line in self._samples.lines()))
            new.replace(self._file)
        except OSError:
            with suppress(OSError):
                os.unlink(new)
            raise


def _cpu_time(native_id: int) -> int | None:
    """Nanoseconds for which a thread of this process has had a processor; None if there is no such thread any more."""
    try:
        with open(f"/proc/self/task/{native_id}/schedstat", "rb", buffering=0) as told:
            return int(told.read(64).split()[0])
    except (OSError, ValueError, IndexError):
        return None


@contextmanager
def profiled(file: Path) -> Iterator[None]:
    """Profile this process while the block runs, in the main thread. Raises ConfigError."""
    sampler = _Sampler(file)
    sampler.start()
    log.info("profiling CPU time to %s", file)
    try:
        yield
    finally:
        sampler.stop()
