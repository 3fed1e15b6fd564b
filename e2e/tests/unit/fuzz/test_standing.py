"""Odd inputs of every kind: after each of them everything goes on. `make fuzz` does the same for an hour."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangline_fuzz import inputs
from gangline_fuzz.rooms import play
from gangline_fuzz.running import Runner, quiet

CORPUS = sorted((Path(inputs.__file__).parent / "corpus").glob("*.json"))
CLUSTERS = 300 if os.environ.get("CI") else 10


@pytest.mark.timeout(900)
def test_nothing_that_is_made_at_random_stops_anything(tmp_path: Path) -> None:
    runner = Runner(tmp_path)

    runner.repeatable(CLUSTERS)

    assert not runner.tally.failures, f"{runner.tally}\n{list(runner.tally.saved.values())}"
    assert runner.tally.inputs.total() > 2 * CLUSTERS


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_once_stopped_something_does_so_no_more(path: Path) -> None:
    with quiet():
        found = play(inputs.read(path))

    assert found is None, f"{found.signature}\n{found.said}"
