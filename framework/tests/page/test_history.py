"""The past is a bounded number of samples, and each says what has happened since the one before."""

from __future__ import annotations

import pytest

from gangline.page.history import MOST, ClusterHistory, quantile
from gangline.page.tables import EVERYBODY
from gangline.testing import make_pod

from .shown import ShownCluster, node


def history() -> tuple[ShownCluster, ClusterHistory]:
    shown = ShownCluster(node("a"), node("b"), node("c"))
    shown.bind(make_pod("p", gpus=2, node="a"), make_pod("q", gpus=8, node="b"))
    return shown, shown.history


def test_a_sample_has_what_is_used_what_is_stranded_and_what_waits() -> None:
    shown, past = history()
    shown.wait(make_pod("late", gpus=64), make_pod("later", gpus=64))
    shown.clock.seconds = 1065.0

    past.sample()

    (sample,) = past.since(0)
    assert (sample.at, sample.gpus, sample.used, sample.stranded) == (1065, 24, 10, 6)
    assert (sample.waiting, sample.longest) == (2, 1060)


def test_durations_are_of_what_was_counted_since_the_sample_before() -> None:
    shown, past = history()
    latencies = shown.metrics.algorithm.series("x")
    for took in (0.001, 0.002, 0.1):
        latencies.observe(took)
        past.sample()
    past.sample()

    samples = past.since(0)
    assert [sample.decisions for sample in samples] == [1, 1, 1, 0]
    assert samples[0].latency <= 0.00128 < samples[1].latency <= 0.00256 < samples[2].latency
    assert samples[3].latency == 0.0


def test_the_past_is_bounded_here_and_in_the_picture() -> None:
    shown, past = history()
    for _ in range(MOST + 5):
        shown.clock.advance(30.0)
        past.sample()
        if past.taken in (3, MOST):
            shown.draw()

    assert len(past.since(0)) == len(shown.draw().tables.rows(EVERYBODY)["history"]) == MOST
    assert len(past.since(past.taken - 2)) == 2
    assert past.since(past.taken) == []


@pytest.mark.parametrize(
    ("part", "counts", "expected"),
    [
        (0.5, [0, 0, 0], 0.0),
        (0.5, [2, 0, 0], 0.5),
        (0.5, [1, 3, 0], pytest.approx(1.333, abs=0.001)),
        (0.99, [0, 0, 7], 2.0),
    ],
    ids=["nothing", "first", "within", "beyond"],
)
def test_a_part_of_a_histogram(part: float, counts: list[int], expected: float) -> None:
    assert quantile(part, counts, (1.0, 2.0)) == expected
