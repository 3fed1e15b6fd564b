"""Whatever comes, breaks or dies between any two writes: no rule of the judge is broken, and all comes into order.

In CI each seed is played by a process of its own, as `python -m gangline_chaos virtual` does. hypothesis takes some of
the values that it tries from the modules that are imported, so within the process of the tests the steps of a seed
would depend on the tests that ran before.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from hypothesis import settings

from gangline_chaos.virtual.machine import Machine
from gangline_chaos.virtual.playing import play
from gangline_e2e.gangs import Rule

IS_THOROUGH = settings().derandomize
"""As in CI: the same steps in each run, at least 10,000 of them in all, with at least 4,000 faults."""
SEEDS = [1, 2, 3, 4, 5] if IS_THOROUGH else [None]
STEPS = 2500 if IS_THOROUGH else 90
FAULTS = 1000 if IS_THOROUGH else 0


@pytest.mark.timeout(1200)  # hypothesis may take minutes to find the shortest steps that fail
@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_is_broken_whatever_happens_between_any_two_writes(seed: int | None) -> None:
    steps, faults = play(None, STEPS, length=30) if seed is None else _played_alone(seed)

    print(f"{steps} steps, {faults} faults")
    assert steps >= STEPS and faults >= FAULTS


def test_leases_that_are_deleted_before_their_makers_have_the_answer_are_made_again() -> None:
    machine = Machine()
    machine.begin([1], Rule(), 0.0)
    for _ in range(10):
        machine.repair(0.0)
    machine.repair(0.003)
    machine.delete_locks(0, 1, 0.0)
    machine.delete_locks(0, 1, 0.0)
    machine.teardown()


def _played_alone(seed: int) -> tuple[int, int]:
    """The steps and the faults among them that another process has played."""
    command = [sys.executable, "-m", "gangline_chaos", "virtual", "--seed", str(seed), "--steps", str(STEPS)]
    ended = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True)
    assert ended.returncode == 0, f"PYTHONHASHSEED=0 {' '.join(command)}\n{ended.stdout}{ended.stderr}"
    told = re.search(r"(\d+) steps with (\d+) faults", ended.stdout)
    assert told is not None, ended.stdout
    return int(told[1]), int(told[2])
