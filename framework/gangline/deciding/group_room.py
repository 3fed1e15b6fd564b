"""Counts the room again for groups that were rejected because the whole cluster had too little room for them.

The room is counted as an attempt does, but no placement is searched.

Rules:
- A count is used at one moment: while it is in use, nothing in the cluster changes, and no unit is decided.
- Groups of many kinds have like members, so what the filters say of a member is kept for like members of other groups.
  Members count as like as in `kinds`: of one class, of which no plugin reads more, with verdicts that are all kept.
- Whatever may depend on the group as a whole is asked of each group: which plugins reject, and whether one may help.
- The count stands for all groups of the kind, so it holds only if an attempt would find the same kind again: what
  plugins read of pods, and what they promise, may have changed since the group was rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

import msgspec

from gangline.api.diagnosis import Diagnosis
from gangline.api.pod_group import Membership, PodGroup
from gangline.deadline import Deadline
from gangline.deciding.group_decisions import Lack
from gangline.deciding.group_reading import RoleKey
from gangline.deciding.group_scheduling import GroupCycle
from gangline.deciding.kinds import is_cluster_too_small, kind_of_group
from gangline.deciding.likeness import is_plain, likenesses
from gangline.profile.entries import Filtered
from gangline.profile.runtime import Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.node_view import Int64Column
from gangline.state.pods import PodInfo


class _SeenMember(msgspec.Struct, eq=False):
    """What is found for a member; at one moment it holds for all like members."""

    filtered: Filtered
    room: Int64Column
    diagnosis: Diagnosis
    plugins: Set[str]
    """The plugins whose verdicts reject the member."""
    held: dict[int, tuple[Int64Column, int]] = {}
    """What `GroupCycle._held` says of a role of such members, by the number of its members."""


_Known = dict[tuple[int, bool], _SeenMember]
"""By class, and whether only filling tells which nodes accept the member: see `GroupCycle._room`."""


class RoomCount:
    """The room at one moment; `deadline` is for all groups together."""

    def __init__(
        self, runtime: Runtime, cache: Cache, nominations: Nominations, now: float, deadline: Deadline
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._nominations = nominations
        self._now = now
        self._deadline = deadline
        self._known: _Known = {}

    def still_lacks(self, unit: Unit) -> bool:
        """Whether an attempt would only find again that the whole cluster has too little room for the group.

        The unit has not changed since it was rejected. False also if counting fails, so that an attempt finds the
        fault, and for a unit that did not lack room.
        """
        lack = unit.lack
        if not isinstance(lack, Lack):
            return False
        first = next(iter(lack.members.values()))[0]
        membership = self._runtime.handle.group_of(first)
        if not isinstance(membership, Membership):
            return False
        if membership.group is not lack.group and membership.group != lack.group:
            return False
        try:
            with self._runtime.evaluator.within(self._deadline):
                return self._cycle(unit, lack.group, lack.members).is_rejected_again()
        except Exception:  # not only GanglineError: values of plugins are compared, which may call code of theirs
            return False

    def _cycle(self, unit: Unit, group: PodGroup, members: Mapping[RoleKey, list[PodInfo]]) -> _Counting:
        counting = _Counting(unit, group, members, self._runtime, self._cache, self._nominations, self._now)
        counting.known = None if self._nominations else self._known  # they count by priority, and not for their group
        return counting


class _Counting(GroupCycle):
    """The first steps of an attempt."""

    known: _Known | None = None
    """The verdicts and the room for members, which groups share at this moment; None if they hold for one group."""
    _plain: Set[str] = frozenset()
    """The first members of roles, by UID, of which no plugin reads more than the class."""
    _seen: list[_SeenMember]
    """What is found for the first member of each role, in the order of the roles."""

    def is_rejected_again(self) -> bool:
        """Whether the group would be rejected for lack of room in the whole cluster, as one of its kind, by no other
        plugins than before.
        """
        if not self._are_alike():
            return False
        self._seen = []
        placed, unit = list(self._runtime.handle.members(self._group.key)), self._unit
        attempt = self._begun([self._role(subgroup, pods) for (subgroup, _), pods in self._members.items()], placed)
        if attempt.placed or not is_cluster_too_small(attempt) or self._runtime.may_help(attempt):
            return False
        plugins = set(self._rejecting)
        for role, seen in zip(attempt.roles, self._seen[: len(self._filtered)], strict=False):
            plugins |= self._reject(role.pods[0], seen)
        if not plugins <= unit.rejected_by:
            return False
        are_plain = len(self._plain) == len(attempt.roles)
        return kind_of_group(attempt, self._filtered, self._runtime, plugins, are_plain) == unit.kind

    def _are_alike(self) -> bool:
        """Whether the members that were alike when the group was rejected are so now. Raises PluginError."""
        groups = self._members.values()
        like = likenesses([pod for pods in groups for pod in pods], self._runtime)
        plain, at = set[str](), 0
        for pods in groups:
            first, end = like[at], at + len(pods)
            if like[at:end].count(first) != len(pods):
                return False
            if is_plain(first):
                plain.add(pods[0].uid)
            at = end
        self._plain = plain
        return True

    def _reject(self, pod: PodInfo, seen: _SeenMember) -> Set[str]:
        """The plugins that reject a member; those that look at rejections are asked about each group."""
        found = seen.diagnosis
        return self._runtime.reject(found if pod is found.pod else replace(found, pod=pod), seen.plugins)

    def _held(self, room: Int64Column, members: int) -> tuple[Int64Column, int]:
        known = self._seen[-1].held
        held = known.get(members)
        if held is None:
            held = known[members] = super()._held(room, members)
        return held

    def _room(self, pod: PodInfo, is_open: bool) -> tuple[Filtered, Int64Column]:
        known = self.known if pod.uid in self._plain else None
        key = (pod.cls.id, is_open)
        seen = None if known is None else known.get(key)
        if seen is not None:
            self._seen.append(seen)
            return seen.filtered, seen.room
        evaluator = self._runtime.evaluator
        filtered, room = super()._room(pod, is_open)
        diagnosis = evaluator.diagnose(filtered)
        seen = _SeenMember(filtered, room, diagnosis, diagnosis.plugins())
        if known is not None and evaluator.is_kept(filtered):
            known[key] = seen
        self._seen.append(seen)
        return filtered, room
