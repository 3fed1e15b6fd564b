"""Plays the state machine for some steps, and counts them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from gangline_chaos.virtual.machine import Machine

_TURNS = 1000
"""Added to the seed at each turn, so that the turns of different numbers have different seeds."""


class Played(NamedTuple):
    """What was done."""

    steps: int
    faults: int


def play(number: int | None, steps: int, length: int) -> Played:
    """At least so many steps, on one cluster after the other; returns what was done.

    A cluster sees `length` steps at most: hypothesis leaves some early. The number is the seed; with None it is the one
    of the hypothesis profile. Raises what hypothesis has found.
    """

    class Counted(Machine):
        """Steps and faults are those of this play."""

        steps = 0
        faults = 0

    turn = 0
    while Counted.steps < steps:
        one = Counted if number is None else seed(number + turn * _TURNS)(Counted)
        run_state_machine_as_test(one, settings=_settings(-(-4 * (steps - Counted.steps) // (3 * length)), length))
        turn += 1
    return Played(Counted.steps, Counted.faults)


def _settings(examples: int, length: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=length,
        deadline=None,
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        print_blob=True,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
    )
