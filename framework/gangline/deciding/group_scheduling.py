"""Decide one pod group: try candidate placements on the real columns and take the best. No I/O.

Plugins propose placements: sets of nodes on which the whole group could be placed. The cycle ranks them, fills one
after the other in a transaction (`group_filling`), and takes the first that holds the group. Then Reserve and Permit
are called for each member (`group_reserving`). If no placement holds the group, plugins may make room for it
(preemption).

Rules:
- A group is decided in one cycle. Afterwards all needed members are assumed, or nothing has changed.
- Placements are tried tier by tier. Within a tier, placements that hold the whole group come before placements that
  hold only the needed members; then the better score comes first.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import msgspec
import numpy as np

from gangline.api.diagnosis import Diagnosis
from gangline.api.placement import Placement
from gangline.api.pod_group import GroupAttempt, PodGroup, Role
from gangline.deadline import ROOM_SECONDS, exceeded
from gangline.deciding.counts import held_by
from gangline.deciding.group_decisions import GroupDecision, GroupRejection, Lack
from gangline.deciding.group_filling import Filler, Steps, no_room, to_the_end
from gangline.deciding.group_reading import RoleKey
from gangline.deciding.group_reserving import reserve_members
from gangline.deciding.group_words import why_none
from gangline.deciding.kinds import is_cluster_too_small, kind_of_group
from gangline.deciding.meant import drawn_to, meant_for
from gangline.deciding.scheduling import find_feasible
from gangline.errors import GanglineError
from gangline.groups.progress import Progress
from gangline.profile.entries import Filtered
from gangline.profile.ranking import Wishes, worth
from gangline.profile.runtime import GROUPS, Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.locality import is_drawn_by
from gangline.state.node_view import Int64Column
from gangline.state.pods import PodInfo
from gangline.state.transaction import Transaction
from gangline.status import BoolColumn, Status, read_only

_MOST_TOLD = 16
"""Kinds of members for which a message says why they have no node, at most."""
MOST_TRIED = 64
"""Placements that are tried in one cycle, at most."""


class _Left(msgspec.Struct, frozen=True):
    """What an attempt keeps while other units are decided."""

    version: int
    """The version of the cache."""
    members: list[PodInfo]
    placed: list[tuple[PodInfo, int]]


class GroupCycle:
    """One attempt to decide a group, in steps between which other units may be decided: see `group_search`."""

    def __init__(
        self,
        unit: Unit,
        group: PodGroup,
        members: Mapping[RoleKey, list[PodInfo]],
        runtime: Runtime,
        cache: Cache,
        nominations: Nominations,
        now: float,
        allowed: BoolColumn | None = None,
    ) -> None:
        self._unit = unit
        self._group = group
        self._runtime = runtime
        self._cache = cache
        self._nominations = self._of_others(nominations)
        self._members = members
        self._now = now
        # Neither the filler nor the attempt refers to this cycle, so all of them are freed without the collector.
        self._asked = unit, group, members, runtime, cache, self._nominations, now, allowed
        self._feasible = partial(_feasible, runtime, cache, self._nominations, allowed)
        self._deadline = runtime.evaluator.deadline
        self._said: list[str] = []
        self._score = 1.0
        self._open: Transaction | None = None
        """The transaction in which the members are being placed now."""
        self._left: _Left | None = None
        """What the attempt kept when it stepped aside."""
        self._forget()

    def _forget(self) -> None:
        """Forget all that the attempt has read of the nodes."""
        self._filtered: list[Filtered] = []
        """The verdicts for the first roles, for messages about them."""
        self._capacities: dict[int, Int64Column] = {}
        self._rejecting: set[str] = set()
        """The plugins that leave members of the other roles without a node."""
        self._made: Filler | None = None

    @property
    def _filler(self) -> Filler:
        if self._made is None:
            self._made = Filler(self._group, self._runtime, self._cache, self._feasible)
        return self._made

    def _of_others(self, nominations: Nominations) -> Nominations:
        if not nominations:
            return nominations
        own = {pod.uid for pod in self._unit.members}
        return {
            node: others
            for node, pods in nominations.items()
            if (others := {uid: pod for uid, pod in pods.items() if uid not in own and not self._is_to_come(pod)})
        }

    def _is_to_come(self, pod: PodInfo) -> bool:
        """Whether a record stands for a pod of this group that is yet to be created: its room is that of the group."""
        return pod.is_anew and self._runtime.group_key(pod) == self._group.key

    def begin(self) -> Steps[GroupAttempt]:
        """Read the cluster as it is now; returns the attempt, with the members' roles and capacities."""
        placed = list(self._runtime.handle.members(self._group.key))
        roles = []
        for (subgroup, _), pods in self._members.items():
            roles.append(self._role(subgroup, pods))
            yield
        return self._begun(roles, placed)

    def _begun(self, roles: list[Role], placed: list[PodInfo]) -> GroupAttempt:
        self._attempt = GroupAttempt(
            self._group,
            roles,
            needed=Progress.of(self._group, len(placed)).needed,
            placed=placed,
            waited=self._now - (self._unit.added if self._unit.complete is None else self._unit.complete),
            refit=partial(_refit, *self._asked),
            deadline=self._deadline,
        )
        return self._attempt

    def _role(self, subgroup: str, pods: list[PodInfo]) -> Role:
        # If a pod can be placed only after other members, only filling tells which nodes accept the pod.
        is_open = is_drawn_by(pods[0], itertools.chain.from_iterable(self._members.values()))
        filtered, room = self._room(pods[0], is_open)
        if len(self._filtered) < _MOST_TOLD:
            self._filtered.append(filtered)
        else:  # the verdicts on all nodes take too much memory to be kept for many roles
            self._rejecting |= self._runtime.evaluator.diagnose(filtered).plugins()
        capacity, in_all = self._held(room, len(pods))
        if len(self._members) > 1:
            # Most roles fit on the same nodes, so equal capacities share one column.
            known = self._capacities.setdefault(hash(capacity.tobytes()), capacity)
            capacity = known if np.array_equal(known, capacity) else capacity
        return Role(subgroup, pods, capacity, in_all)

    def _held(self, room: Int64Column, members: int) -> tuple[Int64Column, int]:
        """The capacity for a role of this many members, and the room for such members in the whole cluster."""
        if room is no_room(len(room)):
            return room, 0
        return read_only(np.minimum(room, members)), int(np.add.reduce(room))

    def _room(self, pod: PodInfo, is_open: bool) -> tuple[Filtered, Int64Column]:
        """The verdicts on a member, and how many members like it fit on each node."""
        filtered = self._feasible(pod)
        return filtered, self._filler.capacity(filtered, is_open)

    def decide(self) -> Steps[GroupDecision | GroupRejection]:
        """Find a placement for the group and reserve it."""
        attempt = yield from self.begin()
        missing = Progress.of(self._group, len(attempt.placed), len(attempt.pods)).missing
        if missing:
            message = f"waiting for {missing} more pods of the group"
            return GroupRejection(self._unit, message, frozenset((GROUPS,)), self._group, is_incomplete=True)
        is_conceded = False
        found = yield from self._search(attempt)
        if found is None:
            with self._runtime.conceded(attempt) as is_conceded:
                if is_conceded:
                    self._forget()
                    found = yield from self._search((yield from self.begin()))
        if isinstance(found, GroupDecision):
            return found
        diagnoses = self._diagnoses()
        if found is None:
            return self._rejection(self._why(diagnoses), "", diagnoses, knows_kind=not is_conceded)
        return self._rejection(found.message, found.plugin, diagnoses)

    def _search(self, attempt: GroupAttempt) -> Steps[GroupDecision | Status | None]:
        """Try the placements in order; None if none of them holds the group, a Status if there are none."""
        placements = self._runtime.generate(attempt)
        if isinstance(placements, Status):
            return placements
        with closing(self._candidates(placements)) as candidates:
            for placement in candidates:
                decided = yield from self._try(placement)
                if decided is not None:
                    return decided
        return None

    def fit(self) -> Steps[Mapping[str, int] | None]:
        """The rows to which the members would go on the columns as they are, by pod UID; None if there is no room."""
        attempt = yield from self.begin()
        placements = self._runtime.generate(attempt)
        if isinstance(placements, Status):
            return None
        with closing(self._candidates(placements)) as candidates:
            for placement in candidates:
                with self._cache.transaction() as tx:
                    if (yield from self._filler.fill(attempt, placement.rows, tx)):
                        return {pod.uid: pod.row for pod in attempt.pods if pod.row >= 0}
        return None

    # While others are decided

    def step_aside(self) -> None:
        """Other units are decided now: take the pods placed so far off the columns."""
        placed = self._open.step_aside() if self._open is not None else []
        self._left = _Left(self._cache.version, list(self._unit.members), placed)

    def come_back(self, nominations: Nominations) -> bool:
        """Go on after `step_aside`; False if anything has changed since, so that all has to be read anew."""
        left, self._left = self._left, None
        is_same = (
            left is not None
            and left.version == self._cache.version
            and left.members == self._unit.members
            and self._nominations == self._of_others(nominations)
        )
        if left is None or not is_same:
            return False
        if self._open is not None:
            self._open.come_back()
            for pod, row in left.placed:
                self._open.place(pod, row)
        return True

    # Candidates

    def _candidates(self, placements: Iterable[Placement]) -> Generator[Placement, None, None]:
        """The placements to try, or the parts of them that plugins name, in order; at most MOST_TRIED."""
        tiers = itertools.groupby(self._in_time(placements), key=lambda placement: placement.tier)
        left = MOST_TRIED
        for _, tier in tiers:
            for placement in self._ranked(list(tier)):
                with closing(self._runtime.narrowed(self._attempt, placement)) as parts:
                    for part in parts:
                        yield part
                        left -= 1
                        if not left:
                            return

    def _in_time(self, placements: Iterable[Placement]) -> Iterator[Placement]:
        for placement in placements:
            self._deadline.check()
            yield placement

    def _ranked(self, placements: list[Placement]) -> Iterator[Placement]:
        """The placements whose capacity is large enough, the best first."""
        roles = self._attempt.roles
        if is_cluster_too_small(self._attempt):
            return
        members = np.array([[len(role.pods)] for role in roles])
        held = np.minimum(held_by(placements, roles), members)
        enough = np.flatnonzero(held.sum(axis=0) >= self._attempt.fewest)
        if not len(enough):
            return
        lacking = np.any(held[:, enough] < members, axis=0).tolist()
        large = [placements[number] for number in enough.tolist()]
        weight = self._runtime.placement_weight
        wishes = [
            drawn_to(meant_for(role.pods, self._cache.nodes), self._runtime.evaluator.wishes(filtered), filtered)
            for role, filtered in zip(roles, self._filtered, strict=False)  # of the first kinds of members
        ]
        scores = self._runtime.score_placements(self._attempt, large)
        is_wished = any(wish is not None for wish in wishes)
        wished = [self._wished(placement, wishes) for placement in large] if is_wished else [0.0] * len(large)
        ranked = [
            (is_lacking, -fulfilled, -score, number)
            for number, (is_lacking, fulfilled, score) in enumerate(zip(lacking, wished, scores, strict=True))
        ]
        for _, _, score, number in sorted(ranked):
            self._score = -score / (100.0 * weight) if weight else 1.0
            yield large[number]

    def _wished(self, placement: Placement, wishes: Sequence[Wishes | None]) -> float:
        """How far a placement fulfils what the members ask for, by the scores that outrank all others."""
        return sum(
            worth(wish, placement.rows, role.capacity, len(role.pods))
            for role, wish in zip(self._attempt.roles, wishes, strict=False)  # of the first kinds of members
            if wish is not None
        )

    def _try(self, placement: Placement) -> Steps[GroupDecision | None]:
        attempt = self._attempt
        with self._cache.transaction() as tx:
            self._open = tx
            filled = yield from self._filler.fill(attempt, placement.rows, tx)
            self._open = None
            if not filled:
                self._said.append(self._filler.why or f"{placement.name} does not hold the group")
                return None
            decisions = reserve_members(attempt.pods, self._filler.cycles, self._unit, self._runtime, self._cache)
            if isinstance(decisions, Status):
                self._said.append(decisions.message)
                return None
            tx.commit()
        left = [pod for pod in attempt.pods if pod.slot.row < 0]
        why = self._why(self._diagnoses()) if left else ""
        is_whole = not attempt.placed
        return GroupDecision(self._unit, self._group, decisions, left, self._score, is_whole, why, placement.name)

    # What to say

    def _rejection(
        self, message: str, plugin: str, diagnoses: Sequence[Diagnosis], knows_kind: bool = False
    ) -> GroupRejection:
        plugins = {GROUPS, *self._rejecting, *((plugin,) if plugin else ())}
        for diagnosis in diagnoses:
            plugins |= self._runtime.reject(diagnosis)
        nominated, said, is_late = self._make_room() if self._attempt.needed else ({}, "", False)
        waited = self._attempt.waited
        knows_kind = knows_kind and not is_late and not any(nominated.values())
        constraints = [self._group.topology, *(part.topology for part in self._group.subgroups)]
        change = min(constraint.next_change(waited) for constraint in constraints)
        kind = kind_of_group(self._attempt, self._filtered, self._runtime, plugins) if knows_kind else None
        return GroupRejection(
            self._unit,
            "; ".join(part for part in (message.rstrip("."), said) if part),
            frozenset(plugins),
            self._group,
            nominated,
            retry_after=None if change == float("inf") else change - waited,
            is_running=not self._attempt.needed,
            is_error=is_late,
            is_late=is_late,
            kind=kind,
            lack=Lack(self._group, self._members) if kind is not None and self._is_everybody() else None,
            alike=self._alike(),
        )

    def _alike(self) -> Sequence[Sequence[PodInfo]]:
        """The members that plugins do not tell apart, whatever parts of the group they are in."""
        found: dict[Hashable, list[PodInfo]] = {}
        for (_, like), pods in self._members.items():
            found.setdefault(like, []).extend(pods)
        return list(found.values())

    def _is_everybody(self) -> bool:
        """Whether no member of the unit is held back by a plugin."""
        return len(self._attempt.pods) == len(self._unit.members)

    def _make_room(self) -> tuple[Mapping[str, str], str, bool]:
        """Let plugins make room: the nominated node by pod UID, the messages, whether it took too long."""
        attempt = self._attempt
        attempt.deadline = self._deadline.at_most(ROOM_SECONDS)
        try:
            with self._runtime.evaluator.within(attempt.deadline):
                return (*self._runtime.group_post_filter(attempt), False)
        except GanglineError as error:
            if not exceeded(error):
                raise
            return {}, str(error), True

    def _diagnoses(self) -> list[Diagnosis]:
        """Why nodes reject the members of the first roles."""
        return [self._runtime.evaluator.diagnose(filtered) for filtered in self._filtered]

    def _why(self, diagnoses: Sequence[Diagnosis]) -> str:
        attempt = self._attempt
        said = dict.fromkeys([*attempt.messages, *self._said])
        return why_none(attempt, said, self._filtered, diagnoses, self._cache.nodes.count)


def _feasible(
    runtime: Runtime, cache: Cache, nominations: Nominations, allowed: BoolColumn | None, pod: PodInfo
) -> Filtered:
    filtered = find_feasible(pod, runtime, cache, nominations)
    if allowed is not None:
        filtered.feasible = filtered.feasible & allowed
    return filtered


def _refit(*asked: Any) -> Mapping[str, int] | None:
    """See `GroupAttempt.refit`; `asked` are the arguments of `GroupCycle`."""
    return to_the_end(GroupCycle(*asked).fit())
