"""Decide one pod that extenders manage: filter, call the extenders, and filter again on the cluster as it is then.

Rules:
- Nothing is locked while an extender answers: the cluster and the queue go on changing.
- An extender's answer counts for the nodes in its request; a node that came later is not used in this attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

import msgspec
import numpy as np
from msgspec.structs import replace

from gangline.api.proposal import Victims
from gangline.deadline import POD_SECONDS, Deadline
from gangline.deciding.scheduling import Decision, Rejection, choose, commit, failed, find_feasible, helped
from gangline.errors import ExtenderError, GanglineError
from gangline.extenders import deciding
from gangline.extenders.deciding import Verdicts
from gangline.extenders.extenders import Extenders
from gangline.model import Node
from gangline.profile.entries import Filtered
from gangline.profile.runtime import Runtime
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.status import Code, Reason, Status

log = logging.getLogger(__name__)


class Attempt(msgspec.Struct, frozen=True, eq=False):
    """One scheduling cycle of a unit in flight."""

    unit: Unit
    runtime: Runtime
    cache: Cache
    queue: SchedulingQueue
    extenders: Extenders
    seconds: float = POD_SECONDS
    """Seconds of CPU time for each step between two answers of extenders."""
    is_in_use: Callable[[], bool] = lambda: True
    """Whether the configuration of the runtime is still in use."""

    async def decide(self) -> Decision | Rejection | None:
        """A decision like that of `scheduling.decide`; None if the pod was deleted or bound by others meanwhile."""
        try:
            return await self._decide()
        except GanglineError as error:
            if not self._is_waiting():
                return None
            return failed(self.unit, error)

    async def _decide(self) -> Decision | Rejection | None:
        filtered = self._filter()
        nodes = self._nodes(filtered)
        if not nodes:
            return await self._reject(filtered, {})
        verdicts, scores = await self._ask(nodes)
        if not self._is_waiting():
            return None
        if not self.is_in_use():
            why = "another configuration was taken while extenders were asked"
            return Rejection(self.unit, self.unit.pod, why, frozenset(), is_error=True)
        now = self._filter()
        if not verdicts.passed:
            return await self._reject(now, verdicts.failed)
        return self._settle(now, verdicts, scores)

    async def _ask(self, nodes: Mapping[str, Node]) -> tuple[Verdicts, Iterable[Mapping[str, float]]]:
        pod = self.unit.pod
        nominated = pod.nominated_node_name
        if nominated in nodes:  # room was made there: other nodes matter only if the extenders reject it
            try:
                verdicts = await self.extenders.filter(pod, {nominated: nodes[nominated]})
                if verdicts.passed:
                    return verdicts, ()
            except ExtenderError as error:
                log.error("pod %s: nominated node %s: %s", pod.key, nominated, error)
        verdicts = await self.extenders.filter(pod, nodes)
        if len(verdicts.passed) < 2:
            return verdicts, ()
        return verdicts, await self.extenders.prioritize(pod, {name: nodes[name] for name in verdicts.passed})

    def _settle(
        self, filtered: Filtered, verdicts: Verdicts, scores: Iterable[Mapping[str, float]]
    ) -> Decision | Rejection:
        unit, nodes = self.unit, self.cache.nodes
        filtered.feasible = filtered.feasible & deciding.mask(verdicts.passed, nodes)
        if not filtered.feasible.any():
            why = "no node that the extenders left is still feasible"
            return Rejection(unit, unit.pod, why, frozenset(), "", is_error=True)
        with self._in_time():
            row = choose(unit.pod, self.runtime, self.cache, filtered, deciding.bonus(scores, nodes))
        return commit(unit, self.runtime, self.cache, filtered.cycle, row)

    async def _reject(self, filtered: Filtered, failed: Mapping[str, Reason]) -> Rejection | None:
        """No node is left: let plugins help, with the extenders' review."""
        diagnosis = self.runtime.evaluator.diagnose(filtered)
        if failed:
            diagnosis.rejections.append(deciding.rejection(failed, self.cache.nodes))
        plugins = self.runtime.reject(diagnosis) | ({deciding.EXTENDER} if failed else set())
        rejection = Rejection(self.unit, self.unit.pod, diagnosis.message(), plugins)
        if not diagnosis.nodes.count:
            return replace(rejection, nominated_node_name="")
        steps = self.runtime.post_filter_steps(diagnosis)
        try:
            with self._in_time():
                proposal = next(steps)
            while True:
                left = await self._review(proposal.candidates)
                if not self._is_waiting():
                    return None
                with self._in_time():
                    proposal = steps.send(left)
        except StopIteration as end:
            return helped(rejection, *end.value)

    async def _review(self, candidates: Mapping[str, Victims]) -> Mapping[str, Victims] | Status:
        try:
            return await self.extenders.review(self.unit.pod, candidates, self.cache.nodes)
        except ExtenderError as error:
            return Status(Code.ERROR, (f"preemption: {error}",))

    def _filter(self) -> Filtered:
        with self._in_time():
            return find_feasible(self.unit.pod, self.runtime, self.cache, self.queue.nominations.by_node)

    def _in_time(self) -> AbstractContextManager[None]:
        return self.runtime.evaluator.within(Deadline(self.seconds))

    def _nodes(self, filtered: Filtered) -> dict[str, Node]:
        """The feasible nodes by name."""
        objects = (self.cache.nodes.objects[row] for row in np.flatnonzero(filtered.feasible))
        return {node.metadata.name: node for node in objects if node is not None}

    def _is_waiting(self) -> bool:
        unit = self.unit
        return self.queue.get(unit.uid) is unit and unit.uid not in self.cache.pods
