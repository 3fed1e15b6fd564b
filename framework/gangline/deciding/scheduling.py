"""Decide one unit: filter, score, choose, reserve, permit. No I/O.

A decision leaves the pod assumed in the cache; a rejection leaves the cluster as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gangline.api.cycle_state import Cycle
from gangline.deadline import NO_DEADLINE, POD_SECONDS, Deadline, exceeded
from gangline.errors import GanglineError
from gangline.profile.evaluation import Filtered
from gangline.profile.runtime import Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.status import Code, ScoreColumn, Status


@dataclass(slots=True, eq=False)  # not frozen: that takes a microsecond for each member of a gang
class Decision:
    """Pod goes to node; `holds` are the permit plugins that keep it waiting, and for how many seconds at most."""

    unit: Unit
    pod: PodInfo
    node: str
    cycle: Cycle
    runtime: Runtime
    holds: Mapping[str, float]
    feasible: int = 0
    """Nodes among which it was chosen; 0 where none was: for a member of a gang, or where room was made for it."""
    scores: tuple[tuple[tuple[str, int], ...], list[float]] | None = None
    """Plugins with their weights, and the score that each gave the node; see `Evaluator.scores_at`."""


@dataclass(frozen=True, slots=True, eq=False)
class Rejection:
    """Pod goes nowhere now, and why."""

    unit: Unit
    pod: PodInfo
    message: str
    plugins: frozenset[str]
    nominated_node_name: str | None = None
    """The node on which room is being made; "" when there is none any more, None when nothing has changed."""
    is_error: bool = False
    """A fault, not a verdict: worth another try whatever happens in the cluster."""
    is_late: bool = False
    """The deadline has passed: worth another try, but each time a later one."""
    has_lost_node: bool = False
    """The node that was chosen has gone: worth another try at once."""


def decide(
    unit: Unit, runtime: Runtime, cache: Cache, nominations: Nominations, deadline: Deadline | None = None
) -> Decision | Rejection:
    """One scheduling cycle, within a deadline. A plugin that raises fails this unit alone."""
    pod = unit.pod
    runtime.evaluator.deadline = deadline or Deadline(POD_SECONDS)
    try:
        filtered = find_feasible(pod, runtime, cache, nominations)
        if not filtered.feasible.any():
            return _unschedulable(unit, runtime, filtered)
        row = choose(pod, runtime, cache, filtered)
        scores = runtime.evaluator.scores_at(filtered, row)
        outcome = commit(unit, runtime, cache, filtered.cycle, row)
        if isinstance(outcome, Decision):
            outcome.feasible, outcome.scores = filtered.count, scores
        return outcome
    except GanglineError as error:
        return Rejection(unit, pod, str(error), frozenset(), is_error=True, is_late=exceeded(error))
    finally:
        runtime.evaluator.deadline = NO_DEADLINE


def find_feasible(pod: PodInfo, runtime: Runtime, cache: Cache, nominations: Nominations) -> Filtered:
    """The feasible nodes, as if pods of at least this priority that are nominated to a node were on it already.

    As in kube-scheduler a node must pass both with and without them, because a pod may depend on what they bring.
    """
    expected = [
        (other, row)
        for node, others in nominations.items()
        for other in others.values()
        if other.uid != pod.uid
        and other.priority >= pod.priority
        and other.row < 0
        and (row := cache.nodes.row_of(node)) is not None
    ]
    if not expected:
        return runtime.filter(pod)
    with cache.transaction() as tx:
        for other, row in expected:
            tx.place(other, row)
        with_them = runtime.filter(pod)
        if with_them.status is not None or not with_them.feasible.any():
            return _detached(with_them)
        feasible = with_them.feasible.copy()
    without = runtime.filter(pod)
    without.feasible = without.feasible & feasible
    return without


def _detached(filtered: Filtered) -> Filtered:
    """The same verdicts, safe from what the cache does next."""
    filtered.codes = {**{name: codes.copy() for name, codes in filtered.entry.codes.items()}, **filtered.codes}
    filtered.feasible = filtered.feasible.copy()
    return filtered


def choose(pod: PodInfo, runtime: Runtime, cache: Cache, filtered: Filtered, bonus: ScoreColumn | None = None) -> int:
    """The row of the node to take: the one that room was made on if it will do, else the best one."""
    if pod.nominated_node_name:
        row = cache.nodes.row_of(pod.nominated_node_name)
        if row is not None and filtered.feasible[row]:
            return row
    return runtime.choose(filtered, bonus)


def _unschedulable(unit: Unit, runtime: Runtime, filtered: Filtered) -> Rejection:
    diagnosis = runtime.evaluator.diagnose(filtered)
    rejection = Rejection(unit, unit.pod, diagnosis.message(), runtime.reject(diagnosis))
    if not diagnosis.nodes.count:
        return rejection
    try:
        return helped(rejection, *runtime.post_filter(diagnosis))
    except GanglineError as error:
        if not exceeded(error):
            raise
        return replace(rejection, message=f"{rejection.message} {error}", is_error=True, is_late=True)


def helped(rejection: Rejection, nominated: str | None, said: str) -> Rejection:
    """The rejection with what the post_filter plugins did and said."""
    message = f"{rejection.message} {said}" if said else rejection.message
    return replace(rejection, message=message, nominated_node_name=nominated)


def commit(unit: Unit, runtime: Runtime, cache: Cache, cycle: Cycle, row: int) -> Decision | Rejection:
    """Assume the pod on the row's node, reserve and permit; undone when a plugin says no. Raises PluginError."""
    pod, node = unit.pod, cache.nodes.names[row]
    cache.assume(pod, row)
    try:
        status = runtime.reserve(cycle, pod, node)
        holds: Mapping[str, float] = {}
        if status.is_success:
            status, holds = runtime.permit(cycle, pod, node)
    except Exception:  # a fault of ours too must leave nothing reserved
        give_back(runtime, cache, cycle, pod, node)
        raise
    if status.is_success:
        return Decision(unit, pod, node, cycle, runtime, holds)
    give_back(runtime, cache, cycle, pod, node)
    return rejection_of(unit, status)


def give_back(runtime: Runtime, cache: Cache, cycle: Cycle, pod: PodInfo, node: str) -> None:
    """Undo a decision: what plugins reserved, then the assumption."""
    try:
        runtime.unreserve(cycle, pod, node)
    finally:
        cache.forget(pod)


def rejection_of(unit: Unit, status: Status) -> Rejection:
    """A verdict on a pod after its node was chosen."""
    is_error = status.code is Code.ERROR
    plugins = frozenset((status.plugin,)) if status.plugin and not is_error else frozenset()
    return Rejection(unit, unit.pod, status.message, plugins, is_error=is_error)
