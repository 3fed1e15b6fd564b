"""Traces are played in virtual time by the scheduler's own decisions."""

from __future__ import annotations

import gc
import logging

import pytest

from gangline.commands.profiles import choose
from gangline.replay.figures import NEVER, Figures, figures
from gangline.replay.playing import Player
from gangline.replay.trace import Trace, TraceJob, TraceNode


def nodes(count: int, gpus: int = 8, model: str = "") -> list[TraceNode]:
    return [
        TraceNode(f"{model or 'node'}-{number}".lower(), 64_000, 256 * 1024, gpus, model) for number in range(count)
    ]


def gpu_job(
    arrival: float, duration: float | None, gpus: int = 8, milli: int = 1000, pods: int = 1, priority: int = 0
) -> TraceJob:
    return TraceJob(arrival, duration, pods, gpus, milli, priority=priority)


def played(
    jobs: list[TraceJob], cluster: list[TraceNode], profile: str = "gpu-scheduler", until: float | None = None
) -> Figures:
    config = choose([], profile)
    player = Player(Trace(jobs, cluster), config, config.profiles[0], seed=1)
    return figures(profile, player.play(until), [])


def test_a_job_waits_until_another_one_ends_and_is_then_bound_at_once() -> None:
    found = played([gpu_job(0, 100), gpu_job(10, 100)], nodes(1))

    assert (found.finished, found.running, found.waiting) == (2, 0, 0)
    assert found.waits.longest == 90.0
    assert 200 <= found.seconds < 205
    assert found.use.gpus == pytest.approx(1.0)


def test_a_gang_starts_as_a_whole() -> None:
    found = played([gpu_job(0, 100), gpu_job(5, 50, pods=2)], nodes(2))

    assert found.finished == 3
    assert found.waits.longest == 95.0
    assert max(each.waiting for each in found.samples) == 2


def test_parts_of_gpus_share_a_gpu_where_the_profile_knows_parts(caplog: pytest.LogCaptureFixture) -> None:
    jobs = [gpu_job(0, None, gpus=1, milli=250) for _ in range(8)]
    with_parts, without = played(jobs, nodes(1, gpus=2)), played(jobs, nodes(1, gpus=2), "default")

    assert (with_parts.running, with_parts.waiting) == (8, 0)
    assert with_parts.highest_allocation == 1.0
    assert (without.running, without.waiting) == (2, 6)
    assert not [line for line in caplog.records if line.levelno >= logging.ERROR]  # of the claims' statuses


def test_pods_go_to_models_that_will_do() -> None:
    wants = TraceJob(0, None, gpus=1, milli=1000, models=("G2",))
    found = played([wants, wants], [*nodes(1, 1, "T4"), *nodes(1, 1, "G2")])

    assert (found.running, found.waiting, found.waits.pods[NEVER]) == (1, 1, 1)


@pytest.mark.parametrize("profile", ["gpu-scheduler", "default"])
def test_a_preempted_job_starts_anew(profile: str) -> None:
    found = played([gpu_job(0, 100), gpu_job(60, 10, priority=5)], nodes(1), profile)

    assert (found.finished, found.evictions) == (2, 1)
    assert found.lost_gpu_hours == pytest.approx(60 * 8 / 3600, rel=0.05)
    assert 165 < found.seconds < 190


def test_a_gang_of_which_a_pod_is_preempted_starts_anew_as_a_whole() -> None:
    found = played([gpu_job(0, 100, pods=2), gpu_job(60, 10, priority=5)], nodes(2))

    assert (found.finished, found.evictions) == (3, 2)
    assert found.waits.longest < 5


def test_a_replay_ends_when_nothing_can_happen_any_more() -> None:
    found = played([gpu_job(0, None), gpu_job(1, 50), gpu_job(2, 50, gpus=64)], nodes(1))

    assert (found.running, found.waiting) == (1, 2)
    assert found.seconds < 30


def test_a_replay_ends_at_the_time_that_is_given() -> None:
    found = played([gpu_job(0, 1000), gpu_job(500, 1000)], nodes(1), until=100.0)

    assert (found.seconds, found.jobs, found.running) == (100.0, 1, 1)


def test_years_pass_in_no_time_and_samples_stay_few() -> None:
    year = 365 * 86400.0
    found = played([gpu_job(number * year, 60) for number in range(20)], nodes(1))

    assert found.finished == 20
    assert 100 < len(found.samples) <= 401
    assert found.use.gpus < 0.001


def test_two_replays_are_equal() -> None:
    jobs = [gpu_job(3.0 * number, 40 + 7 * number % 50, 1 + number % 5) for number in range(15)]
    first, second = (played(jobs, nodes(2)) for _ in range(2))

    assert (first.samples, first.waits, first.decisions) == (second.samples, second.waits, second.decisions)


def test_free_gpus_are_fragments_for_pods_that_need_more_of_them_than_a_node_has_left() -> None:
    found = played([gpu_job(0, None, gpus=5), gpu_job(0, None, gpus=5), gpu_job(0, 10, gpus=5)], nodes(2))

    assert found.samples[-1].fragmented == pytest.approx(6 / 16)
    assert found.samples[-1].allocated == pytest.approx(10 / 16)


def test_replays_with_the_same_seed_are_equal_also_where_pods_are_preempted() -> None:
    jobs = [gpu_job(number, 1000 + 37 * number) for number in range(50)]
    jobs += [gpu_job(400 + number, 100, priority=10) for number in range(20)]
    first, second = (played(jobs, nodes(50)) for _ in range(2))

    assert first.evictions > 0
    assert first.samples == second.samples and first.seconds == second.seconds


def test_what_decisions_leave_behind_is_freed_without_the_garbage_collector() -> None:
    """Cycles among the objects of each attempt kept 48 objects for each pod, and to find them took 3 % of a replay."""
    jobs = [gpu_job(0, 100, pods=2), gpu_job(1, 50, pods=2), gpu_job(2, 20), gpu_job(30, 10, pods=2, priority=5)]
    config = choose([], "gpu-scheduler")
    player = Player(Trace(jobs, nodes(2)), config, config.profiles[0], seed=1)
    gc.collect()
    gc.disable()
    try:
        player.play()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(each).__name__ for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

    assert not left & {"GroupCycle", "_Counting", "GroupAttempt", "Filler", "Filtered", "Run", "PodInfo"}
