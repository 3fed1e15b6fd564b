"""Reserve and Permit for the members of a group whose nodes are chosen: all of them pass, or all are given back.

The members pass in the order of rank. The caller owns the transaction in which they are placed, and undoes it if a
member is rejected.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from gangline.api.cycle_state import Cycle
from gangline.deciding.scheduling import Decision
from gangline.errors import GanglineError
from gangline.profile.reserving import Step
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.status import Status

_NO_HOLDS: Mapping[str, float] = MappingProxyType({})
log = logging.getLogger(__name__)


def reserve_members(
    pods: Iterable[PodInfo], cycles: Mapping[str, Cycle], unit: Unit, runtime: Runtime, cache: Cache
) -> list[Decision] | Status:
    """Call Reserve and Permit for every pod with a place; give all back if one is rejected.

    ``cycles`` has the cycle of each placed pod, by UID.
    """
    found = [pod for pod in pods if pod.slot.row >= 0]
    rank = runtime.topology.rank()[[pod.slot.row for pod in found]]
    placed = [found[number] for number in np.argsort(rank, kind="stable").tolist()]
    if len(placed) > 1:
        of_each, names = [cycles[pod.uid] for pod in placed], cache.nodes.names
        nodes = [names[pod.slot.row] for pod in placed]
        steps = runtime.reserving.plan(of_each, placed, nodes)
        if steps is not None:
            each = zip(placed, nodes, of_each, strict=True)
            decisions = [Decision(unit, pod, node, cycle, runtime, _NO_HOLDS) for pod, node, cycle in each]
            _reserve_all(decisions, steps, runtime, cache)
            return decisions
    return _one_by_one(placed, cycles, unit, runtime, cache)


def _reserve_all(decisions: Sequence[Decision], steps: Iterable[Step], runtime: Runtime, cache: Cache) -> None:
    for decision in decisions:
        cache.adopt(decision.pod)
    try:
        runtime.reserving.carry_out(steps)
    except Exception:  # a fault of ours too must leave nothing reserved
        _undo(decisions, cache)
        raise


def _one_by_one(
    placed: Iterable[PodInfo], cycles: Mapping[str, Cycle], unit: Unit, runtime: Runtime, cache: Cache
) -> list[Decision] | Status:
    done: list[Decision] = []
    try:
        for pod in placed:
            decided = _reserve_one(pod, cycles[pod.uid], unit, runtime, cache)
            if isinstance(decided, Status):
                _undo(done, cache)
                return decided
            done.append(decided)
    except Exception:  # a fault of ours too must leave nothing reserved
        _undo(done, cache)
        raise
    return done


def _reserve_one(pod: PodInfo, cycle: Cycle, unit: Unit, runtime: Runtime, cache: Cache) -> Decision | Status:
    node = cache.nodes.names[pod.row]
    cache.adopt(pod)
    try:
        status, holds = runtime.reserve_and_permit(cycle, pod, node)
    except Exception:
        _undo_one(cycle, pod, node, runtime, cache)
        raise
    if not status.is_success:
        _undo_one(cycle, pod, node, runtime, cache)
        return status
    return Decision(unit, pod, node, cycle, runtime, holds)


def _undo(decisions: Iterable[Decision], cache: Cache) -> None:
    for decision in decisions:
        try:
            _undo_one(decision.cycle, decision.pod, decision.node, decision.runtime, cache)
        except GanglineError as error:  # the others are given back all the same
            log.error("pod %s: %s", decision.pod.key, error)


def _undo_one(cycle: Cycle, pod: PodInfo, node: str, runtime: Runtime, cache: Cache) -> None:
    """As `give_back`, but the transaction still holds the pod and takes it off later."""
    try:
        runtime.unreserve(cycle, pod, node)
    finally:
        cache.disown(pod)
