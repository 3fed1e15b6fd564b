"""Failpoints: off unless they are named, at the pass that is named, and where the list says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gangline
from gangline import failpoints
from gangline.errors import ConfigError
from gangline.failpoints import NAMES, VARIABLE, FailpointAction, read
from gangline_e2e.forked_programs import Forking

ROOTS = (Path(gangline.__file__).parent, Path(gangline.__file__).parents[2] / "plugins/gangline_plugins")
FIRST = "bind.before-write"
PASSES = f"""
from gangline import failpoints
from gangline.errors import GanglineError
import os, time
failpoints.arm(os.environ.get("{VARIABLE}", ""))
for turn in range(1, 4):
    start = time.monotonic()
    failpoints.failpoint("{FIRST}")
    print(turn, time.monotonic() - start >= 0.2, flush=True)
"""


def run(said: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PASSES]
    return subprocess.run(command, env={**os.environ, VARIABLE: said}, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("said", "printed", "code"),
    [
        ("", "1 False\n2 False\n3 False\n", 0),
        ("bind.after-write=exit", "1 False\n2 False\n3 False\n", 0),
        (f"{FIRST}=exit", "", -signal.SIGKILL),
        (f"bind.after-write=sleep:9, {FIRST}=exit@3", "1 False\n2 False\n", -signal.SIGKILL),
        (f"{FIRST}=sleep:0.2@2", "1 False\n2 True\n3 False\n", 0),
    ],
    ids=["off", "another one", "at once", "at the third pass", "sleeps at the second"],
)
def test_a_process_dies_or_sleeps_at_the_pass_that_is_named(said: str, printed: str, code: int) -> None:
    done = run(said)

    assert (done.stdout, done.returncode) == (printed, code)


@pytest.mark.parametrize(
    "said", ["nowhere=exit", "bind.before-write", f"{FIRST}=kill", f"{FIRST}=exit@0", f"{FIRST}=sleep:601"]
)
def test_what_is_not_understood_is_refused(said: str) -> None:
    with pytest.raises(ConfigError):
        read(said)


def test_the_scheduler_does_not_start_with_an_unknown_failpoint(forking: Forking) -> None:
    done = forking.run(("run",), {**os.environ, VARIABLE: "nowhere=exit"})

    assert done.returncode == 1
    assert b"no such failpoint" in done.stderr


def test_entries_are_read() -> None:
    assert read(" bind.before-write=exit@3,lock.after-write=sleep:2 ,") == {
        FIRST: FailpointAction(3, None),
        "lock.after-write": FailpointAction(1, 2.0),
    }


def test_none_is_armed_here() -> None:
    assert failpoints._armed == frozenset()


def test_the_list_has_the_failpoints_that_are_in_the_code() -> None:
    texts = [path.read_text() for root in ROOTS for path in root.rglob("*.py")]

    found = {name for text in texts for name in re.findall(r'^ +failpoint\("(.+?)"\)$', text, re.MULTILINE)}

    assert found == set(NAMES)
