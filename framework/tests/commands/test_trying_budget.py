"""How long processes that try changes may run: in total, and for each viewer."""

from __future__ import annotations

import pytest

from gangline.commands.trying_budget import LEAST, OF_ONE, TOTAL, TryingBudgets
from gangline.errors import AskLater
from gangline.testing import FakeClock


class Asking:
    """Viewers who ask as soon as they may, and whose processes run so many seconds."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.budgets = TryingBudgets(self.clock.monotonic)

    def ask(self, viewer: str, seconds: float) -> float:
        """Seconds until the question is answered."""
        began = self.clock.monotonic()
        while (pause := self.pause(viewer)) > 0:
            self.clock.advance(pause)
        self.clock.advance(seconds)
        self.budgets.pay(viewer, seconds)
        return self.clock.monotonic() - began

    def pause(self, viewer: str) -> int:
        try:
            self.budgets.check(viewer)
        except AskLater as error:
            return error.seconds
        return 0


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_who_asks_a_few_times_waits_for_nothing(asking: Asking) -> None:
    assert [asking.ask("one", 10.0) for _ in range(6)] == [10.0] * 6


@pytest.mark.parametrize("seconds", [0.0, 0.3, 5.0, 20.0])
def test_who_asks_again_and_again_gets_a_share_of_the_time(asking: Asking, seconds: float) -> None:
    while asking.clock.monotonic() < 10_000.0:
        asking.ask("one", seconds)
    began, paid = asking.clock.monotonic(), 0.0
    while asking.clock.monotonic() - began < 10_000.0:
        asking.ask("one", seconds)
        paid += max(LEAST, seconds)

    assert paid / 10_000.0 == pytest.approx(OF_ONE.share, rel=0.05)


def test_all_together_get_a_share_of_the_time(asking: Asking) -> None:
    began, paid, number = asking.clock.monotonic(), 0.0, 0
    while asking.clock.monotonic() - began < 10_000.0:
        number += 1
        asking.ask(f"viewer-{number}", 10.0)
        paid += 10.0

    assert paid < TOTAL.at_once + TOTAL.share * (asking.clock.monotonic() - began) + 10.0
    assert paid > TOTAL.share * 10_000.0


def test_who_has_not_asked_does_not_wait_for_who_has_asked_much(asking: Asking) -> None:
    for _ in range(4):
        asking.ask("greedy", 20.0)

    assert asking.pause("greedy") > 0 and asking.pause("other") == 0


def test_the_pause_that_is_told_is_long_enough_and_not_longer(asking: Asking) -> None:
    for seconds in (60.0, 7.3):
        asking.budgets.pay("one", seconds)
    pause = asking.pause("one")
    asking.clock.advance(pause - 1.0)
    assert asking.pause("one") == 1
    asking.clock.advance(1.0)
    assert asking.pause("one") == 0


def test_names_of_viewers_are_kept_no_longer_than_needed(asking: Asking) -> None:
    for number in range(2_000):
        asking.ask(f"viewer-{number}", 0.0)

    assert len(asking.budgets) < 100
