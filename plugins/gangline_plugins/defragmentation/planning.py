"""Makes a plan for a goal: room for a waiting group, or complete domains. It decides, does no I/O and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from gangline import Domains, GroupAttempt, Handle, InvalidObject, Progress, Rows
from gangline_plugins.defragmentation.arguments import DefragmentationArgs
from gangline_plugins.defragmentation.costs import Costs
from gangline_plugins.defragmentation.for_domains import DomainPlanning, use_of
from gangline_plugins.defragmentation.for_group import Draft, GroupPlanning
from gangline_plugins.defragmentation.movable import Movable, find_movable
from gangline_plugins.defragmentation.moving import in_batches
from gangline_plugins.defragmentation.plan import MovePlan, Protected


class Planner:
    """Plans for one profile."""

    def __init__(self, handle: Handle, args: DefragmentationArgs) -> None:
        self._handle = handle
        self._args = args

    def for_group(self, attempt: GroupAttempt) -> MovePlan:
        """The moves after which a group fits."""
        group = attempt.group
        goal = MovePlan(
            f"gang {group.namespace}/{group.name}",
            group=group.key,
            members=[pod.uid for pod in attempt.pods],
            needed=attempt.fewest,
            profile=self._handle.profile,
        )
        missing = Progress.of(group, len(attempt.placed), len(attempt.pods)).missing
        if missing:
            return msgspec.structs.replace(goal, message=f"{missing} more pods of the group have to be there first")
        costs = self._costs()
        priority = attempt.first.priority if group.priority is None else group.priority
        movable = find_movable(self._handle, costs, group.key, priority)
        planning = GroupPlanning(self._handle, attempt, movable)
        with self._handle.state.transaction() as tx:
            for pod in movable.occupants.leaving:
                tx.unplace(pod)
            if attempt.refit() is not None:
                return _met(goal, "the group fits as things are")
            draft = planning.cheapest(tx)
        if draft is None:
            return self._refused(goal, movable, planning.tried, "no moves make room for the group")
        gained = sum(costs.gpus(pod) for pod in attempt.pods if pod.uid in draft.placed)
        rows = np.unique(np.fromiter(draft.placed.values(), dtype=np.intp))
        return self._weighed(goal, movable, draft, rows, gained, planning.tried)

    def for_domains(self, level_name: str, count: int) -> MovePlan:
        """The moves after which so many domains of a level have all their GPUs free. Raises InvalidObject."""
        level = self._handle.topology.find(level_name)
        if level is None:
            known = self._handle.topology.names()
            raise InvalidObject("level", level_name, f"is no level of the topology; there are {known}")
        goal = MovePlan(f"complete domains of level {level.level}: {count}", profile=self._handle.profile)
        use = use_of(level, self._handle)
        there, most = int(use.complete.sum()), int((use.gpus > 0).sum())
        if there >= count:
            return _met(goal, f"{there} are complete")
        if most < count:
            return msgspec.structs.replace(goal, message=f"only {most} have GPUs")
        movable = find_movable(self._handle, self._costs())
        planning = DomainPlanning(self._handle, level, movable)
        with self._handle.state.transaction() as tx:
            for pod in movable.occupants.leaving:
                tx.unplace(pod)
            found = planning.cheapest(count - there, tx)
        if found is None:
            return self._refused(goal, movable, planning.tried, "no moves free so many")
        if not found.moved:
            return _met(goal, "they are once the pods that are being deleted are gone")
        draft = Draft(found.moved, sum(movable.cost(each.pods) for each in found.moved), {})
        gained = float(use.gpus[list(found.domains)].sum())
        return self._weighed(goal, movable, draft, _rows_of(level, found.domains), gained, planning.tried)

    def _costs(self) -> Costs:
        args = self._args
        placed = [pod for pod in self._handle.state.pods.values() if pod.row >= 0]
        return Costs(self._handle, args.restart_seconds, args.priority_seconds, placed)

    def _weighed(
        self, goal: MovePlan, movable: Movable, draft: Draft, rows: Rows, gpus: float, tried: Sequence[Rows]
    ) -> MovePlan:
        """The plan with its moves if it is worth its cost; otherwise without moves and with the reason."""
        worth, factor = gpus * self._args.worth_seconds, self._args.factor
        plan = msgspec.structs.replace(goal, cost=draft.cost, worth=worth, protected=_protected(movable, tried))
        if worth < factor * draft.cost:
            said = (
                f"{draft.cost:,.0f} GPU-seconds would be done again for {worth:,.0f}, which is not {factor:g} times it"
            )
            return msgspec.structs.replace(plan, message=f"not worth it: {said}")
        names = self._handle.nodes.names
        moves = in_batches(draft.moved, movable, self._handle, self._args.most_moves)
        return msgspec.structs.replace(plan, moves=moves, frees=[names[row] for row in rows.tolist()])

    def _refused(self, goal: MovePlan, movable: Movable, tried: Sequence[Rows], why: str) -> MovePlan:
        everywhere = [np.flatnonzero(self._handle.nodes.alive)]
        return msgspec.structs.replace(goal, message=why, protected=_protected(movable, tried or everywhere))


def _met(goal: MovePlan, why: str) -> MovePlan:
    return msgspec.structs.replace(goal, message=f"no move is needed: {why}", is_met=True)


def _protected(movable: Movable, tried: Iterable[Rows]) -> list[Protected]:
    return movable.protected(np.unique(np.concatenate(list(tried))))


def _rows_of(level: Domains, domains: Sequence[int]) -> Rows:
    return np.flatnonzero(np.isin(level.ids, np.array(domains)))
