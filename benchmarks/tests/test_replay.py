"""The made-up trace for replays is the same each time, can be read, and fills the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

import replay
from gangline.replay import reading


def test_the_trace_is_made_of_the_seed_and_asks_for_the_load(tmp_path: Path) -> None:
    one, same, other = (list(replay.made_up(500, 20, 0.9, seed)) for seed in (1, 1, 2))
    replay.write(tmp_path / "trace.csv", iter(one))
    jobs = reading.read([tmp_path / "trace.csv"]).jobs

    assert one == same != other
    assert sum(job.pods for job in jobs) >= 500
    asked = sum(job.demand / 1000 * (job.duration or 0) for job in jobs)
    assert asked / (jobs[-1].arrival * 20 * replay.GPUS) == pytest.approx(0.9, rel=0.1)


def test_two_replays_have_the_same_figures(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    replay.write(path, replay.made_up(30, 2, 1.5, 0))
    (found, _, _), (again, _, _) = (replay.measure([path], 8, "default") for _ in range(2))

    assert found.pods >= 30 and found.finished
    assert replay.digest(found) == replay.digest(again)
