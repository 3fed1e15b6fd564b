"""Processes die, networks break and strangers delete things, and at no revision of etcd is a rule broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gangline_chaos import figures
from gangline_chaos.failing import at_each
from gangline_chaos.judge.history import HistoryFile, read
from gangline_chaos.judge.judging import Judge, judge
from gangline_chaos.running import Plan, built, run, settle

SELECTED = (
    "kill-leader",
    "stop-leader",
    "cut-leader",
    "stall-leader",
    "rough-answers",
    "throttling",
    "jump-clock",
    "kill-apiserver",
    "lose-node",
    "unready-nodes",
    "silent-agents",
    "webhook-down",
    "delete-locks",
)
"""Some of each family, in all lanes."""
MANY = 500

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def programs(start_control_plane: Callable[..., object]) -> None:
    """Tests are skipped, or fail in CI, where there is no control plane."""


async def test_no_rule_is_broken_by_faults_of_each_family(tmp_path: Path) -> None:
    judged = judge(read(await run(Plan(seed=1, seconds=1, faults=SELECTED, rounds=1), tmp_path, print)))

    shown(judged)
    assert [str(violation) for violation in judged.violations] == []
    assert judged.faults == len(SELECTED) and judged.bound > 50
    assert len(judged.recoveries) == judged.faults


@pytest.mark.alone
@pytest.mark.timeout(900)
async def test_no_rule_is_broken_by_hundreds_of_faults(tmp_path: Path) -> None:
    judged = judge(read(await run(Plan(seed=2, seconds=1, at_least=MANY), tmp_path, print)))

    shown(judged)
    assert [str(violation) for violation in judged.violations] == []
    assert judged.faults >= MANY and judged.bound > MANY


async def test_a_leader_that_dies_at_any_failpoint_leaves_nothing_that_the_next_one_cannot_mend(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl.gz"
    with HistoryFile(path) as history:
        async with built(Plan(seed=1, replicas=3), tmp_path, history) as site:
            missed = await at_each(site, 1, history, print)
            await settle(site, history, print)
    judged = judge(read(path))

    shown(judged)
    assert missed == []
    assert [str(violation) for violation in judged.violations] == []


def shown(judged: Judge) -> None:
    for line in figures.lines(judged):
        print(line)
