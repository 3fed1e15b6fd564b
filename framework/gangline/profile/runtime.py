"""One profile at work: calls its plugins at each extension point that concerns one pod or one group.

The scheduler knows profiles only as a `Runtime`. It has one method for each extension point, which calls the plugins of
the point in their order and makes one answer from theirs: the first rejection, the first nomination, a sum. Filters and
scores over all nodes are in `evaluation`, reserve and permit in `reserve_points`, the points of a binding in
`binding_points`.

The calls are compiled already (`compiling`): they measure, check and translate exceptions. So the loops here are plain,
and a plugin's fault reaches the caller as a PluginError. For the pods of large groups there are variants that do not
measure each call.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Generator, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, suppress

import numpy as np

from gangline.api.cycle_state import Cycle
from gangline.api.diagnosis import Diagnosis
from gangline.api.placement import Placement
from gangline.api.pod_group import GroupAttempt, Membership, PodGroup, Problem
from gangline.api.proposal import Proposal, Victims
from gangline.errors import DeadlineExceeded, PluginError
from gangline.failures import cause_of, shown
from gangline.groups.progress import Progress
from gangline.profile.answers import narrowed, placements_of
from gangline.profile.binding_points import BindFirst, by
from gangline.profile.conceding import conceded, may_help
from gangline.profile.entries import Filtered
from gangline.profile.evaluation import Evaluator
from gangline.profile.handle import FrameworkHandle
from gangline.profile.implementations import CompiledProfile, Implementation
from gangline.profile.measuring import measured
from gangline.profile.reserve_points import ReservePoints
from gangline.profile.scoring import Chosen
from gangline.state.pods import PodInfo
from gangline.state.topology import Topology
from gangline.status import SUCCESS, Code, ScoreColumn, Status, unschedulable
from gangline.telemetry.metrics import Metrics

GROUPS = "PodGroups"
"""Stands for a group as a whole among the names of the plugins that reject a unit."""


class Runtime(ReservePoints):
    """A profile, its evaluator and its handle."""

    def __init__(
        self,
        profile: CompiledProfile,
        handle: FrameworkHandle,
        metrics: Metrics,
        ties: random.Random | None,
        bind_first: BindFirst | None = None,
    ) -> None:
        """`bind_first` is called before the bind plugins; None leaves all pods to them."""
        super().__init__(profile, handle, metrics, bind_first)
        self.name = profile.name
        self.evaluator = Evaluator(profile, handle.state.nodes, ties, workload=handle.workload)
        self._trackers = handle.state.trackers
        self.algorithm_seconds = metrics.algorithm.series(profile.name)
        self.group_seconds = metrics.group_decision.series(profile.name)
        handle.plugins_are_built(self)

    @measured("filter")
    def filter(self, pod: PodInfo) -> Filtered:
        """Which nodes are feasible now, pre-filters included. Raises PluginError."""
        if self._trackers.broken:
            self._check_trackers()
        return self.evaluator.filter(pod)

    def decide_again(self, pod: PodInfo) -> tuple[Cycle, Chosen] | None:
        """As `filter` and `choose`, for a pod that is decided as the one before. None if a full attempt is needed.

        Raises PluginError.
        """
        if self._trackers.broken:
            return None
        start = time.perf_counter()
        try:
            found = self.evaluator.again(pod)
        except BaseException:  # it fails the attempt as in `filter`, and is measured as there
            self.seconds["filter"].observe(time.perf_counter() - start)
            raise
        if found is None:
            return None
        filtered = time.perf_counter()
        cycle, last = found
        chosen = self.evaluator.choose_again(last)
        self.seconds["filter"].observe(filtered - start)
        self.seconds["score"].observe(time.perf_counter() - filtered)
        return cycle, chosen

    def _check_trackers(self) -> None:
        """Raise PluginError if a tracker of a plugin is out of step and could not be repaired."""
        self.handle.state.mend_trackers()
        fault = self._trackers.fault(self.profile.plugins)
        if fault is not None:
            raise fault

    @measured("score")
    def choose(self, filtered: Filtered, bonus: ScoreColumn | None = None) -> int:
        """The row of the best feasible node; `bonus` is added to the scores of all rows."""
        return self.evaluator.choose(filtered, bonus)

    @measured("pre_enqueue")
    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Whether the pod may be tried; the first rejection counts."""
        return self.lets_in(pod, is_timed=True)

    def lets_in(self, pod: PodInfo, is_timed: bool = False) -> Status:
        """As `pre_enqueue`, for one of many pods."""
        for impl in self._at("pre_enqueue"):
            try:
                status = impl.call(pod) if is_timed else impl.quick(pod)
                if status is not None:
                    impl.check(status)
            except BaseException as error:  # a fault holds this pod, and must not end the watch that brought the pod
                why = str(self.failures.raised(impl.name, "pre_enqueue", error))
                self.handle.recorder.event(pod, "Warning", "FailedScheduling", why)
                return Status(Code.ERROR, (why,), impl.name)
            if status is not None and not status.is_success:
                return by(status, impl.name)
        return SUCCESS

    def held(self, pods: Sequence[PodInfo]) -> dict[str, Status]:
        """The pods, by UID, that may not be tried, and why: as `pre_enqueue` for each, without timing."""
        held = dict[str, Status]()
        for impl in self._at("pre_enqueue"):
            quick = impl.quick
            for pod in pods:
                if held and pod.uid in held:
                    continue
                try:
                    if quick(pod) is None:
                        continue
                except BaseException:  # `lets_in` asks again and says whose fault it is
                    pass
                status = self.lets_in(pod)
                if not status.is_success:
                    held[pod.uid] = status
        return held

    def admit(self, pods: Sequence[PodInfo]) -> Status:
        """Whether a unit may be tried: a pod that every plugin lets in, or enough such members of a group."""
        membership = self.handle.group_of(pods[0])
        if membership is None:
            return self.pre_enqueue(pods[0])
        if isinstance(membership, Problem):
            return unschedulable(membership.message).by(GROUPS)
        group = membership.group
        progress = self.progress(group, len(pods))
        held: list[Status] = []
        if progress.may_start:
            held = list(self.held(pods).values())
            progress = progress.with_waiting(len(pods) - len(held))
        if progress.may_start:
            return SUCCESS
        numbers = f"{progress.there} of {progress.least} are there"
        why = f"waiting for the pods of gang {group.namespace}/{group.name}: {numbers}"
        code = Code.ERROR if any(status.code is Code.ERROR for status in held) else Code.UNSCHEDULABLE
        return Status(code, (why,), GROUPS, held_by=frozenset(status.plugin for status in held))

    def progress(self, group: PodGroup, waiting: int = 0) -> Progress:
        """The progress of a group with this many waiting members."""
        return Progress.of(group, len(self.handle.members(group.key)), waiting)

    def group_key(self, pod: PodInfo) -> str:
        """The key of the pod's group; "" for a pod on its own."""
        membership = self.handle.group_of(pod)
        if membership is None:
            return ""
        return membership.key if isinstance(membership, Problem) else membership.group.key

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, ...]:
        """The pod's sort key in the queue; groups that run only in part, and so do no useful work, come first."""
        try:
            key: tuple[float, ...] = self._at("queue_sort")[0].call(pod, since)
        except PluginError as error:  # the pod goes to the end, and nobody else is harmed
            self.handle.recorder.event(pod, "Warning", "FailedScheduling", str(error))
            key = (math.inf, since)
        return (-math.inf, *key) if self._runs_in_part(pod) else key

    def _runs_in_part(self, pod: PodInfo) -> bool:
        """Whether some pods of the group have a node, but fewer than it needs, as after a scheduler was interrupted."""
        membership = self.handle.group_of(pod)
        return isinstance(membership, Membership) and self.progress(membership.group).is_partial

    @measured("post_filter")
    def post_filter(self, diagnosis: Diagnosis) -> tuple[str | None, str]:
        """The node that a plugin nominates, and the plugins' messages.

        "" takes an older nomination back, because nothing can help; None leaves it unchanged.
        """
        steps = self.post_filter_steps(diagnosis)
        try:
            proposal = next(steps)
            while True:
                proposal = steps.send(proposal.candidates)
        except StopIteration as end:
            answer: tuple[str | None, str] = end.value
            return answer

    def post_filter_steps(
        self, diagnosis: Diagnosis
    ) -> Generator[Proposal, Mapping[str, Victims] | Status, tuple[str | None, str]]:
        """As `post_filter`, for callers that let extenders review proposals.

        Yields each proposal and receives what is left of it; a Status stands for a review that failed.
        """
        said: list[str] = []
        nominated: str | None = None if self._at("post_filter") else ""
        for impl in self._at("post_filter"):
            answer = impl.call(diagnosis.cycle, diagnosis.pod, diagnosis.nodes, diagnosis)
            if isinstance(answer, Proposal):
                answer = _settled(impl, answer, (yield answer))
            elif isinstance(answer, str) and self.handle.state.nodes.row_of(answer) is None:
                raise impl.refused("post_filter", f"nominates a node that is not there: {shown(answer)}")
            if isinstance(answer, str):
                return answer, ", ".join(said)
            if answer is None:
                continue
            if answer.message:
                said.append(answer.message)
            if answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                nominated = ""
        return nominated, ", ".join(said)

    def reject(self, diagnosis: Diagnosis, known: Set[str] | None = None) -> frozenset[str]:
        """The plugins that reject the pod. Every `post_reject` plugin is called; an exception there changes nothing.

        `known` are the plugins whose verdicts reject it, if the caller knows them already.
        """
        plugins = diagnosis.plugins() if known is None else set(known)
        for impl in self._at("post_reject"):
            try:  # a block of `suppress` takes longer than the call
                if impl.call(diagnosis.pod, diagnosis):
                    plugins.add(impl.name)
            except (PluginError, DeadlineExceeded):  # noted by the call
                continue
        return frozenset(plugins)

    def enqueued(self, pod: PodInfo) -> None:
        """Call `post_enqueue` for a waiting pod; an exception there does not affect the pod."""
        for impl in self._at("post_enqueue"):
            with suppress(PluginError, DeadlineExceeded):  # noted by the call
                impl.call(pod)

    # Groups

    @property
    def topology(self) -> Topology:
        """The levels of this profile."""
        return self.handle.topology

    @measured("placement_generate")
    def generate(self, attempt: GroupAttempt) -> Iterable[Placement] | Status:
        """Candidate placements from the first plugin that offers any; else all nodes are one placement."""
        view = self.handle.nodes
        for impl in self._at("placement_generate"):
            answer: Iterable[Placement] | Status | None = impl.call(attempt, view)
            if isinstance(answer, Status):
                return by(answer, impl.name)
            if answer is not None:
                return placements_of(impl, answer, self.handle.state.nodes.size)
        return (Placement("the cluster", np.flatnonzero(view.alive)),)

    def narrowed(self, attempt: GroupAttempt, placement: Placement) -> Generator[Placement, None, None]:
        """The parts of a placement on which to try the group, from the first plugin that answers; else the placement.

        While a part is tried, the plugin may have something set up for the members. Raises PluginError.
        """
        return narrowed(self._at("placement_narrow"), attempt, placement, self.handle.nodes)

    @measured("placement_score")
    def score_placements(self, attempt: GroupAttempt, placements: Sequence[Placement]) -> list[float]:
        """The weighted scores of each placement. Raises PluginError and DeadlineExceeded."""
        impls, view, check = self._at("placement_score"), self.handle.nodes, self.evaluator.deadline.check
        scores = []
        for placement in placements:
            check()
            scores.append(sum([impl.weight * float(impl.call(attempt, placement, view)) for impl in impls], start=0.0))
        return scores

    @property
    def placement_weight(self) -> int:
        """The sum of the weights of the plugins that score placements."""
        return sum(impl.weight for impl in self._at("placement_score"))

    def conceded(self, attempt: GroupAttempt) -> AbstractContextManager[bool]:
        """In this block plugins make do with less for the members; yields whether some do. Raises PluginError."""
        return conceded(self._at("pod_group_concede"), attempt)

    def may_help(self, attempt: GroupAttempt) -> bool:
        """Whether a plugin may help a group for which the whole cluster has too little room."""
        return may_help(self.profile, attempt)

    @measured("pod_group_post_filter")
    def group_post_filter(self, attempt: GroupAttempt) -> tuple[Mapping[str, str], str]:
        """The nominations of the first plugin that can help, by pod UID, and the plugins' messages.

        "" takes older nominations back, because nothing can help.
        """
        said: list[str] = []
        is_hopeless = False
        for impl in self._at("pod_group_post_filter"):
            answer = impl.call(attempt, self.handle.nodes)
            if isinstance(answer, Status):
                said.append(answer.message)
                is_hopeless = is_hopeless or answer.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            elif answer:
                return answer, ", ".join(said)
        waiting = attempt.pods if is_hopeless else ()
        given_up = {pod.uid: "" for pod in waiting if pod.row < 0 and pod.nominated_node_name}
        return given_up, "; ".join(each.rstrip(".") for each in said if each)


def first_grouping(runtimes: Iterable[Runtime]) -> Runtime | None:
    """The first profile that makes the pods of a gang one unit; None if no profile does."""
    return next((each for each in runtimes if each.handle.groups_pods), None)


def _settled(impl: Implementation, proposal: Proposal, reviewed: Mapping[str, Victims] | Status) -> Status | str | None:
    if isinstance(reviewed, Status):
        return reviewed
    try:
        answer = proposal.settle(reviewed)
    except BaseException as error:  # a plugin's bug fails its pod, not the scheduler
        raise impl.failures.raised(impl.name, "post_filter", error) from cause_of(error)
    if isinstance(answer, Proposal):
        raise impl.refused("post_filter", "must settle a proposal with a Status or the name of a node")
    impl.check(answer)
    return answer
