"""What a seed decides, and the figures of a run."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

import pytest

from gangline import failpoints
from gangline.simulate.workloads import missing
from gangline_chaos import figures, owned, units
from gangline_chaos.failing import LATE, SECOND, UNREACHED, reached
from gangline_chaos.faults import FAULTS, LANES, ON_THE_WAY, Lane
from gangline_chaos.judge import objects
from gangline_chaos.judge.history import Mark
from gangline_chaos.judge.judging import judge
from gangline_chaos.running import Plan, chosen
from gangline_e2e.workloads import Manifest, Manifests


@pytest.mark.parametrize("lane", LANES)
def test_a_seed_decides_the_order_of_faults_and_each_comes_as_often_as_the_others(lane: Lane) -> None:
    count = sum(fault.lane == lane for fault in FAULTS.values())

    first, again, other = ([fault.name for fault in islice(chosen(Plan(seed), lane), 3 * count)] for seed in (1, 1, 2))

    assert first == again != other
    assert len(set(first)) == count and set(Counter(first).values()) == {3}


def test_a_run_may_have_some_faults_alone() -> None:
    plan = Plan(1, faults=("cut-all",))

    assert {fault.name for fault in islice(chosen(plan, "schedulers"), 5)} == {"cut-all"}
    assert list(chosen(plan, "pods")) == []


def test_without_an_election_nothing_happens_to_a_leader_that_needs_one() -> None:
    names = {fault.name for lane in LANES for fault in islice(chosen(Plan(1, elect=False), lane), 100)}

    assert names == set(FAULTS) - {"failpoint", "full-disk", "delete-election"}


def test_every_fault_has_an_end() -> None:
    assert all(0 <= fault.shortest_s <= fault.longest_s <= 15 for fault in FAULTS.values())


def test_a_seed_decides_the_units() -> None:
    def made(seed: int) -> list[units.Unit]:
        rng = random.Random(seed)
        return [units.make(rng, number, (1.0, 2.0)) for number in range(100)]

    assert made(1) == made(1) != made(2)
    assert {unit.name.partition("-")[0] for unit in made(1)} == {"gang", "owned", "single", "share", "claims"}


def test_what_the_judge_reads_stands_on_the_pods() -> None:
    rng = random.Random(1)
    for number in range(200):
        unit = units.make(rng, number, (1.0, 2.0))
        pods = [objects.pod_of(f"/registry/pods/x/{n}", _stored(each), 0.0) for n, each in enumerate(_pods(unit))]
        assert sum(pod.wants for pod in pods) == unit.gpus
        assert len(pods) == 1 or all(pod.gang == unit.name and pod.least == len(pods) for pod in pods)
        assert all(pod.asks["cpu"] <= 96 for pod in pods)


def test_controllers_make_as_many_pods_as_a_gang_needs_and_those_that_are_lost() -> None:
    rng = random.Random(1)
    for number in range(50):
        unit = units.gang(rng, f"owned-{number}", 1.0, owned.DIALECTS)
        assert unit.pods == [] and len(_pods(unit)) == unit.controlled > 1


def test_failpoints_that_tests_name_are_failpoints() -> None:
    late = {name for name in failpoints.NAMES if name.startswith(LATE)}

    assert late and set(reached()) == late | set(ON_THE_WAY)
    assert set(ON_THE_WAY) >= SECOND
    assert all(name.startswith(tuple(UNREACHED)) for name in set(failpoints.NAMES) - set(reached()))


def test_figures_count_faults_and_spread_their_recoveries() -> None:
    marks = [Mark(at, kind, "cut-1", "") for at, kind in ((1.0, "begin"), (2.0, "end"))]

    said = list(figures.lines(judge(marks)))

    assert said[0] == "1 faults, 0 revisions checked, 0 times a pod was bound"
    assert said[1] == "0 violations"
    assert said[-1].split() == ["cut", "1", "times:", "p50", "0.0", "s,", "p99", "0.0", "s,", "max", "0.0", "s"]


@pytest.mark.parametrize(("share", "value"), [(0.5, 5), (0.99, 10), (1.0, 10), (0.0, 1)])
def test_a_percentile_is_one_of_the_values(share: float, value: int) -> None:
    assert figures.percentile([*range(10, 0, -1)], share) == value


def _pods(unit: units.Unit) -> Manifests:
    """The pods of a unit, with those that its controllers make."""
    made = [_with_uid(owner, "default") for owner in unit.owners]
    return [*unit.pods, *(pod for owner in made for pod in missing(owner, []))]


def _with_uid(owner: Manifest, namespace: str) -> Manifest:
    return {**owner, "metadata": {**owner["metadata"], "uid": "uid", "namespace": namespace}}


def _stored(pod: Manifest) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "uid": "uid"}}
