"""Decide one pod: filter, score, choose a node, reserve, permit. No I/O.

After a decision the pod is assumed in the cache. After a rejection the cluster is as before.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from gangline.api.cycle_state import Cycle
from gangline.deadline import NO_DEADLINE, POD_SECONDS, Deadline, exceeded
from gangline.deciding.kinds import kind_of
from gangline.errors import GanglineError
from gangline.profile.entries import Filtered
from gangline.profile.runtime import Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.status import BoolColumn, Code, ScoreColumn, Status


class Decision(msgspec.Struct, eq=False):
    """The pod goes to the node; `holds` has the permit plugins that hold the pod, each with its maximum in seconds."""

    unit: Unit
    pod: PodInfo
    node: str
    cycle: Cycle
    runtime: Runtime
    holds: Mapping[str, float]
    feasible: int = 0
    """The number of feasible nodes; 0 without a choice: for a member of a gang, or after room was made."""
    scores: tuple[tuple[tuple[str, int], ...], list[float]] | None = None
    """The plugins with their weights, and the score that each gave the node; see `Evaluator.scores_at`."""
    is_expected: bool = False
    """Whether the node was written to status.nominatedNodeName, because the binding takes long."""


class Rejection(msgspec.Struct, frozen=True, eq=False):
    """The pod cannot be placed now, and why."""

    unit: Unit
    pod: PodInfo
    message: str
    plugins: frozenset[str]
    nominated_node_name: str | None = None
    """The node on which plugins make room; "" if there is none any more, None if the nomination has not changed."""
    is_error: bool = False
    """Whether a fault is the reason, not a verdict: the pod is tried again even if nothing happens in the cluster."""
    is_late: bool = False
    """Whether the deadline has passed: the pod is tried again, but after a longer time each time."""
    has_lost_node: bool = False
    """Whether the chosen node has been deleted: the pod is tried again at once."""
    kind: Hashable | None = None
    """Equal for pods that the same plugins would reject now; see `kinds`."""


def decide(
    unit: Unit, runtime: Runtime, cache: Cache, nominations: Nominations, deadline: Deadline | None = None
) -> Decision | Rejection:
    """One scheduling cycle, within a deadline. A plugin that raises fails this unit alone."""
    pod = unit.pod
    runtime.evaluator.deadline = deadline or Deadline(POD_SECONDS)
    try:
        again = None if nominations else runtime.decide_again(pod)
        if again is not None:
            cycle, chosen = again
            outcome = commit(unit, runtime, cache, cycle, chosen.row)
            if isinstance(outcome, Decision):
                outcome.feasible, outcome.scores = chosen.feasible, chosen.scores
            return outcome
        filtered = find_feasible(pod, runtime, cache, nominations)
        if not np.count_nonzero(filtered.feasible):  # in a tenth of the time of any()
            return _unschedulable(unit, runtime, filtered)
        row = choose(pod, runtime, cache, filtered)
        scores = runtime.evaluator.scores_at(filtered, row)
        outcome = commit(unit, runtime, cache, filtered.cycle, row)
        if isinstance(outcome, Decision):
            outcome.feasible, outcome.scores = filtered.count, scores
        return outcome
    except GanglineError as error:
        return failed(unit, error)
    finally:
        runtime.evaluator.deadline = NO_DEADLINE


def find_feasible(pod: PodInfo, runtime: Runtime, cache: Cache, nominations: Nominations) -> Filtered:
    """The feasible nodes; nominated pods of at least this priority count as if they were on their nodes.

    As in kube-scheduler, a node must pass both with and without the nominated pods, because the pod may depend on them.
    A node that does not pass without them is not feasible in any case, so the pods that are nominated there are left
    out: most nominated pods wait for a node that is still full, and placing a large gang for each decision would take
    long.
    """
    filtered = runtime.filter(pod)
    if filtered.status is not None or not nominations or not filtered.feasible.any():
        return filtered
    expected = [
        (other, row)
        for node, others in nominations.items()
        if (row := cache.nodes.row_of(node)) is not None and filtered.feasible[row]
        for other in others.values()
        if other.uid != pod.uid and other.priority >= pod.priority and other.row < 0
    ]
    if not expected:
        return filtered
    with cache.transaction() as tx:
        with cache.foreseen():  # what is being freed belongs to the nominated pods
            for other, row in expected:
                tx.place(other, row)
        with_them = runtime.filter(pod)
        if with_them.status is not None or not with_them.feasible.any():
            return _detached(with_them)
        feasible = with_them.feasible.copy()
    without = runtime.filter(pod)
    without.feasible = without.feasible & feasible
    return without


def find_place(
    pod: PodInfo, runtime: Runtime, cache: Cache, nominations: Nominations, allowed: BoolColumn | None = None
) -> Mapping[str, int] | None:
    """The UID of a pod with the row of the best node that is allowed; None if no such node is feasible.

    Nothing is assumed. Raises GanglineError.
    """
    filtered = find_feasible(pod, runtime, cache, nominations)
    if allowed is not None:
        filtered.feasible = filtered.feasible & allowed
    return {pod.uid: choose(pod, runtime, cache, filtered)} if filtered.feasible.any() else None


def _detached(filtered: Filtered) -> Filtered:
    """Replace the columns in `filtered` by copies, so that later changes of the cache do not alter the verdicts."""
    filtered.codes = {**{name: codes.copy() for name, codes in filtered.entry.codes.items()}, **filtered.codes}
    filtered.feasible = filtered.feasible.copy()
    return filtered


def choose(pod: PodInfo, runtime: Runtime, cache: Cache, filtered: Filtered, bonus: ScoreColumn | None = None) -> int:
    """The row of the node to take: the nominated node if it is feasible, else the best one."""
    if pod.nominated_node_name:
        row = cache.nodes.row_of(pod.nominated_node_name)
        if row is not None and filtered.feasible[row]:
            return row
    return runtime.choose(filtered, bonus)


def _unschedulable(unit: Unit, runtime: Runtime, filtered: Filtered) -> Rejection:
    if filtered.status is not None and filtered.status.code is Code.ERROR:
        return Rejection(unit, unit.pod, filtered.status.message, frozenset(), "", is_error=True)
    diagnosis = runtime.evaluator.diagnose(filtered)
    tally = diagnosis.tally() if filtered.status is None else ()
    plugins = runtime.reject(diagnosis, diagnosis.plugins(tally))
    message = diagnosis.message(tally)
    rejection = Rejection(unit, unit.pod, message, plugins, kind=kind_of(unit.pod, runtime, plugins))
    if not diagnosis.nodes.count:
        return replace(rejection, nominated_node_name="")
    try:
        return helped(rejection, *runtime.post_filter(diagnosis))
    except GanglineError as error:
        if not exceeded(error):
            raise
        return replace(rejection, message=f"{rejection.message} {error}", is_error=True, is_late=True)


def failed(unit: Unit, error: GanglineError) -> Rejection:
    """The rejection of a pod because of a fault; the pod keeps its nomination if only the time was too short."""
    is_late = exceeded(error)
    return Rejection(unit, unit.pod, str(error), frozenset(), None if is_late else "", is_error=True, is_late=is_late)


def helped(rejection: Rejection, nominated: str | None, said: str) -> Rejection:
    """The rejection with the nomination and the messages of the post_filter plugins."""
    message = f"{rejection.message} {said}" if said else rejection.message
    kind = None if nominated else rejection.kind  # plugins may make room for the others of its kind too
    return replace(rejection, message=message, nominated_node_name=nominated, kind=kind)


def commit(unit: Unit, runtime: Runtime, cache: Cache, cycle: Cycle, row: int) -> Decision | Rejection:
    """Assume the pod on the row's node, reserve and permit; undone when a plugin rejects. Raises PluginError."""
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
    """Undo a decision: first what plugins reserved, then the assumption."""
    try:
        runtime.unreserve(cycle, pod, node)
    finally:
        cache.forget(pod)


def rejection_of(unit: Unit, status: Status) -> Rejection:
    """The rejection of a pod by a plugin after its node was chosen: as in kube-scheduler, its nomination ends."""
    is_error = status.code is Code.ERROR
    plugins = frozenset((status.plugin,)) if status.plugin and not is_error else frozenset()
    return Rejection(unit, unit.pod, status.message, plugins, "", is_error=is_error)
