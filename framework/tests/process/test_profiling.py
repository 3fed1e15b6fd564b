"""A profile names the functions that use CPU time, shares all of it out, stays small, and needs a file it can write."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

from gangline.errors import ConfigError
from gangline.process.profiling import Samples, profiled

MILLISECOND = 1_000_000


@dataclass(frozen=True)
class FakeThread:
    name: str
    ident: int
    native_id: int


MAIN = FakeThread("main", ident=1, native_id=11)


def outer(inner: Callable[[], FrameType]) -> FrameType:
    return inner()


def here() -> FrameType:
    return sys._getframe()


def elsewhere() -> FrameType:
    return sys._getframe()


def looked(*looks: tuple[FrameType, int], into: Samples | None = None) -> list[tuple[list[str], int]]:
    """Stacks and microseconds after looks at one thread, each at a frame and a number of milliseconds of CPU time."""
    samples = into or Samples()
    for frame, cpu in looks:
        samples.take([MAIN], {1: frame}, {11: cpu * MILLISECOND})
    return told(samples)


def told(samples: Samples) -> list[tuple[list[str], int]]:
    lines = [line.rpartition(" ") for line in samples.lines()]
    return [(stack.split(";"), int(microseconds)) for stack, _, microseconds in lines]


def test_a_stack_is_told_from_the_thread_to_the_innermost_function() -> None:
    frame = outer(here)

    ((stack, microseconds),) = looked((frame, 5), (frame, 12))

    assert microseconds == 7000
    assert stack[0] == "main" and stack[-2:] == [f"{__name__}:outer", f"{__name__}:here"]


def test_cpu_time_before_a_rest_counts_for_the_next_stack() -> None:
    a, b, resting = outer(here), outer(elsewhere), at_rest()

    found = looked((a, 0), (a, 10), (resting, 20), (b, 30), (a, 40))

    assert {stack[-1].rpartition(":")[2]: used for stack, used in found} == {"here": 20000, "elsewhere": 20000}


def at_rest() -> FrameType:
    """What a thread shows that waits."""
    found: list[FrameType] = []
    waiting, end = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    while not found or found[-1].f_code.co_qualname != "Condition.wait":
        found.append(sys._current_frames()[thread.ident or 0])
    end.set()
    thread.join()
    return found[-1]


def test_a_thread_that_has_used_no_cpu_time_is_not_in_the_profile() -> None:
    assert looked((outer(here), 5), (outer(here), 5)) == []


def test_cpu_time_of_a_thread_that_was_seen_at_rest_alone_is_told() -> None:
    assert looked((at_rest(), 5), (at_rest(), 9)) == [(["main", "(not seen)"], 4000)]


def test_threads_that_have_ended_stay_in_the_profile() -> None:
    samples, frame = Samples(most_stacks=3), here()
    for number in range(1, 11):
        thread = FakeThread(f"thread-{number}", ident=1, native_id=number)
        samples.take([thread], {1: frame}, {number: 0})
        samples.take([thread], {1: frame}, {number: MILLISECOND})
    samples.take([], {}, {})

    found = told(samples)

    assert len(found) == 4 and sum(used for _, used in found) == 10_000


def test_the_number_and_the_depth_of_stacks_are_bounded() -> None:
    def deep(levels: int) -> FrameType:
        return deep(levels - 1) if levels else here()

    def deeper(levels: int) -> FrameType:
        return deeper(levels - 1) if levels else elsewhere()

    frames = [here(), deep(50), deeper(50), outer(here)]
    looks = [(frame, 10 * number) for number, frame in enumerate([frames[0], *frames])]
    found = looked(*looks, into=Samples(most_stacks=2, deepest=5))

    assert len(found) == 3 and max(len(stack) for stack, _ in found) == 6
    assert sum(used for stack, used in found if stack[-1] == "(other stacks)") == 20_000


def test_the_work_of_this_process_is_written(tmp_path: Path) -> None:
    file = tmp_path / "cpu.txt"

    with profiled(file):
        assert file.read_text() == ""
        _work(20)

    lines = file.read_text().splitlines()
    mine = sum(int(line.rpartition(" ")[2]) for line in lines if f"{__name__}:_work" in line)
    assert mine > 50_000
    assert not any(thread.name == "profile-cpu" for thread in threading.enumerate())
    assert [each.name for each in tmp_path.iterdir()] == ["cpu.txt"]


def _work(samples: int) -> None:
    """Keep the processor busy until so many samples were taken. CPU time proves nothing: on a virtual machine that is
    held up, a thread may use a second of it between two signals.
    """
    taken, take = 0, signal.getsignal(signal.SIGPROF)
    assert callable(take)

    def counted(number: int, frame: FrameType | None) -> None:
        nonlocal taken
        taken += 1
        take(number, frame)

    signal.signal(signal.SIGPROF, counted)
    while taken < samples:
        sum(range(1000))


def test_a_file_that_cannot_be_written_is_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--profile-cpu: .*cpu\.txt: cannot be written: No such file"):
        profiled(tmp_path / "missing" / "cpu.txt").__enter__()


def test_a_pipe_or_device_stays_and_is_named_at_the_start(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(ConfigError, match="pipe: cannot be written: it is no regular file"):
        profiled(pipe).__enter__()
    assert pipe.is_fifo()


def test_a_file_that_cannot_be_written_later_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    with profiled(folder / "cpu.txt"):
        (folder / "cpu.txt").unlink()
        folder.rmdir()

    assert "cannot be written" in caplog.text
