"""Put the members of a group on the nodes of a placement: parts in turn, with backtracking, in a transaction.

A part is a subgroup, or the whole group where it has none. Members that are alike are placed by arithmetic and then
verified by the filters, one pod per node at a time; what the arithmetic got wrong is placed elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gangline.cache import Cache
from gangline.cycle_state import Cycle
from gangline.evaluation import Filtered
from gangline.filling import Counts, apart, together
from gangline.groups.strategy import strategy_of
from gangline.locality import is_drawn_by, reaches_beyond
from gangline.nodes import Int64Column, Rows
from gangline.pod_group import ANYWHERE, GroupAttempt, Membership, PodGroup, Role
from gangline.pods import PodInfo
from gangline.runtime import Runtime
from gangline.topology import Domains
from gangline.transaction import Transaction

MOST_STEPS = 512
"""Domains that are tried for the parts of one group in one placement, at most."""


@dataclass(slots=True, eq=False)
class _Part:
    """Members that have to be near each other."""

    name: str
    roles: list[Role]
    minimum: int
    levels: tuple[str, ...]
    """What will do, the best first; `ANYWHERE` for the whole placement."""
    placed: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """The rows of those that have a node already: the others go to the same domain."""


class Filler:
    """Places the members of one group; `cycles` holds what plugins remember of each pod that was placed."""

    def __init__(
        self, group: PodGroup, runtime: Runtime, cache: Cache, feasible: Callable[[PodInfo], Filtered]
    ) -> None:
        self._feasible = feasible
        self._group = group
        self._runtime = runtime
        self._cache = cache
        self.cycles: dict[str, Cycle] = {}
        self.why = ""
        """Why the last placement did not hold the group."""

    def capacity(self, filtered: Filtered, most: int, is_open: bool = False) -> Int64Column:
        """How many pods of a class fit on each node; 0 where the filters reject the first one.

        With `is_open`, what the filters say that are asked anew for each attempt is left out of account.
        """
        nodes, cls = self._cache.nodes, filtered.pod.cls
        size = nodes.size
        holds = np.full(size, most, dtype=np.int64)
        for resource, amount in zip(cls.resources.tolist(), cls.amounts.tolist(), strict=True):
            if amount > 0:
                free = nodes.allocatable[resource, :size] - nodes.requested[resource, :size]
                np.minimum(holds, free // amount, out=holds)
        if filtered.status is None:
            for counted in self._runtime.evaluator.capacities(filtered):
                np.minimum(holds, counted, out=holds)
        # A filter that lets the first pod in knows better than the arithmetic, of resources that are not counted.
        feasible = filtered.entry.feasible if is_open and filtered.status is None else filtered.feasible
        return np.where(feasible[:size], np.maximum(holds, 1), 0)

    def fill(self, attempt: GroupAttempt, rows: Rows, tx: Transaction) -> bool:
        """Place at least what is needed on rows; False, and nothing placed, when that cannot be."""
        parts = self._parts(attempt)
        choices: list[Iterator[Rows]] = []
        marks: list[int] = []
        steps, at = 0, 0
        while at < len(parts):
            if len(choices) == at:
                marks.append(tx.mark())
                choices.append(self._rooms(parts[at], rows))
            found = False
            for room in choices[at]:
                steps += 1
                if steps > MOST_STEPS:
                    break
                if self._fill_part(parts[at], room, tx):
                    found = True
                    break
                tx.undo_to(marks[at])
            if found:
                at += 1
                continue
            choices.pop()
            marks.pop()
            at -= 1
            if at < 0 or steps > MOST_STEPS:
                self.why = f"no room for {parts[at + 1].name or 'the group'} beside the rest of the group"
                return False
            tx.undo_to(marks[at])
        return sum(pod.row >= 0 for pod in attempt.pods) >= max(1, attempt.needed)

    # Parts

    def _parts(self, attempt: GroupAttempt) -> list[_Part]:
        """The largest demand first; a group without subgroups is one part."""
        if not self._group.subgroups:
            return [_Part("", _hardest_first(attempt.roles), attempt.needed, (ANYWHERE,))]
        placed: dict[str, list[int]] = {}
        for pod in attempt.placed:
            membership = self._runtime.handle.group_of(pod)
            if isinstance(membership, Membership):
                placed.setdefault(membership.subgroup, []).append(pod.row)
        parts = []
        for name in dict.fromkeys(role.subgroup for role in attempt.roles):
            roles = _hardest_first([role for role in attempt.roles if role.subgroup == name])
            subgroup = self._group.subgroup(name)
            if subgroup is None:
                parts.append(_Part(name, roles, 0, (ANYWHERE,)))
                continue
            required = subgroup.topology.required_at(attempt.waited)
            preferred = subgroup.topology.preferred
            levels = tuple(dict.fromkeys((preferred, required) if preferred else (required,)))
            there = placed.get(name, [])
            minimum = max(0, subgroup.min_member - len(there))
            parts.append(_Part(name, roles, minimum, levels, np.array(there, dtype=np.intp)))
        drawn = {part.name for part in parts if _is_drawn(part.roles, attempt.roles)}
        return sorted(parts, key=lambda part: (part.name in drawn, part.levels == (ANYWHERE,), -_demand(part.roles)))

    def _rooms(self, part: _Part, rows: Rows) -> Iterator[Rows]:
        """The domains within rows that may hold a part, the best fit first."""
        for name in part.levels:
            level = self._runtime.topology.find(name) if name != ANYWHERE else None
            if level is None:
                if name == ANYWHERE:
                    yield rows
                continue
            yield from self._domains(part, level, rows)

    def _domains(self, part: _Part, level: Domains, rows: Rows) -> Iterator[Rows]:
        first = part.roles[0]
        filtered, is_open = self._feasible(first.pods[0]), is_drawn_by(first.pods[0], first.pods)
        held = self.capacity(filtered, len(first.pods), is_open)[rows]
        ids = level.ids[rows]
        inside = ids >= 0
        sums = np.bincount(ids[inside], weights=held[inside], minlength=len(level)).astype(np.int64)
        least = min(part.minimum, len(part.roles[0].pods)) if len(part.roles) == 1 else 1
        allowed = sums >= max(1, least)
        if len(part.placed):
            where = np.unique(level.ids[part.placed])
            allowed &= np.isin(np.arange(len(level)), where) & (len(where) == 1)
        enough = np.flatnonzero(allowed)
        short = sums[enough] < sum(len(role.pods) for role in part.roles)
        for domain in enough[np.lexsort((level.order[enough], sums[enough], short))].tolist():
            yield rows[ids == domain]

    def _fill_part(self, part: _Part, rows: Rows, tx: Transaction) -> bool:
        placed = sum(self._fill_role(role, rows, tx) for role in part.roles)
        return placed >= max(part.minimum, 1 if not self._group.subgroups else 0)

    # Members that are alike

    def _now(self, role: Role) -> tuple[Filtered, Int64Column]:
        """The verdicts and the capacity for a role as the columns are, with what this attempt has placed."""
        filtered = self._feasible(role.pods[0])
        return filtered, self.capacity(filtered, len(role.pods))

    def _fill_role(self, role: Role, rows: Rows, tx: Transaction) -> int:
        """Place as many as there is room for; returns how many."""
        waiting = [pod for pod in role.pods if pod.row < 0]
        placed = 0
        if len(waiting) > 1 and reaches_beyond(waiting[0], waiting[1:]):
            return self._fill_one_by_one(waiting, rows, tx)
        while waiting:
            filtered, capacity = self._now(role)
            counts = self._counts(filtered, rows, capacity, len(waiting))
            taken = self._put(waiting, rows, counts, tx)
            if not taken:
                break
            placed += taken
            waiting = [pod for pod in waiting if pod.row < 0]
        return placed

    def _put(self, pods: Sequence[PodInfo], rows: Rows, counts: Counts, tx: Transaction) -> int:
        """Place pods as counted, one per node and round; a node whose filters say no takes no more."""
        along = np.argsort(self._runtime.topology.rank()[rows], kind="stable")
        along = along[counts[along] > 0]
        each = counts[along]
        target = np.repeat(rows[along], each)
        rounds = np.arange(len(target)) - np.repeat(each.cumsum() - each, each)
        taken = 0
        for number in range(int(counts.max(initial=0))):
            chosen = np.flatnonzero(rounds == number)
            if number:
                feasible = self._feasible(pods[int(chosen[0])]).feasible
                chosen = chosen[feasible[target[chosen]]]
            for i, row in zip(chosen.tolist(), target[chosen].tolist(), strict=True):
                if self._place(pods[i], row, tx):
                    taken += 1
        return taken

    def _fill_one_by_one(self, pods: Sequence[PodInfo], rows: Rows, tx: Transaction) -> int:
        """For pods that look at each other across nodes: each is placed where the filters let it with those before."""
        placed = 0
        for pod in pods:
            filtered = self._feasible(pod)
            counts = self._counts(filtered, rows, filtered.feasible.astype(np.int64), 1)
            if not counts.any():
                break
            placed += self._place(pod, int(rows[int(counts.argmax())]), tx)
        return placed

    def _place(self, pod: PodInfo, row: int, tx: Transaction) -> bool:
        cycle = self.cycles.get(pod.uid)
        if cycle is None:
            cycle = self._runtime.evaluator.prepare(pod)
            if cycle is None:
                return False
            self.cycles[pod.uid] = cycle
        tx.place(pod, row)
        return True

    def _counts(self, filtered: Filtered, rows: Rows, capacity: Int64Column, wanted: int) -> Counts:
        switches = self._runtime.topology.switches()
        strategy = strategy_of(self._runtime.handle.workload(filtered.pod))
        if strategy == "distributed":
            return apart(rows, capacity, wanted, switches[-1] if switches else None)
        scores = None if strategy == "consolidated" else self._runtime.evaluator.ranking(filtered)
        return together(rows, capacity, wanted, switches, scores)


def _hardest_first(roles: Sequence[Role]) -> list[Role]:
    def key(role: Role) -> tuple[bool, int, int]:
        return _is_drawn([role], roles), int(np.count_nonzero(role.capacity)), int(role.capacity.sum())

    return sorted(roles, key=key) if len(roles) > 1 else list(roles)


def _is_drawn(some: Sequence[Role], roles: Sequence[Role]) -> bool:
    """Whether some of the roles need members of the others to be there first."""
    return any(
        is_drawn_by(role.pods[0], (pod for other in roles if other not in some for pod in other.pods)) for role in some
    )


def _demand(roles: Sequence[Role]) -> int:
    return sum(len(role.pods) for role in roles)
