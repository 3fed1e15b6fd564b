"""The work in the background: in each round, plans are made for the gangs that have lost members, and carried out.

A round follows each change, and each moment at which something is due: the end of a grace, of kept room, of a pause.
While members of a gang are being removed, nothing else is planned for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf

from gangline import (
    GANG_SECONDS,
    BoolColumn,
    Deadline,
    GanglineError,
    Handle,
    PodGroup,
    PodInfo,
)
from gangline_plugins.memberships import key_of
from gangline_plugins.preemption.helping import is_helped
from gangline_plugins.recovery.arguments import RecoveryArgs
from gangline_plugins.recovery.carrying_out import Removing
from gangline_plugins.recovery.dead import Forcing, StillDead, with_silent
from gangline_plugins.recovery.device_losses import DeviceHealth
from gangline_plugins.recovery.device_wear import DeviceWear
from gangline_plugins.recovery.down import DownDomains
from gangline_plugins.recovery.lending import Lending, Seeker
from gangline_plugins.recovery.losses import Affected, Loss, NodeHealth, affected, pods_on
from gangline_plugins.recovery.planning import Places, RecoveryPlan, find_recovery
from gangline_plugins.recovery.policies import RecoveryPolicy, policy_of
from gangline_plugins.recovery.spares import Spares
from gangline_plugins.recovery.telling import RecoveryEnd, RecoveryNotices
from gangline_plugins.recovery.under_way import LONGEST_PAUSE, Recovering, Stranded, UnderWay
from gangline_plugins.recovery.wear import NodeWear

log = logging.getLogger(__name__)
_AT_ONCE_SECONDS = 0.05
"""CPU time for the plans of one round; the other groups follow in the next, so that the loop is not held."""
_NEXT_ROUND = 0.01
_LOOK = 30.0
"""While nodes are lost, seconds until the next search for pods that have come to these nodes since."""


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """A group that is to be planned for."""

    group: PodGroup
    since: float
    """On the monotonic clock: when its trouble was first seen."""
    lost: Sequence[PodInfo]
    dead: Collection[str]
    """The nodes on which nothing can run any more."""
    why: str


class RecoveryRounds:
    """Sees which groups have lost members, has places found for them, and has pods removed."""

    def __init__(
        self,
        args: RecoveryArgs,
        handle: Handle,
        wear: NodeWear,
        under_way: UnderWay,
        spares: Spares,
        lending: Lending,
    ) -> None:
        self._args = args
        self._handle = handle
        self._changed = asyncio.Event()
        self.down = DownDomains(handle, args.down)
        """The domains that are marked as down."""
        self.health = NodeHealth(handle, args.grace_seconds, self._changed.set, wear, self.down)
        """The nodes that are lost."""
        devices = DeviceWear(handle, args.penalty_half_life_seconds)
        self._devices = DeviceHealth(handle, self._changed.set, wear, devices)
        self._lost: list[tuple[PodInfo, Loss]] = []
        """The pods on lost nodes and devices, within the grace too, as of the last round."""
        self._under_way = under_way
        self._spares = spares
        self._lending = lending
        self._removing = Removing(handle, args.room_seconds)
        self._notices = RecoveryNotices(handle)
        self._forcing = Forcing(handle, self._removing, self._notices)
        self._is_blind = False
        self._is_cut_short = False

    def allowed(self) -> BoolColumn:
        """For each row whether pods may come to the node: it is there, not lost and not cordoned."""
        nodes = self._handle.nodes
        allowed: BoolColumn = nodes.alive & ~nodes.unschedulable
        allowed[[row for name in self.health.all if (row := nodes.row_of(name)) is not None]] = False
        return allowed

    def await_room(self, group: PodGroup) -> None:
        """A group runs in part and has no room for the rest: it may have to move.

        Members that are being deleted may still give the room, if their nodes can do that.
        """
        leaving = self._handle.leaving_members(group.key)
        may_leave = any(pod.node_name not in self.health.all for pod in leaving)
        pause = self._args.room_seconds if may_leave else self._args.grace_seconds
        self._under_way.await_room(group, self._handle.clock.monotonic(), pause)
        self._changed.set()

    def failed_in_room(self, group: PodGroup) -> None:
        """An attempt of a group for which room is kept has failed.

        The cause may pass, for example a stale report or a lock. So the room is kept for as long as the grace of a node
        that is not ready, and then given up for other room.
        """
        self._under_way.fails(group.key, self._handle.clock.monotonic())
        self._changed.set()

    def arrived(self, key: str, pod: PodInfo) -> None:
        """A pod of a group is bound: if nobody else is to come, the group has recovered."""
        found = self._under_way.arrived(key, pod)
        if found is not None:
            self._changed.set()
            seconds = self._handle.clock.monotonic() - found.since
            note = f"all lost members have nodes again, {found.how}, after {seconds:.1f} s"
            self._notices.ended(found.group, [pod], RecoveryEnd.RECOVERED, note, seconds)

    async def run(self) -> None:
        """Make rounds until cancelled."""
        self._notices.conditions.find()
        try:
            while True:
                self._changed.clear()
                began = self._handle.clock.monotonic()
                self._round(began)
                following = self._next_round(began)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds_to(following)):
                        await self._changed.wait()
        finally:
            self._under_way.end_all()

    def _seconds_to(self, moment: float) -> float | None:
        return None if moment == inf else max(0.0, moment - self._handle.clock.monotonic())

    def _next_round(self, now: float) -> float:
        """When the next round is due, on the monotonic clock; infinite if only a change can make one due.

        `now` is when the last round began, so the next round is due at once if something became due during the last.
        """
        ends = [loss.due for _, loss in self._lost if loss.due > now]
        times = [*ends, *self._under_way.moments()]
        if self._is_cut_short:
            times.append(now + _NEXT_ROUND)
        if self.health.all:
            after = self._args.dead_after_seconds
            times += [now + _LOOK, *(loss.since + after for _, loss in self._lost if loss.since + after > now)]
        return min(times, default=inf)

    # What is to be done

    def _round(self, now: float) -> None:
        self._give_up_what_fails(now)
        for late in self._under_way.late(now):
            self._under_way.end(late.group.key)
            if late.places:
                note = f"{len(late.places)} members did not come in time; no more room is kept for them"
                self._notices.ended(late.group, [late.first], RecoveryEnd.GIVEN_UP, note, now - late.since)
        self.health.look()
        on_nodes = pods_on(self._handle, self._seen())
        self._lost = [*on_nodes, *self._devices.losses(now)]
        self._forcing.look(self._lost)
        due = [(pod, loss) for pod, loss in self._lost if now >= loss.due]
        found = [each for each in affected(self._handle, due) if self._is_to_recover(each, now)]
        steps = [(_case_of(each), partial(self._recover, each, now)) for each in found]
        lost = {each.group.key for each in found}
        for stranded in self._under_way.due(now):
            if stranded.group.key not in lost:
                case = _Case(stranded.group, stranded.since, (), (), "there is no room beside the other members")
                steps.append((case, partial(self._try_again, case)))
        self._is_cut_short = self._plan(steps, now)
        self._under_way.announce(self.health.all)  # now that it is known who recovers anew
        if self._notices.conditions.any:
            with_lost = {key_of(self._handle, pod) for pod, _ in self._lost}
            self._notices.conditions.settle(with_lost.union(self._under_way.recovering, self._under_way.stranded))

    def _give_up_what_fails(self, now: float) -> None:
        """Give up room that does not serve: other room is sought at once."""
        nodes, allowed = self._handle.nodes, self.allowed()

        def serves(node: str) -> bool:
            row = nodes.row_of(node)
            return row is not None and bool(allowed[row])

        for failing in self._under_way.failing(now, serves):
            self._under_way.end(failing.group.key)
            self._under_way.await_room(failing.group, now, 0.0)

    def _plan(self, steps: Sequence[tuple[_Case, Callable[[], None]]], now: float) -> bool:
        """Plan for groups one after the other; returns whether some are left over. A fault harms its group alone."""
        budget = Deadline(_AT_ONCE_SECONDS)
        for case, step in steps:
            if budget.passed:
                return True
            try:
                with self._handle.within(Deadline(GANG_SECONDS)), self._spares.lifted():
                    step()
            except GanglineError as error:
                log.error("gang %s/%s: its recovery: %s", case.group.namespace, case.group.name, error)
                self._wait(case, f"{case.why}; {error}", now)
        return False

    def _seen(self) -> Mapping[str, Loss]:
        """The lost nodes, those within the grace too; if most nodes are not ready, only the nodes lost for certain."""
        is_blind = self.health.is_blind(self._args.most_lost_fraction)
        if is_blind and not self._is_blind:
            log.error("recovery of gangs: most nodes are not ready, so nothing is moved because of that")
        elif self._is_blind and not is_blind:
            log.info("recovery of gangs: most nodes are ready again; the others have as much grace as if lost now")
            self.health.begin_anew()
        self._is_blind = is_blind
        return self._credible()

    def _credible(self) -> Mapping[str, Loss]:
        """The lost nodes as they are now, with the last judgement of `_seen` about nodes that are not ready."""
        losses = self.health.all
        if self._is_blind:
            return {name: loss for name, loss in losses.items() if loss.is_certain}
        return with_silent(losses, self._handle.clock.monotonic(), self._args.dead_after_seconds)

    def _still(self, dead: Collection[str]) -> StillDead:
        return StillDead(dead, self._credible)

    def _is_to_recover(self, each: Affected, now: float) -> bool:
        under_way = self._under_way.recovering.get(each.group.key)
        if under_way is not None:
            is_known = under_way.removed.issuperset(pod.uid for pod in each.lost)
            return not is_known and not under_way.is_removing
        return not self._under_way.rests(each.group.key, now)

    # Plans

    def _recover(self, each: Affected, now: float) -> None:
        """Begin the recovery of a group with members on lost nodes, or find that there is no place."""
        group, policy = each.group, policy_of(self._handle, each.lost[0])
        if policy is RecoveryPolicy.NONE:
            self._under_way.forget(group.key)
            return
        waiting, replaced = self._waiting(group.key)
        self._under_way.end(group.key)

        seeker = Seeker.of(self._handle, group, each.priority, self.allowed())

        def find(leaving: Callable[[], Sequence[PodInfo]]) -> RecoveryPlan | None:
            places = Places(self._handle, seeker.allowed, leaving)
            return find_recovery(self._handle, group, each.lost, waiting, replaced, policy, places)

        case, plan = _case_of(each), find(self._spares.lent(seeker))
        if plan is None and policy is RecoveryPolicy.REPLACE and each.lost[0].spec.preemption_policy != "Never":
            weaker = find(partial(self._lending.below, each.priority, seeker))
            if weaker is not None and not weaker.is_move:
                note = f"{case.why}; pods of a lower priority have to make room"
                self._begin(case, weaker.without_room(), note)
                return
        self._settle(case, plan, "and there is no room for them beside the others, nor for all elsewhere", now)

    def _waiting(self, key: str) -> tuple[list[PodInfo], Container[str]]:
        """Members of a group that are expected or wait for a node, and the UIDs of the members that they replace."""
        awaited = self._under_way.recovering.get(key)
        if awaited is None:
            placed = self._handle.state.pods  # some queued members have a node already, and are being bound to it
            return [pod for pod in self._handle.queued_members(key) if pod.uid not in placed], ()
        return [pod for pod, _ in awaited.places], awaited.removed

    def _try_again(self, case: _Case) -> None:
        """Look once more at a group that runs in part and has no room for the rest."""
        group, now = case.group, self._handle.clock.monotonic()
        attempt = self._handle.attempt(group.key)
        if attempt is None or not attempt.placed or not attempt.needed or is_helped(self._handle, attempt):
            self._under_way.forget(group.key)
            return
        policy = policy_of(self._handle, attempt.first)
        if policy is RecoveryPolicy.NONE:
            self._under_way.forget(group.key)
            return
        priority = group.priority if group.priority is not None else attempt.first.priority
        seeker = Seeker.of(self._handle, group, priority, self.allowed())
        places = Places(self._handle, seeker.allowed, self._spares.lent(seeker))
        plan = find_recovery(self._handle, group, (), attempt.pods, (), policy, places)
        if plan is None or plan.evicted or plan.lent:
            self._settle(case, plan, "nor for all of them elsewhere", now)
        else:
            self._under_way.forget(group.key)  # the next attempt places it

    def _settle(self, case: _Case, plan: RecoveryPlan | None, lacks: str, now: float) -> None:
        """Begin what was planned, unless budgets forbid it; otherwise the group waits."""
        protected = self._removing.protected(plan.evicted) if plan is not None else ""
        if plan is None:
            self._wait(case, f"{case.why}, {lacks}", now)
        elif not protected:
            self._begin(case, plan, case.why)
        elif plan.is_move:
            self._wait(case, f"{case.why}, and the gang would move as a whole, but {protected}", now)
        else:
            self._begin(case, plan.of_the_lost(), f"{case.why}; the others run on, because {protected}")

    def _begin(self, case: _Case, plan: RecoveryPlan, why: str) -> None:
        nodes = sorted({node for _, node in plan.places if node})
        where = f"room is kept on {', '.join(nodes[:3])}{' and others' if len(nodes) > 3 else ''}" if nodes else ""
        how = "the gang moves as a whole" if plan.is_move else "all members restart" if plan.evicted else ""
        how = how if plan.places else "the others are enough, and there is no room for more of them now"
        left = f"{len(plan.lent)} pods leave lent spares" if plan.lent else ""
        note = "; ".join(part for part in (why, where, how, left) if part)
        found = self._under_way.begin(case.group, plan, case.since)
        self._notices.began(case.group, [*plan.lost, *plan.evicted, *plan.lent], note)
        self._handle.spawn(partial(self._carry_out, found, plan, case.dead, note))

    async def _carry_out(self, found: Recovering, plan: RecoveryPlan, dead: Collection[str], note: str) -> None:
        group, clock = found.group, self._handle.clock
        try:
            await self._removing.carry_out(plan.lost, self._still(dead), plan.evicted, note, plan.lent)
        except GanglineError as error:
            if self._under_way.is_current(found):
                self._under_way.end(group.key)
                self._under_way.strand(group, clock.monotonic(), clock.monotonic(), LONGEST_PAUSE)
                self._notices.failed(group, [*plan.lost, *plan.evicted], str(error))
            else:  # the replacements have come, so the gang has recovered; a member that is left is lost anew
                log.warning("gang %s/%s: %s", group.namespace, group.name, error)
        finally:
            found.until = self._end_of_room(found, plan, dead)
            self._changed.set()

    def _end_of_room(self, found: Recovering, plan: RecoveryPlan, dead: Collection[str]) -> float:
        """Until when room is kept, on the monotonic clock, once members were removed.

        Some controllers create new pods only when the lost pods are gone, so not before a silent node counts as dead.
        """
        after = self._args.dead_after_seconds
        is_silent = after and any(pod.node_name not in dead for pod in plan.lost)
        now = self._handle.clock.monotonic()
        return self._args.room_seconds + max(now, found.since + after if is_silent else now)

    # No place

    def _wait(self, case: _Case, why: str, now: float) -> None:
        """Tell the members of a group that it waits for room, or release them if it has waited for too long."""
        group, release = case.group, self._args.release_seconds
        stranded = self._under_way.strand(group, now, case.since)
        gone = {pod.uid for pod in case.lost}
        others = [pod for pod in self._handle.members(group.key) if pod.uid not in gone]
        protected = self._removing.protected(others)
        if release and now >= stranded.since + release and not protected:
            note = f"no place was found in {release:g} s, so {len(others)} members are released; {why}"
            if not stranded.is_release_told:
                stranded.is_release_told = True
                self._notices.releases(group, others or case.lost, note)
            stranded.is_releasing = True
            self._handle.spawn(partial(self._release, stranded, case, others, note))
        elif not stranded.is_told:
            stranded.is_told = True
            then = f"are released in {stranded.since + release - now:.0f} s" if release else "stay where they are"
            later = f"; the other members {then}{f', unless {protected}' if release and protected else ''}"
            note = f"{why}; it is tried again within {LONGEST_PAUSE:g} s{later if others else ''}"
            self._notices.waits(group, [*case.lost, *self._handle.queued_members(group.key), *others], note)

    async def _release(self, stranded: Stranded, case: _Case, others: Sequence[PodInfo], note: str) -> None:
        """Evict the other members; if that fails, it is tried again as a plan would be."""
        try:
            await self._removing.carry_out(case.lost, self._still(case.dead), others, note, is_restart=False)
            self._notices.released(case.group, note)
            stranded.since, stranded.is_told, stranded.is_release_told = self._handle.clock.monotonic(), False, False
        except GanglineError as error:
            log.error("gang %s/%s: %s", case.group.namespace, case.group.name, error)
        finally:
            stranded.is_releasing = False
            self._changed.set()


def _case_of(each: Affected) -> _Case:
    why = "; ".join(loss.why for loss in list(each.losses.values())[:3])
    return _Case(each.group, each.since, each.lost, each.dead, f"{len(each.lost)} members are lost ({why})")
