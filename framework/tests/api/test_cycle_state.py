"""What plugins write in one cycle, and what pods of a class share."""

from __future__ import annotations

import pytest

from gangline import Cycle, StateKey

COUNT = StateKey[int]("count")


def test_what_was_written_is_read_back() -> None:
    cycle = Cycle()
    cycle.write(COUNT, 3)

    assert cycle.read(COUNT) == 3 and cycle.get(COUNT) == 3 and cycle.export() == {COUNT: 3}


def test_what_was_never_written_is_none_or_an_error() -> None:
    with pytest.raises(KeyError, match="count"):
        Cycle().read(COUNT)

    assert Cycle().get(COUNT) is None


def test_a_cycle_hides_what_its_class_shares_and_leaves_it_alone() -> None:
    shared = {COUNT: 1}
    cycle = Cycle(shared)

    assert cycle.read(COUNT) == 1
    cycle.write(COUNT, 2)

    assert cycle.get(COUNT) == 2 and shared == {COUNT: 1}


def test_keys_of_the_same_name_are_different_keys() -> None:
    cycle = Cycle()
    cycle.write(COUNT, 1)

    assert cycle.get(StateKey[int]("count")) is None
