"""Finds the victims that a pod needs on a node by trying removals on the real columns; every change is undone.

Rules:
- All pods of lower priority are removed from each node. A node on which the pod does not fit even then is no candidate.
- The removed pods return one at a time: first those that a PodDisruptionBudget protects, then the others, the most
  important first. A pod that leaves no room for the preemptor is removed again: it is a victim.
- `together` does so for many nodes in step: the first pod of every node returns, all nodes are evaluated at once, then
  the second pod of every node returns, and so on. kube-scheduler examines each node while the rest of the cluster stays
  unchanged. Both give the same result as long as the verdict on a node depends on that node alone; `locality` knows
  when it does not.
- What comes free without further victims, because pods have ended or are ending, counts as free: see `State.foreseen`.
- The pod has to fit both with and without the waiting pods of the same or higher priority that are nominated to the
  node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gangline import BoolColumn, Handle, PodInfo, Rows, Transaction
from gangline_plugins.default_preemption.importance import Candidate
from gangline_plugins.preemption.budgets import Budgets
from gangline_plugins.preemption.precedence import importance, may_preempt

NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(slots=True, eq=False)
class _Trial:
    """One node on which the pod fits after all pods of lower priority are removed."""

    row: int
    returning: list[PodInfo]
    """The removed pods, in the order in which they return."""
    protected: int
    """How many of them, counted from the first, a PodDisruptionBudget protects."""
    victims: list[PodInfo] = field(default_factory=list)
    violations: int = 0


class Simulation:
    """Trials for one pod. `reasons` counts why nodes are no candidates."""

    def __init__(self, handle: Handle, pod: PodInfo, budgets: Budgets) -> None:
        self._handle = handle
        self._pod = pod
        self._budgets = budgets
        self._nodes = handle.nodes
        self._guests = self._find_guests()
        self.reasons: Counter[str] = Counter()

    def concerned(self, rows: Rows) -> list[PodInfo]:
        """Every pod that the trials on these nodes would move."""
        moved = [pod for row in rows.tolist() for pod in self._lower(row)]
        return moved + [guest for guest, _ in self._guests_on(rows)]

    def together(self, rows: Rows) -> list[Candidate]:
        """The candidates among these nodes, in the order of the nodes."""
        removable = {row: sorted(self._lower(row), key=importance) for row in rows.tolist()}
        state = self._handle.state
        with state.foreseen(), state.transaction() as tx:
            for pods in removable.values():  # one step per moved pod, so that each can be undone
                for pod in pods:
                    tx.unplace(pod)
            fitting = rows[self._passes(rows, self.reasons)]
            trials = [self._trial(row, removable[row]) for row in fitting.tolist()]
            self._reprieve(tx, trials)
            for row, pods in removable.items():
                for pod in pods:
                    if pod.row < 0:
                        tx.place(pod, row)
            tx.commit()  # all pods are back on their nodes, so nothing has to be undone
        found = [self._candidate(trial) for trial in trials if trial.victims]
        self.reasons[NO_VICTIMS] += len(trials) - len(
            found
        )  # the pod fits there without victims, so no plugin rejected these nodes
        return found

    def one_by_one(self, rows: Rows) -> list[Candidate]:
        """The candidates among these nodes, each examined while the other nodes stay unchanged."""
        return [candidate for i in range(len(rows)) for candidate in self.together(rows[i : i + 1])]

    def _lower(self, row: int) -> Iterator[PodInfo]:
        return (pod for pod in self._nodes.pods(row).values() if may_preempt(self._pod, pod))

    def _trial(self, row: int, pods: Sequence[PodInfo]) -> _Trial:
        protected, others = self._budgets.split(pods)
        return _Trial(row, protected + others, len(protected))

    def _reprieve(self, tx: Transaction, trials: Sequence[_Trial]) -> None:
        for step in range(max((len(trial.returning) for trial in trials), default=0)):
            active = [trial for trial in trials if step < len(trial.returning)]
            for trial in active:
                tx.place(trial.returning[step], trial.row)
            passes = self._passes(np.array([trial.row for trial in active], dtype=np.intp))
            for trial, fits in zip(active, passes.tolist(), strict=True):
                if not fits:
                    victim = trial.returning[step]
                    tx.unplace(victim)
                    trial.victims.append(victim)
                    trial.violations += step < trial.protected

    def _candidate(self, trial: _Trial) -> Candidate:
        victims = tuple(sorted(trial.victims, key=importance))
        return Candidate(trial.row, self._nodes.names[trial.row], victims, trial.violations)

    # Verdicts

    def _passes(self, rows: Rows, reasons: Counter[str] | None = None) -> BoolColumn:
        """For each node whether the pod fits there now, both with and without the pods that are nominated to it."""
        guests = self._guests_on(rows)
        if not guests:
            return self._judge(rows, reasons)
        with self._handle.state.transaction() as tx:
            for guest, row in guests:
                tx.place(guest, row)
            passes = self._judge(rows, reasons)
        passes[passes] = self._judge(rows[passes], reasons)
        return passes

    def _judge(self, rows: Rows, reasons: Counter[str] | None) -> BoolColumn:
        passes = self._handle.filter(self._pod, rows)
        if reasons is not None and not passes.all():
            reasons.update(self._why(rows[~passes]))
        return passes

    def _why(self, rows: Rows) -> Counter[str]:
        diagnosis = self._handle.diagnose(self._pod)
        if diagnosis.status is not None:
            return Counter({diagnosis.status.message: len(rows)})
        asked = self._nodes.full(False)
        asked[rows] = True
        counts: Counter[str] = Counter()
        for rejection, mask in diagnosis.first():
            found, numbers = np.unique(rejection.codes[mask & asked], return_counts=True)
            for code, number in zip(found.tolist(), numbers.tolist(), strict=True):
                for reason in rejection.reasons(diagnosis.cycle, self._pod, code):
                    counts[reason.message] += number
        return counts

    # Nominated pods

    def _find_guests(self) -> dict[int, list[PodInfo]]:
        """For each row the waiting pods that are nominated to it and for which the pod has to leave room."""
        guests: dict[int, list[PodInfo]] = {}
        for node, pods in self._handle.nominated().items():
            row = self._nodes.row_of(node)
            awaited = [
                p for p in pods.values() if p.uid != self._pod.uid and p.row < 0 and not may_preempt(self._pod, p)
            ]
            if row is not None and awaited:
                guests[row] = awaited
        return guests

    def _guests_on(self, rows: Rows) -> list[tuple[PodInfo, int]]:
        if not self._guests:
            return []
        wanted = set(rows.tolist())
        return [(guest, row) for row, guests in self._guests.items() if row in wanted for guest in guests]
