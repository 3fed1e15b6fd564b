"""What plugins expect is shown, and a plugin with a fault harms no picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from gangline.api.outlook import ExpectedStart
from gangline.failures import Failures
from gangline.page.expecting import Expecting
from gangline.state.pods import PodInfo
from gangline.testing import make_pod

from .shown import ShownCluster, node

START = ExpectedStart("pod-default-next", 2000.0, 1000.0, 9000.0, 8, ("n",))


class Expected:
    def __init__(self, end: float = math.inf) -> None:
        self.end = end

    def starts(self) -> Sequence[ExpectedStart]:
        return [START]

    def end_of(self, pod: PodInfo) -> float:
        return self.end


class Faulty(Expected):
    def starts(self) -> Sequence[ExpectedStart]:
        raise ValueError("broken")


def shown_with(*outlooks: Expected) -> tuple[ShownCluster, Failures]:
    shown, failures = ShownCluster(node("n")), Failures()
    shown.expecting = Expecting(lambda: [("Mine", each) for each in outlooks], failures)
    shown.taker = shown.new_taker()
    pod = make_pod("p", gpus=1, node="n")
    pod.status.start_time = "1970-01-01T00:10:00Z"
    shown.bind(pod)
    shown.wait(make_pod("next", gpus=8))
    return shown, failures


def test_room_that_is_kept_is_shown_with_what_waits() -> None:
    shown, _ = shown_with(Expected())

    (unit,) = shown.draw().tables.rows("default")["units"].values()
    assert unit[-1] == (2000, 1000, 9000, 8, ("n",))


@pytest.mark.parametrize(
    ("end", "expected"), [(1234.4, 1234), (math.inf, 0), (math.nan, 0), (-5.0, 0), (1e300, 0)], ids=str
)
def test_ends_are_shown_if_they_are_times(end: float, expected: int) -> None:
    shown, _ = shown_with(Expected(end))

    assert shown.draw().tables.rows("default")["pods"]["p"][3:] == (600, expected)


def test_a_start_that_cannot_be_read_is_none() -> None:
    shown, _ = shown_with()
    pod = make_pod("q", node="n", gpus=1)
    pod.status.start_time = "yesterday"
    shown.bind(pod)

    assert shown.draw().tables.rows("default")["pods"]["q"][3:] == (0, 0)


def test_a_plugin_that_raises_is_left_out_and_its_fault_is_counted_once() -> None:
    shown, failures = shown_with(Faulty(1500.0), Expected(1700.0))

    drawer = shown.draw()
    shown.draw()
    assert drawer.tables.rows("default")["pods"]["p"][4] in (1500, 1700)
    (unit,) = drawer.tables.rows("default")["units"].values()
    assert unit[-1] is not None
    assert failures.counts == {("Mine", "show"): 1}
