"""Scheduling cycles for tests of plugins: a pod or a gang is decided as the scheduler does it, by a profile of a test.

    runtime = make_runtime(cache, MyFilter, handle=FakeHandle(cache, grouping=Groups(cache)))
    decided = decide(runtime, cache.record(make_pod("p", gpus=4)))
    assert isinstance(decided, Decision) and decided.node == "a"

After a `Decision` the pods are assumed in the cache, so the next cycle finds their room taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gangline.deadline import Deadline
from gangline.deciding import group_search, scheduling
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.deciding.scheduling import Decision, Rejection
from gangline.deciding.what_if import WhatIf
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo

__all__ = [
    "Decision",
    "GroupDecision",
    "GroupRejection",
    "Rejection",
    "WaitingGangs",
    "answers",
    "decide",
    "decide_group",
]


def decide(runtime: Runtime, pod: PodInfo) -> Decision | Rejection:
    """One scheduling cycle for a pod on its own, beside the pods that the handle says are nominated."""
    handle = runtime.handle
    return scheduling.decide(Unit([pod], added=0.0), runtime, handle.state, handle.nominated())


def decide_group(
    runtime: Runtime, pods: Sequence[PodInfo], waited: float = 0.0, deadline: Deadline | None = None
) -> GroupDecision | GroupRejection:
    """One scheduling cycle for members of one gang that have waited this many seconds, beside the nominated pods.

    The handle of the runtime needs a `grouping`, for example `Groups(cache)`.
    """
    handle = runtime.handle
    now = handle.clock.monotonic()
    unit = Unit(list(pods), added=now - waited, group=runtime.group_key(pods[0]))
    return group_search.decide_group(unit, runtime, handle.state, handle.nominated(), now, deadline)


def answers(runtime: Runtime, pod: PodInfo) -> dict[str, Any]:
    """Everything that filters and scores say about a pod, for comparisons.

    Two pods that a plugin does not tell apart (`identity`) have equal answers, and so have two profiles of the same
    plugins, of which one has kept verdicts and scores since before some change (`reads`).
    """
    evaluator = runtime.evaluator
    filtered = evaluator.filter(pod)
    diagnosis = evaluator.diagnose(filtered)
    found: dict[str, Any] = {
        "feasible": filtered.feasible.tolist(),
        "codes": {r.name: r.codes[diagnosis.nodes.alive].tolist() for r in diagnosis.rejections if r.codes.any()},
        "message": diagnosis.message(),
        "resolvable": diagnosis.resolvable().tolist(),
    }
    if filtered.feasible.any():
        found["chosen"] = evaluator.choose(filtered)
        found["scores"] = {name: scores.tolist() for name, scores in evaluator.scores(filtered).items()}
    return found


class WaitingGangs(WhatIf):
    """Gangs that wait, for plugins that ask their handle about them: `attempt`, `queued_members`, `find_places`.

    Hand it to `FakeHandle` as `pending`, and call `serve` with each profile that a test makes with the handle.
    """

    def __init__(self, cache: Cache, now: float) -> None:
        self.nominations: Mapping[str, Mapping[str, PodInfo]] = {}
        """The nominated pods by node name and UID."""
        self._now = now
        self._served: dict[str, Runtime] = {}
        self._units: dict[str, Unit] = {}
        super().__init__(self._served, cache, lambda: self.nominations, self._units.get, lambda: now)

    def serve(self, runtime: Runtime) -> None:
        """Answer the questions of this profile's plugins."""
        self._served[runtime.name] = runtime

    def add(self, runtime: Runtime, pods: Sequence[PodInfo], waited: float = 60.0) -> str:
        """The members of a gang have waited this many seconds; returns the key of the gang."""
        key = runtime.group_key(pods[0])
        self._units[key] = Unit(list(pods), added=self._now - waited, group=key)
        return key
