"""What follows from the result of a decision: for the queue, the cache, events, conditions and metrics. No I/O.

A decision ends in one of two ways. After a success the unit leaves the queue, and the metrics count it. After a
rejection, or when a binding has failed, the plugins release what they have reserved, the cache forgets the assumed
pod, and the unit goes back to the queue with the names of the plugins whose events may help it. What users see of this
is only recorded here; `reporting` writes it when no binding waits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

from msgspec.structs import replace

from gangline.api.hints import Action
from gangline.api.pod_group import PodGroup
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.deciding.scheduling import Decision, Rejection, give_back, rejection_of
from gangline.errors import GanglineError
from gangline.groups.keys import GPU_COUNT
from gangline.loop.watching import Cluster
from gangline.loop.workers import ProfileListener
from gangline.profile.recording import Condition, GroupCondition
from gangline.queueing.units import Place, Unit
from gangline.state.pods import PodInfo
from gangline.state.slots import nominate
from gangline.status import Status
from gangline.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


class Outcomes(ProfileListener):
    """Records the results of decisions."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._cache = cluster.cache
        self._queue = cluster.queue
        self._recorder = cluster.recorder
        self._clock = cluster.clock
        self._wake = cluster.wake
        self._metrics = metrics
        self._attempts = cache(metrics.attempts.series)

    # Pods

    def finished(self, decision: Decision, status: Status) -> None:
        """The binding cycle of a pod has ended."""
        if status.is_success:
            now = self._clock.monotonic()
            self._bound(decision, now)
            self._metrics.groups.pod_bound(now - decision.unit.added)
            self._queue.done(decision.unit)
            return
        lost = self._cache.has_lost_node(decision.pod.uid)
        self._give_back(decision)
        if decision.is_expected:
            nominate(decision.unit.pod.slot, decision.node)
        rejection = replace(rejection_of(decision.unit, status), has_lost_node=lost)
        self.rejected(rejection, decision.runtime.name)
        self._freed(decision.pod)

    def rejected(self, rejection: Rejection, profile: str) -> None:
        """A pod cannot be placed now."""
        unit, pod = rejection.unit, rejection.pod
        now = self._clock.monotonic()
        self._count(unit, rejection.is_error, profile, now)
        if self._queue.get(pod.uid) is not unit:
            return  # deleted meanwhile
        if pod.uid in self._cache.pods:
            self._queue.done(unit)  # bound by somebody else meanwhile
            return
        message, backoff = self._backed_off(rejection, profile)
        self._queue.requeue(
            unit, rejection.plugins, message, now, error=rejection.is_error, backoff=backoff, kind=rejection.kind
        )
        self._wake()
        if rejection.is_error:
            log.error("pod %s: %s", pod.key, message)
        nominated = rejection.nominated_node_name
        if nominated == pod.nominated_node_name:
            nominated = None
        self._tell(pod, message, rejection.is_error, nominated)

    # Profiles

    def passed(self, profile: str, is_passed: bool) -> None:
        """Pods of a profile of which too many bindings take long wait, and those of other profiles pass them."""
        self._queue.pass_by(profile, is_passed)
        if not is_passed:
            self._wake()

    def is_stuck(self, profile: str, message: str) -> None:
        """No pod of a profile can be bound now: the one that has been in the queue for longest is told why."""
        unit = next((unit for unit in self._queue if unit.scheduler_name == profile), None)
        if unit is not None:
            self._recorder.event(unit.pod, "Warning", "FailedScheduling", message)

    # Groups

    def group_finished(self, decision: GroupDecision, statuses: Sequence[Status], bound: bool) -> None:
        """The binding cycle of a group has ended: all members were bound, some, or, before the barrier, none."""
        unit, group, now = decision.unit, decision.group, self._clock.monotonic()
        runtime = decision.members[0].runtime
        failed = [
            (member, status)
            for member, status in zip(decision.members, statuses, strict=True)
            if not (bound and status.is_success)
        ]
        for member, status in zip(decision.members, statuses, strict=True):
            if bound and status.is_success:
                self._bound(member, now)
        lost = any(self._cache.has_lost_node(member.pod.uid) for member, _ in failed)
        for member, _ in failed:
            self._give_back(member)
        done = {member.pod.uid for member in decision.members} - {member.pod.uid for member, _ in failed}
        left = self._queue.leave(unit, done)
        if not failed:
            self._metrics.groups.bound(now - unit.added, recovered=not decision.is_whole)
            self._group_placed(group, len(decision.members))
            if left:
                why = decision.why_left or f"the pods of gang {group.namespace}/{group.name} that it needs are bound"
                self._requeue_group(GroupRejection(unit, why, frozenset(), group, is_running=True), runtime.name)
            return
        member, status = next(each for each in failed if not each[1].is_success)
        why = f"gang {group.namespace}/{group.name}: pod {member.pod.name}: {status.message}"
        rejected = rejection_of(unit, status)
        taken_back = {each.pod.uid: "" for each, _ in failed if each.is_expected or each.pod.nominated_node_name}
        rejection = GroupRejection(
            unit, why, rejected.plugins, group, taken_back, is_error=rejected.is_error, has_lost_node=lost
        )
        self._requeue_group(rejection, runtime.name)
        for each, _ in failed:
            self._freed(each.pod)

    def group_rejected(self, rejection: GroupRejection, profile: str) -> None:
        """A group cannot be placed now."""
        self._requeue_group(rejection, profile)

    def group_held(self, unit: Unit, group: PodGroup | None, message: str) -> None:
        """A group has been held for a while without being tried: the message says what is missing."""
        if unit.told != message:
            unit.told = message
            if GPU_COUNT in message:
                self._metrics.groups.invalid("invalid_gpu_requirements")
            self._group_waits(GroupRejection(unit, message, unit.rejected_by, group))
        for pod in unit.members:
            if not pod.gates and not _knows(pod, message):
                self._tell(pod, message, False, None)

    def _requeue_group(self, rejection: GroupRejection, profile: str) -> None:
        unit, now = rejection.unit, self._clock.monotonic()
        for pod in [pod for pod in unit.everybody() if pod.uid in self._cache.pods]:
            self._queue.remove(pod.uid)  # bound by somebody else meanwhile, or by us, though the answer was an error
        self._count(unit, rejection.is_error, profile, now)
        if unit.place is Place.GONE:
            return
        message, backoff = self._backed_off(rejection, profile)
        rejection = replace(rejection, message=message)
        self._queue.requeue(
            unit,
            rejection.plugins,
            rejection.message,
            now,
            error=rejection.is_error,
            retry_after=rejection.retry_after,
            backoff=backoff,
            kind=rejection.kind,
            lack=rejection.lack,
            alike=rejection.alike,
            is_incomplete=rejection.is_incomplete,
        )
        self._wake()
        if rejection.is_error:
            log.error("gang of pod %s: %s", unit.pod.key, rejection.message)
        self._group_waits(rejection)
        for pod in list(unit.members):
            nominated = rejection.nominated.get(pod.uid)
            if nominated is not None or not _knows(pod, rejection.message):
                self._tell(pod, rejection.message, rejection.is_error, nominated)

    def _group_placed(self, group: PodGroup, pods: int) -> None:
        if group.object is not None:
            note = f"Assigned {pods} pods of the group to nodes"
            self._recorder.about(group.object, "gangline", "Normal", "Scheduled", note, "Binding")
            self._recorder.group_condition(GroupCondition(group.object, True, "Scheduled", note))

    def _group_waits(self, rejection: GroupRejection) -> None:
        group = rejection.group
        if group is None or group.object is None:
            return
        reason = "SchedulerError" if rejection.is_error else "Unschedulable"
        self._recorder.about(group.object, "gangline", "Warning", "FailedScheduling", rejection.message, "Scheduling")
        if not rejection.is_running:
            self._recorder.group_condition(GroupCondition(group.object, False, reason, rejection.message))

    # Both

    def _backed_off(self, rejection: Rejection | GroupRejection, profile: str) -> tuple[str, float | None]:
        """The message of a rejection, and the backoff of its unit in seconds; None for the usual backoff."""
        if not rejection.is_late:
            return rejection.message, 0.0 if rejection.has_lost_node else None
        self._metrics.overruns.labels(profile).inc()
        seconds = self._queue.overrun(rejection.unit)
        return f"{rejection.message}: it is tried again in {seconds:g} s", seconds

    def _bound(self, decision: Decision, now: float) -> None:
        pod, unit, profile = decision.pod, decision.unit, decision.runtime.name
        self._cache.binding_ended(pod, now)
        self._attempted("scheduled", profile, now - unit.entered)
        self._metrics.sli.series(str(min(unit.attempts, 16))).observe(now - unit.added)
        self._recorder.event(
            pod, "Normal", "Scheduled", f"Successfully assigned {pod.key} to {decision.node}", "Binding"
        )

    def _give_back(self, decision: Decision) -> None:
        try:
            give_back(decision.runtime, self._cache, decision.cycle, decision.pod, decision.node)
        except GanglineError as error:
            log.error("pod %s: %s", decision.pod.key, error)

    def _freed(self, pod: PodInfo) -> None:
        """The resources of the pod are free again."""
        self._cluster.happened("pods", Action.DELETE, pod, None)

    def _count(self, unit: Unit, is_error: bool, profile: str, now: float) -> None:
        result = "error" if is_error else "unschedulable"
        self._attempted(result, profile, now - unit.entered)

    def _attempted(self, result: str, profile: str, seconds: float) -> None:
        self._attempts(result, profile).observe(seconds)

    def _tell(self, pod: PodInfo, message: str, is_error: bool, nominated: str | None) -> None:
        if nominated is not None:
            nominate(pod.slot, nominated)
            self._queue.nominations.nominate(pod, nominated)
        reason = "SchedulerError" if is_error else "Unschedulable"
        self._recorder.event(pod, "Warning", "FailedScheduling", message)
        self._recorder.condition(Condition(pod.namespace, pod.name, pod.uid, reason, message, nominated))


def _knows(pod: PodInfo, message: str) -> bool:
    """Whether the pod's status has this message already."""
    condition = pod.conditions.get("PodScheduled")
    return condition is not None and condition.message == message
