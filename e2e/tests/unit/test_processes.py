"""Programs are started, stopped and measured by pid and start time."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from gangline_e2e import background, processes
from gangline_e2e.processes import Process, start, stop, usage

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"


@pytest.mark.parametrize("code", [SLEEPER, STUBBORN], ids=["obedient", "ignores SIGTERM"])
def test_stop_ends_a_program(tmp_path: Path, code: str) -> None:
    process = _started(tmp_path, code)

    stop([process], grace_s=0.5)

    assert not process.alive()


def test_stop_returns_when_a_killed_program_is_gone_without_any_patience(tmp_path: Path) -> None:
    process = _started(tmp_path, STUBBORN)

    stop([process], grace_s=0.0)

    assert not process.alive()


def test_a_recorded_program_can_be_stopped_by_another_process(tmp_path: Path) -> None:
    process = _started(tmp_path, SLEEPER)
    background.record(tmp_path, [process])

    stopped = background.down(tmp_path)

    assert stopped == ["sleeper"]
    assert not process.alive()


def test_a_pid_that_was_given_to_another_program_is_not_signalled(tmp_path: Path) -> None:
    process = _started(tmp_path, SLEEPER)
    earlier = Process("sleeper", process.pid, process.started - 1)
    background.record(tmp_path, [earlier])

    stopped = background.down(tmp_path)

    assert stopped == []
    assert process.alive()
    stop([process], grace_s=5)


def test_usage_counts_the_cpu_time_and_memory_of_this_process() -> None:
    used = usage(os.getpid())

    assert used.cpu_s == pytest.approx(sum(os.times()[:2]), abs=0.5)
    assert used.peak_rss_bytes > 10 * 1024**2


def test_usage_of_a_program_that_is_gone_is_an_error(tmp_path: Path) -> None:
    process = _started(tmp_path, SLEEPER)
    stop([process], grace_s=5)

    with pytest.raises(ProcessLookupError, match=f"no process {process.pid}"):
        process.usage()


def test_last_lines_shows_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(30)))

    assert processes.last_lines(log, count=2) == "\n    line 28\n    line 29"


def _started(folder: Path, code: str) -> Process:
    """A Python program that has printed its first line, so that it is set up."""
    log = folder / "log"
    process = start("sleeper", [sys.executable, "-c", code], log)
    while not log.read_text():
        assert process.alive()
        time.sleep(processes.POLL_S)
    return process
