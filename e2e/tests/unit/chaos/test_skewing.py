"""The wall clock of a process is shifted while the process runs."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from gangline_chaos import skewing

PROGRAM = """
import sys, time
for line in sys.stdin:
    print(time.time(), time.time_ns() / 1e9, time.monotonic(), flush=True)
"""


def test_the_wall_clock_of_a_process_jumps_and_jumps_back_and_its_monotonic_clock_goes_on(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    skewing.shift(clock, 0.0)
    env = {**os.environ, "PYTHONPATH": str(skewing.prepare(tmp_path / "startup")), skewing.VARIABLE: str(clock)}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        told = []
        for seconds in (0.0, 3600.0, -3600.0, 0.0):
            skewing.shift(clock, seconds)
            process.stdin.write("\n")
            process.stdin.flush()
            told.append([float(each) for each in process.stdout.readline().split()])
        process.stdin.close()

    wall, ns, monotonic = zip(*told, strict=True)
    shifts = [round(after - before, -2) for before, after in pairwise(wall)]
    assert shifts == [3600.0, -7200.0, 3600.0]
    assert all(abs(a - b) < 50 for a, b in zip(wall, ns, strict=True))
    assert list(monotonic) == sorted(monotonic) and monotonic[-1] - monotonic[0] < 50
