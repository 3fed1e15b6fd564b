"""Asks all finders for one unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gangline.api.pod_group import Problem
from gangline.profile.runtime import Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Unit
from gangline.remedies.amounts import fewer_members, smaller_requests
from gangline.remedies.freeing import free_room
from gangline.remedies.levels import prefer_level, widen_level
from gangline.remedies.nodes import repair_nodes
from gangline.remedies.priority import raise_priority
from gangline.remedies.remedy import Remedies, Remedy, cheapest_first
from gangline.remedies.selectors import prefer_nodes
from gangline.remedies.taints import tolerate_taint
from gangline.remedies.trying import Trial
from gangline.state.cache import Cache

_FINDERS: tuple[Callable[[Trial], Iterator[Remedy]], ...] = (
    repair_nodes,
    tolerate_taint,
    prefer_nodes,
    prefer_level,
    widen_level,
    fewer_members,
    smaller_requests,
    free_room,
    raise_priority,
)


Tell = Callable[[Remedies], None]
"""Called with each remedy as soon as it is verified, as the only one of an answer that is not complete."""


def tell_nobody(part: Remedies) -> None:
    """Nobody wants to know before the search is over."""


def find_remedies(
    unit: Unit,
    runtime: Runtime,
    cache: Cache,
    nominations: Nominations,
    now: float,
    tell: Tell = tell_nobody,
) -> Remedies:
    """The remedies for a waiting unit; `now` is in seconds of the unit's clock. The cluster is as before afterwards."""
    trial = Trial(unit, runtime, cache, nominations, now)
    if not cache.nodes.size:
        return Remedies(trial.name, note="the cluster has no nodes")
    for pod in trial.pods:
        membership = runtime.handle.group_of(pod)
        if isinstance(membership, Problem):
            return Remedies(trial.name, note=f"{pod.key} is not tried: {membership.message}")
        held = runtime.lets_in(pod)
        if not held.is_success:
            return Remedies(trial.name, note=f"{pod.key} is not tried: {held.plugin}: {held.message}")
    with trial.finding():
        if trial.starts():
            return Remedies(trial.name, note="it would start as things are")
    trial.tried = 0  # that was no change
    found: list[Remedy] = []
    for finder in _FINDERS:
        with trial.finding():
            for remedy in finder(trial):
                found.append(remedy)
                tell(Remedies(trial.name, (remedy,), trial.tried, is_complete=False))
    return Remedies(trial.name, cheapest_first(found), trial.tried, not trial.is_cut)
