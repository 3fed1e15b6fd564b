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
- Where the caller wants the best candidate alone, and there are no budgets, a node is examined only as long as it may
  be better than the best node so far (`racing`). It counts as a candidate all the same: pods would have to go there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from gangline import BoolColumn, Handle, PodInfo, Rows, Transaction
from gangline_plugins.default_preemption.importance import Candidate
from gangline_plugins.default_preemption.racing import NodeTrial, Race
from gangline_plugins.preemption.budgets import Budgets
from gangline_plugins.preemption.precedence import importance, may_preempt

NO_VICTIMS = "No preemption victims found for incoming pod"


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
        return self._examine(rows, races=False)[0]

    def find_best(self, rows: Rows) -> tuple[list[Candidate], int]:
        """Some candidates among these nodes, in the order of the nodes, and how many others there are, none of which is
        the best.
        """
        return self._examine(rows, races=len(rows) > 1 and not self._budgets.any)

    def _examine(self, rows: Rows, races: bool) -> tuple[list[Candidate], int]:
        removable = {row: sorted(self._lower(row), key=importance) for row in rows.tolist()}
        state = self._handle.state
        with state.foreseen(), state.transaction() as tx:
            race = Race(self._costly(rows) if races else None)
            for pods in removable.values():  # one step per moved pod, so that each can be undone
                for pod in pods:
                    tx.unplace(pod)
            fitting = rows[self._passes(rows, self.reasons)]
            trials = [self._trial(row, place, removable[row]) for place, row in enumerate(fitting.tolist())]
            self._reprieve(tx, trials, race)
            for row, pods in removable.items():
                for pod in reversed(pods):  # the pod that was removed last finds its node as it left it
                    if pod.row < 0:
                        tx.place(pod, row)
            tx.commit()  # all pods are back on their nodes, so nothing has to be undone
        found = [self._candidate(trial) for trial in trials if trial.is_over and trial.victims]
        left_out = sum(not trial.is_over for trial in trials)
        # on the other nodes the pod fits without victims, so no plugin rejected them
        self.reasons[NO_VICTIMS] += len(trials) - len(found) - left_out
        return found, left_out

    def one_by_one(self, rows: Rows) -> list[Candidate]:
        """The candidates among these nodes, each examined while the other nodes stay unchanged."""
        return [candidate for i in range(len(rows)) for candidate in self.together(rows[i : i + 1])]

    def _lower(self, row: int) -> Iterator[PodInfo]:
        return (pod for pod in self._nodes.pods(row).values() if may_preempt(self._pod, pod))

    def _trial(self, row: int, place: int, pods: Sequence[PodInfo]) -> NodeTrial:
        protected, others = self._budgets.split(pods)
        return NodeTrial(row, place, protected + others, len(protected))

    def _costly(self, rows: Rows) -> set[int]:
        """The rows of the nodes on which the pod does not fit while all pods are there: at least one has to go."""
        return set(rows[~self._passes(rows)].tolist())

    def _reprieve(self, tx: Transaction, trials: Sequence[NodeTrial], race: Race) -> None:
        """Let the pods return. In a race the first node goes ahead, so that the others have a mark to beat."""
        if race.is_on:
            self._return(tx, trials[:1], race)
        self._return(tx, trials, race)

    def _return(self, tx: Transaction, trials: Sequence[NodeTrial], race: Race) -> None:
        active = race.going_on(trials)
        while active:
            for trial in active:
                tx.place(trial.next, trial.row)
            passes = self._passes(np.array([trial.row for trial in active], dtype=np.intp))
            for trial, fits in zip(active, passes.tolist(), strict=True):
                if not fits:
                    tx.unplace(trial.next)
                trial.note(stays=fits)
                if trial.is_over:
                    race.finished(trial)
            active = race.going_on(active)

    def _candidate(self, trial: NodeTrial) -> Candidate:
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
