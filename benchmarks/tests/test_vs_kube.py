"""What is made of the figures of several runs, when a machine counts as quiet, and how long a pod has waited."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from vs_kube import chart, figures, quiet, setting
from vs_kube.figures import KUBE, OURS, Metric, Run, Spread
from vs_kube.observing import Waits
from vs_kube.telling import Outcome, as_json, spelt

SPEED = Metric("pods/s", "{:.0f}", less_is_better=False)


def turns(*pairs: tuple[float, float], others: float = 0.0) -> list[Run]:
    """Runs of both schedulers in turns, with these figures."""
    return [
        Run(name, {SPEED.title: value}, others)
        for pair in pairs
        for name, value in zip((KUBE, OURS), pair, strict=True)
    ]


def outcome(runs: list[Run]) -> Outcome:
    return Outcome("pods", "pods & <more>", (SPEED,), 5, 7, tuple(runs))


def test_a_ratio_is_of_the_two_runs_that_follow_each_other() -> None:
    runs = turns((100, 400), (200, 900), (50, 150))

    assert figures.ratio(runs, SPEED.title) == Spread(median=4.0, least=3.0, greatest=4.5)


def test_there_is_no_ratio_to_zero() -> None:
    runs = turns((100, 400), (0, 4))

    assert figures.ratio(runs, SPEED.title) is None
    assert as_json([outcome(runs)])["workloads"][0]["metrics"][0]["ratio"] is None
    assert spelt(None, "{:.3f}") == "-"


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_a_percentile_is_one_of_the_values(share: float, expected: float) -> None:
    assert figures.percentile([*range(100, 0, -1)], share) == expected


def test_the_percentile_of_one_value_is_that_value() -> None:
    assert figures.percentile([3.0], 0.99) == 3.0


def test_a_machine_on_which_others_worked_was_not_quiet() -> None:
    runs = [*turns((1, 2), others=0.02), *turns((1, 2), others=0.7)]

    assert figures.unquiet(runs) == runs[2:]
    assert "NOT QUIET in 2 of 4 runs: other processes used up to 0.70 cores" in figures.verdict(runs)
    assert figures.verdict(runs[:2]).startswith("The machine was quiet: other processes used 0.02")


def test_the_work_of_a_machine_is_that_of_its_processes() -> None:
    """Not idle time, waiting for a disk, and interrupts."""
    stat = "cpu  100 20 30 99999 7777 5 6 4 50 60\ncpu0 1 1 1 1 1 1 1 1 1 1\n"

    assert quiet.machine_seconds(stat) == (100 + 20 + 30 + 4) / quiet.TICKS


def stat_of(pid: int, parent: int, *used: int, name: str = "python") -> str:
    """A /proc/PID/stat: user and system time, and those of children that have ended."""
    return f"{pid} ({name}) S {parent} " + "0 " * 9 + " ".join(map(str, used)) + " 20 0 1 0 900 1 1"


def test_a_process_has_used_what_its_descendants_have_used() -> None:
    stats = [
        stat_of(10, 1, 1, 2, 3, 4),
        stat_of(12, 11, 100, 0, 0, 0, name="odd) name ("),
        stat_of(11, 10, 10, 20, 0, 0),
        stat_of(99, 1, 5000, 0, 0, 0),
    ]

    assert quiet.tree_seconds(stats, 10) == (10 + 30 + 100) / quiet.TICKS


def test_others_used_what_we_did_not_use() -> None:
    before, after = quiet.Snapshot(10.0, 500.0, 20.0), quiet.Snapshot(14.0, 507.0, 24.0)

    assert quiet.others(before, after) == pytest.approx(0.75)
    assert quiet.others(before, quiet.Snapshot(14.0, 501.0, 24.0)) == 0.0


def test_a_snapshot_counts_this_process() -> None:
    before = quiet.snapshot()
    while quiet.snapshot().ours - before.ours < 2 / quiet.TICKS:
        sum(range(100_000))

    assert quiet.snapshot().machine > before.machine


def test_pods_for_which_there_is_no_room_are_refused_at_once() -> None:
    setting.check_room(800, 100)

    with pytest.raises(ValueError, match="the pods ask for 801 GPUs, and 100 nodes have 800"):
        setting.check_room(801, 100)


def pod(name: str, node: str = "") -> dict[str, dict[str, str]]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node} if node else {}}


def test_a_pod_waits_from_its_first_event_until_it_has_a_node() -> None:
    waits = Waits()

    assert waits.take("ADDED", pod("a"), 1.0) is None
    assert waits.take("MODIFIED", pod("a"), 1.2) is None
    assert waits.take("MODIFIED", pod("a", "node"), 1.5) == 0.5
    assert waits.take("MODIFIED", pod("a", "node"), 1.7) is None


def test_a_pod_that_is_deleted_before_it_has_a_node_waits_no_more() -> None:
    waits = Waits()
    waits.take("ADDED", pod("a"), 1.0)
    waits.take("DELETED", pod("a"), 2.0)

    waits.take("ADDED", pod("a"), 5.0)

    assert waits.take("MODIFIED", pod("a", "node"), 6.0) == 1.0


@pytest.mark.parametrize(
    ("spread", "expected"), [(Spread(2, 2, 2), "2.0"), (Spread(2, 1, 3.25), "2.0 (1.0-3.2)")], ids=["one", "several"]
)
def test_several_figures_are_spelt_with_their_spread(spread: Spread, expected: str) -> None:
    assert spelt(spread, "{:.1f}") == expected


def test_json_has_every_run_and_what_is_made_of_them() -> None:
    told = json.loads(json.dumps(as_json([outcome(turns((100, 400), (200, 900), others=0.5))])))

    (workload,) = told["workloads"]
    assert [run["values"]["pods/s"] for run in workload["runs"]] == [100, 400, 200, 900]
    assert workload["metrics"][0]["ratio"] == {"median": 4.25, "least": 4.0, "greatest": 4.5}
    assert workload["quiet"] is False and workload["runs"][0]["coresUsedByOthers"] == 0.5


def test_the_picture_is_xml_and_says_that_the_machine_was_not_quiet() -> None:
    drawn = chart.draw([outcome(turns((100, 400), (0, 0), others=0.5)), outcome(turns((1, 2)))])

    texts = [each.text or "" for each in ElementTree.fromstring(drawn).iter() if each.tag.endswith("text")]
    assert sum("NOT QUIET" in text for text in texts) == 1
    assert any("pods & <more>" in text for text in texts)
