"""Reserve and Permit for the members of a group whose nodes are chosen: all of them pass, or all are given back.

The members pass in the order of rank. The transaction in which they are placed is the caller's, who takes them off
again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from gangline.api.cycle_state import Cycle
from gangline.deciding.scheduling import Decision
from gangline.errors import GanglineError
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.queueing.waiting import PodAtPermit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.status import Status

log = logging.getLogger(__name__)


def reserve_members(
    pods: Iterable[PodInfo], cycles: Mapping[str, Cycle], unit: Unit, runtime: Runtime, cache: Cache
) -> list[Decision] | Status:
    """Call Reserve and Permit for every pod with a place; give all back if one is rejected.

    ``cycles`` has the cycle of each placed pod, by UID.
    """
    rank = runtime.topology.rank()
    done: list[Decision] = []
    placed = sorted((pod for pod in pods if pod.row >= 0), key=lambda pod: int(rank[pod.row]))
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
    if holds:
        runtime.handle.waiting.add(PodAtPermit(pod, node, holds))
    return Decision(unit, pod, node, cycle, runtime, holds)


def _undo(decisions: Iterable[Decision], cache: Cache) -> None:
    for decision in decisions:
        try:
            _undo_one(decision.cycle, decision.pod, decision.node, decision.runtime, cache)
        except GanglineError as error:  # the others are given back all the same
            log.error("pod %s: %s", decision.pod.key, error)


def _undo_one(cycle: Cycle, pod: PodInfo, node: str, runtime: Runtime, cache: Cache) -> None:
    """As `give_back`, but the transaction still holds the pod and takes it off later."""
    runtime.handle.waiting.remove(pod.uid)
    try:
        runtime.unreserve(cycle, pod, node)
    finally:
        cache.disown(pod)
