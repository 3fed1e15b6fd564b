"""Put the members of a group on the nodes of one placement, in a transaction.

A part is a subgroup; a group without subgroups is one part. The parts are placed one after the other, each in a domain
of the level that it requires. If a later part finds no room, an earlier part moves to its next domain (backtracking),
within bounds.

Within a part, like members form a role. Arithmetic says how many pods of a role each node takes (`counts`). Then the
filters check the result, one pod per node at a time. Pods for which the arithmetic was wrong go to other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import lru_cache, partial
from typing import TypeVar, cast

import numpy as np

from gangline.api.cycle_state import Cycle
from gangline.api.pod_group import ANYWHERE, GroupAttempt, Membership, PodGroup, Role
from gangline.deciding.counts import Counts, apart, together
from gangline.deciding.meant import drawn_to, meant_for
from gangline.groups.progress import Progress
from gangline.groups.room import GroupRoom, Part
from gangline.groups.strategy import strategy_of
from gangline.profile.entries import Filtered
from gangline.profile.ranking import best_first
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache
from gangline.state.locality import is_drawn_by, reaches_beyond
from gangline.state.node_view import Int64Column, Rows
from gangline.state.pods import PodClass, PodInfo
from gangline.state.topology import Domains
from gangline.state.transaction import Transaction
from gangline.status import read_only

_MANY = 2**31
MOST_STEPS = 512
"""The domains that are tried for the parts of one group in one placement, at most."""
MOST_STEPS_IN_ALL = 4096
"""The domains that are tried in all placements of one attempt, at most."""
T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that the caller can interrupt between two steps; it returns a result at its end."""


def to_the_end(steps: Steps[T]) -> T:
    """Do all steps at once and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return cast(T, ended.value)


@lru_cache(maxsize=8)
def no_room(size: int) -> Int64Column:
    """The capacity of so many nodes without any room; all that ask share the column."""
    return read_only(np.zeros(size, dtype=np.int64))


_Place = tuple[str, bytes, frozenset[tuple[str, int]]]
"""A part, the rows of a domain, and which members of other parts are on which of these rows."""


class Filler:
    """Places the members of one group; `cycles` holds what plugins remember about each pod that was placed."""

    def __init__(
        self, group: PodGroup, runtime: Runtime, cache: Cache, feasible: Callable[[PodInfo], Filtered]
    ) -> None:
        self._feasible = feasible
        self._group = group
        self._runtime = runtime
        self._cache = cache
        self.cycles: dict[str, Cycle] = {}
        self._prepared: tuple[list[Part], GroupRoom] | None = None
        self._left = MOST_STEPS_IN_ALL
        self._least = 0
        """The number of further domain trials that this placement leaves for other placements."""
        self._local: bool | None = None
        self._known: dict[_Place, list[tuple[PodInfo, int]] | None] = {}
        """Where the members of a part went; None if they had no room."""
        self._narrowed: dict[str, frozenset[str]] = {}
        """The nodes to which one member is restricted, in addition to what holds for all like members."""
        self.why = ""
        """Why the last placement did not hold the group."""

    def capacity(self, filtered: Filtered, is_open: bool = False) -> Int64Column:
        """How many pods like this one fit on each node; 0 where the filters reject the first one.

        With `is_open`, the verdicts of filters that are called anew for each attempt are ignored.
        """
        feasible = filtered.entry.feasible if is_open and filtered.status is None else filtered.feasible
        size = self._cache.nodes.size
        rows = feasible[:size].nonzero()[0]  # few, in a full cluster
        if not len(rows):
            return no_room(size)
        capacity = np.zeros(size, dtype=np.int64)
        holds = self._by_numbers(filtered.pod.cls, rows)
        # Where the filters accept a pod and the arithmetic finds no room, the filters are right: they know of resources
        # that nodes do not list, for example those that devices of claims or extenders provide.
        known_better = holds < 1
        if np.count_nonzero(known_better):
            holds = np.where(known_better, self._by_numbers(filtered.pod.cls, rows, elsewhere=True), holds)
        if filtered.status is None:
            for counted in self._runtime.evaluator.capacities(filtered):
                np.minimum(holds, counted[rows], out=holds)
        capacity[rows] = np.maximum(holds, 1)
        return capacity

    def _by_numbers(self, cls: PodClass, rows: Rows, elsewhere: bool = False) -> Int64Column:
        """How many pods of the class the requests leave room for on each of these rows.

        With `elsewhere`, a resource that a node does not have is taken to come from elsewhere, in any amount.
        """
        nodes = self._cache.nodes
        holds = np.full(len(rows), _MANY, dtype=np.int64)
        for resource, amount in cls.takes:
            if amount > 0:
                limit = nodes.free[resource].take(rows) // amount
                if elsewhere:
                    limit[nodes.allocatable[resource].take(rows) == 0] = _MANY
                np.minimum(holds, limit, out=holds)
        return holds

    def fill(self, attempt: GroupAttempt, rows: Rows, tx: Transaction) -> Steps[bool]:
        """Place at least the needed members on these rows; returns whether that was possible.

        If not, the caller undoes the transaction. The work goes in steps: see `group_search`. Raises PluginError and
        DeadlineExceeded.
        """
        if self._prepared is None:
            parts = self._parts(attempt)
            self._prepared = parts, GroupRoom(self._cache.nodes, self._runtime.topology, parts)
        parts, room = self._prepared
        self.why = room.missing(0, rows)
        if self.why:
            return False
        choices: list[Iterator[Rows]] = []
        marks: list[int] = []
        at, self._least = 0, max(0, self._left - MOST_STEPS)
        while at < len(parts):
            if len(choices) == at:
                marks.append(tx.mark())
                choices.append(self._rooms(parts[at], rows))
            missing = partial(room.missing, at + 1, rows)
            if (yield from self._place_part(attempt, parts[at], choices[at], missing, tx)):
                at += 1
                continue
            choices.pop()
            marks.pop()
            at -= 1
            if at < 0 or self._left < self._least:
                self.why = f"no room for {parts[at + 1].name or 'the group'} beside the rest of the group"
                return False
            tx.undo_to(marks[at])
        return sum([pod.slot.row >= 0 for pod in attempt.pods]) >= attempt.fewest

    def _place_part(
        self, attempt: GroupAttempt, part: Part, rooms: Iterator[Rows], missing: Callable[[], str], tx: Transaction
    ) -> Steps[bool]:
        """Place a part in the next of its domains that holds it and leaves enough room for the other parts."""
        mark = tx.mark()
        for inside in rooms:
            attempt.deadline.check()
            yield
            self._left -= 1
            if self._left < self._least:
                break
            if (yield from self._replay(attempt, part, inside, tx)) and not missing():
                return True
            tx.undo_to(mark)
        return False

    def _replay(self, attempt: GroupAttempt, part: Part, rows: Rows, tx: Transaction) -> Steps[bool]:
        """Place a part; repeat the earlier result if the same members were on the same of these rows.

        Only for a group whose members depend on nothing beyond their nodes: then nothing else changes the result.
        """
        if not self._is_local(attempt):
            return (yield from self._fill_part(part, rows, tx))
        inside = set(rows.tolist())
        beside = frozenset((pod.uid, pod.row) for pod in attempt.pods if pod.row in inside)
        key = (part.name, rows.tobytes(), beside)
        if key in self._known:
            for pod, row in self._known[key] or ():
                tx.place(pod, row)
            return self._known[key] is not None
        filled = yield from self._fill_part(part, rows, tx)
        placed = [(pod, pod.row) for role in part.roles for pod in role.pods if pod.row >= 0]
        self._known[key] = placed if filled else None
        return filled

    def _is_local(self, attempt: GroupAttempt) -> bool:
        if self._local is None:
            kinds = [role.pods[0] for role in attempt.roles]
            self._local = bool(self._group.subgroups) and not any(reaches_beyond(pod, kinds) for pod in kinds)
        return self._local

    # Parts

    def _parts(self, attempt: GroupAttempt) -> list[Part]:
        """The parts, the largest demand first; a group without subgroups is one part."""
        if not self._group.subgroups:
            return [Part("", _hardest_first(attempt.roles), attempt.needed, (ANYWHERE,))]
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
                parts.append(Part(name, roles, 0, (ANYWHERE,)))
                continue
            required = subgroup.topology.required_at(attempt.waited)
            preferred = subgroup.topology.preferred
            levels = tuple(dict.fromkeys((preferred, required) if preferred else (required,)))
            there = placed.get(name, [])
            minimum = Progress.of(subgroup, len(there)).needed
            parts.append(Part(name, roles, minimum, levels, np.array(there, dtype=np.intp)))
        drawn = {part.name for part in parts if _is_drawn(part.roles, attempt.roles)}
        return sorted(parts, key=lambda part: (part.name in drawn, part.levels == (ANYWHERE,), -_demand(part.roles)))

    def _rooms(self, part: Part, rows: Rows) -> Iterator[Rows]:
        """The domains within these rows that may hold a part, the best fit first."""
        for name in part.levels:
            level = self._runtime.topology.find(name) if name != ANYWHERE else None
            if level is None:
                if name == ANYWHERE:
                    yield rows
                continue
            yield from self._domains(part, level, rows)

    def _domains(self, part: Part, level: Domains, rows: Rows) -> Iterator[Rows]:
        first = part.roles[0]
        filtered, is_open = self._feasible(first.pods[0]), is_drawn_by(first.pods[0], first.pods)
        held = np.minimum(self.capacity(filtered, is_open)[rows], len(first.pods))
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
        meant = np.isin(enough, level.ids[meant_for(first.pods, self._cache.nodes)])
        for domain in enough[np.lexsort((level.order[enough], sums[enough], ~meant, short))].tolist():
            yield rows[ids == domain]

    def _fill_part(self, part: Part, rows: Rows, tx: Transaction) -> Steps[bool]:
        placed = 0
        for role in part.roles:
            placed += yield from self._fill_role(role, rows, tx)
            yield
        return placed >= max(part.minimum, 1 if not self._group.subgroups else 0)

    # Members that are alike

    def _now(self, waiting: Sequence[PodInfo]) -> tuple[Filtered, Int64Column]:
        """The verdicts and the capacity for like members on the columns as they are, with the pods placed so far.

        The filters are asked about a member without a node: the claims of a placed member have their devices already.
        """
        filtered = self._feasible(waiting[0])
        return filtered, np.minimum(self.capacity(filtered), len(waiting))

    def _fill_role(self, role: Role, rows: Rows, tx: Transaction) -> Steps[int]:
        """Place as many pods of a role as have room; returns how many."""
        waiting = [pod for pod in role.pods if pod.slot.row < 0]
        placed = 0
        if len(waiting) > 1 and reaches_beyond(waiting[0], waiting[1:]):
            return (yield from self._fill_one_by_one(waiting, rows, tx))
        while waiting:
            filtered, capacity = self._now(waiting)
            counts = self._counts(filtered, rows, capacity, waiting)
            taken = self._put(waiting, rows, counts, filtered, tx)
            if not taken:
                break
            placed += taken
            yield
            waiting = [pod for pod in waiting if pod.slot.row < 0]
        return placed

    def _put(self, pods: Sequence[PodInfo], rows: Rows, counts: Counts, like: Filtered, tx: Transaction) -> int:
        """Place like pods by these counts, one per node and round; a node that the filters reject takes no more.

        Ends after the first pod if its place changes the identity of the others, for example by devices of a claim that
        they share.
        """
        along = np.argsort(self._runtime.topology.rank()[rows], kind="stable")
        along = along[counts[along] > 0]
        each = counts[along]
        target = np.repeat(rows[along], each)
        rounds = np.arange(len(target)) - np.repeat(each.cumsum() - each, each)
        evaluator, taken = self._runtime.evaluator, 0
        last = pods[-1] if len(target) > 1 else None
        before = evaluator.kept.identity(last) if last is not None else None
        are_plain = evaluator.members.are_plain(like)
        for number in range(int(counts.max(initial=0))):
            chosen = np.flatnonzero(rounds == number)
            if number:
                feasible = self._feasible(pods[int(chosen[0])]).feasible
                chosen = chosen[feasible[target[chosen]]]
            places = list(zip([pods[i] for i in chosen.tolist()], target[chosen].tolist(), strict=True))
            while places:
                at_once = len(places) if taken and are_plain else 1
                placed, is_first = self._place(places[:at_once], like, tx), not taken
                places, taken = places[at_once:], taken + placed
                if placed and is_first and last is not None and evaluator.kept.identity(last) != before:
                    return taken
        return taken

    def _fill_one_by_one(self, pods: Sequence[PodInfo], rows: Rows, tx: Transaction) -> Steps[int]:
        """Place each pod where the filters allow it beside the pods before it.

        For pods whose verdict on one node depends on pods on other nodes.
        """
        placed = 0
        for pod in pods:
            filtered = self._feasible(pod)
            counts = self._counts(filtered, rows, filtered.feasible.astype(np.int64), [pod])
            if not counts.any():
                break
            placed += self._place([(pod, int(rows[int(counts.argmax())]))], filtered, tx)
            yield
        return placed

    def _place(self, places: Sequence[tuple[PodInfo, int]], like: Filtered, tx: Transaction) -> int:
        """Put like pods on these rows at once, except pods that plugins reject or keep off a row; returns how many."""
        new = [pod for pod, _ in places if pod.uid not in self.cycles]
        for pod, prepared in zip(new, self._runtime.evaluator.members.prepare(new, like), strict=True):
            if prepared is not None:
                self.cycles[pod.uid], nodes = prepared
                if nodes is not None:
                    self._narrowed[pod.uid] = nodes
        allowed = [(pod, row) for pod, row in places if pod.uid in self.cycles]
        if self._narrowed:
            names, narrowed = self._cache.nodes.names, self._narrowed
            allowed = [(pod, row) for pod, row in allowed if names[row] in narrowed.get(pod.uid, (names[row],))]
        tx.place_all([pod for pod, _ in allowed], [row for _, row in allowed])
        return len(allowed)

    def _counts(self, filtered: Filtered, rows: Rows, capacity: Int64Column, pods: Sequence[PodInfo]) -> Counts:
        """How many of these like pods each node takes."""
        wanted = len(pods)
        switches = self._runtime.topology.switches()
        meant = meant_for(pods, self._cache.nodes)
        wishes = drawn_to(meant, self._runtime.evaluator.wishes(filtered), filtered)
        if wishes is not None:
            capacity = best_first(wishes, rows, capacity, wanted)
        strategy = strategy_of(self._runtime.handle.workload(filtered.pod))
        if strategy == "distributed":
            return apart(rows, capacity, wanted, switches[-1] if switches else None)
        scores = None if strategy == "consolidated" else self._runtime.evaluator.ranking(filtered)
        return together(rows, capacity, wanted, switches, scores)


def _hardest_first(roles: Sequence[Role]) -> list[Role]:
    def key(role: Role) -> tuple[bool, int, int]:
        return _is_drawn([role], roles), int(np.count_nonzero(role.capacity)), role.room

    return sorted(roles, key=key) if len(roles) > 1 else list(roles)


def _is_drawn(some: Sequence[Role], roles: Sequence[Role]) -> bool:
    """Whether some of these roles can be placed only after members of the other roles."""
    return any(
        is_drawn_by(role.pods[0], (pod for other in roles if other not in some for pod in other.pods)) for role in some
    )


def _demand(roles: Sequence[Role]) -> int:
    return sum(len(role.pods) for role in roles)
