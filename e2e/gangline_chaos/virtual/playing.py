"""Plays the state machine for some examples, and counts the steps."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from gangline_chaos.virtual.machine import Machine


def play(number: int | None, examples: int, length: int) -> int:
    """So many clusters, each for so many steps at most; returns how many steps were done.

    The number is the seed; with None it is the one of the hypothesis profile. Raises what hypothesis has found.
    """

    class Counted(Machine):
        """The steps are those of this play."""

        steps = 0

    one = Counted if number is None else seed(number)(Counted)
    phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
    run_state_machine_as_test(
        one,
        settings=settings(
            max_examples=examples,
            stateful_step_count=length,
            deadline=None,
            phases=phases,
            report_multiple_bugs=False,
            print_blob=True,
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
        ),
    )
    return one.steps
