"""When a loop counts as hung."""

from __future__ import annotations

from gangline.process.tenure import Heartbeat
from gangline.testing import FakeClock


def test_a_loop_counts_as_hung_when_it_has_not_turned_for_longer_than_the_limit() -> None:
    clock = FakeClock()
    heartbeat = Heartbeat(clock, 60.0)

    clock.advance(60.0)
    fine = heartbeat.complaint()
    clock.advance(1.0)
    hung = heartbeat.complaint()
    heartbeat.beat()

    assert (fine, hung, heartbeat.complaint()) == (None, "the event loop has not turned for 61 s", None)
