"""Examines nodes until enough candidates are found, and takes the one that costs least."""

from __future__ import annotations

from gangline import PodInfo, Rows, reaches_beyond
from gangline_plugins.default_preemption.importance import Candidate, choose
from gangline_plugins.default_preemption.simulating import Simulation


def number_wanted(nodes: int, percentage: int, absolute: int) -> int:
    """How many candidates are enough among this many nodes."""
    return min(nodes, max(nodes * percentage // 100, absolute))


def find_best(simulation: Simulation, pod: PodInfo, rows: Rows, wanted: int) -> Candidate | None:
    """The best of the candidates that are found first in the order of rows; None if there is none.

    Nodes are examined together. The best candidate is then examined once more by itself, because a plugin may look at
    other nodes in a way that `locality` does not know. If the result differs, all nodes are examined one at a time.
    """
    best = choose(_search(simulation, pod, rows, wanted, alone=False))
    if best is not None and simulation.one_by_one(rows[rows == best.row]) != [best]:
        simulation.reasons.clear()
        best = choose(_search(simulation, pod, rows, wanted, alone=True))
    return best


def find_all(simulation: Simulation, pod: PodInfo, rows: Rows, wanted: int) -> list[Candidate]:
    """The candidates that are found first in the order of rows. Each node is examined while the other nodes stay
    unchanged.
    """
    return _search(simulation, pod, rows, wanted, alone=True)


def _search(simulation: Simulation, pod: PodInfo, rows: Rows, wanted: int, alone: bool) -> list[Candidate]:
    """Candidates that violate no budget, then the others. The search goes on until it has one that violates none, or
    all nodes are examined. Unless each node is examined alone, candidates that cannot be the best may be missing.
    """
    keeping: list[Candidate] = []
    breaking: list[Candidate] = []
    position = known = 0
    while position < len(rows):
        missing = max(1, wanted - known)
        batch = rows[position : position + missing]
        position += missing
        if alone or reaches_beyond(pod, simulation.concerned(batch)):
            found = simulation.one_by_one(batch)
        else:
            found, left_out = simulation.find_best(batch)
            known += left_out
        known += len(found)
        for candidate in found:
            (breaking if candidate.violations else keeping).append(candidate)
        if keeping and known >= wanted:
            break
    return keeping + breaking[:wanted]
