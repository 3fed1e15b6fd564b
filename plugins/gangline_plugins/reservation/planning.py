"""Finds the earliest time at which a group can start, and its nodes then. It lets running pods end, in a transaction,
until the group fits.

Source: EASY backfilling (Lifka, The ANL/IBM SP scheduling system, 1995): one reservation, for the job that is first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gangline import GroupAttempt, PodInfo, Transaction


@dataclass(frozen=True, slots=True)
class ReservationPlan:
    """A group starts at `at` seconds since the epoch; `rows` maps the UID of each pod to its row."""

    at: float
    rows: Mapping[str, int]


def plan(
    attempt: GroupAttempt, endings: Iterable[tuple[float, PodInfo]], transaction: Transaction
) -> ReservationPlan | None:
    """When and where the group fits if every pod ends at its stated time. None if the group does not fit even then.

    `endings` are the pods that end, with the times; all others stay. The search lets twice as many pods end
    at each step, and then bisects the last step. So it places the group about as often as the number of different end
    times has binary digits. The transaction is left unchanged.
    """
    known = sorted(endings, key=lambda each: (each[0], each[1].uid))
    waves = [(end, [pod for _, pod in wave]) for end, wave in itertools.groupby(known, key=lambda each: each[0])]
    gone, step, before = 0, 1, transaction.mark()
    low = 0
    while gone < len(waves):
        low = gone
        for _, pods in waves[gone : gone + step]:
            _end(pods, transaction)
        gone = min(len(waves), gone + step)
        rows = attempt.refit()
        if rows is not None:
            best = _earliest(attempt, waves, low, gone, rows, before, transaction)
            transaction.undo_to(before)
            return best
        step *= 2
    transaction.undo_to(before)
    return None


def _earliest(
    attempt: GroupAttempt,
    waves: list[tuple[float, list[PodInfo]]],
    low: int,
    high: int,
    rows: Mapping[str, int],
    before: int,
    transaction: Transaction,
) -> ReservationPlan:
    """The plan with the fewest waves of ending pods. The group fits after `high` waves and does not fit after `low`
    waves.
    """
    while high - low > 1:
        middle = (low + high) // 2
        transaction.undo_to(before)
        for _, pods in waves[:middle]:
            _end(pods, transaction)
        found = attempt.refit()
        if found is None:
            low = middle
        else:
            high, rows = middle, found
    return ReservationPlan(waves[high - 1][0], rows)


def _end(pods: Iterable[PodInfo], transaction: Transaction) -> None:
    for pod in pods:
        if pod.row >= 0:
            transaction.unplace(pod)
