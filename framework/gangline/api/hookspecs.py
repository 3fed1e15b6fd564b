"""The extension points, in the order in which they are called. This module has no logic.

Names and meaning are kube-scheduler's. A plugin is a class. Each profile builds it once; the constructor is given the
parameters `args` and `handle` if it has parameters of these names. The class marks methods with `@hookimpl`, and these,
too, are given only the arguments that they name. `nodes` is a `NodeView`: an array that a plugin returns has one entry
per node of the view, `len(nodes)` in all. A plugin cannot write to the arrays that it is given.

The framework checks every answer for type, length and range. A wrong answer, or an exception, is a failure of the
plugin: the pod or gang is not placed and is tried again later, an event on it says why, and the log has the traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import pluggy

from gangline.api.cycle_state import Cycle
from gangline.api.diagnosis import Diagnosis
from gangline.api.hints import EventHint
from gangline.api.placement import Placement
from gangline.api.pod_group import GroupAttempt
from gangline.api.proposal import Proposal
from gangline.state.node_view import Int64Column, NodeView, Rows
from gangline.state.pods import PodInfo
from gangline.status import CodeColumn, Narrow, ScoreColumn, Status

PROJECT = "gangline"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a method as an implementation of the extension point with the same name."""


class Hooks:
    """The contracts of the extension points; the runtime calls the plugins by lists that it compiles itself."""

    @hookspec
    def events_to_register(self) -> Sequence[EventHint]:  # type: ignore[empty-body]  # contract only
        """Which cluster events may make a pod schedulable that this plugin rejected. Called once, at load.

        For a plugin without this method every event counts, which costs needless attempts.
        """

    @hookspec
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Whether a pod may enter the queue. Called when a pod is added or changed; must be quick.

        None or SUCCESS lets the pod in. Any other answer holds the pod until the pod changes, or a cluster event comes
        that the plugin has registered and its hint agrees to.
        """

    @hookspec
    def post_enqueue(self, pod: PodInfo) -> None:
        """A pod waits to be scheduled: it is new, or has changed. For plugins that count what pods ask for.

        It is called again whenever the pod changes, so count by `pod.uid`.
        """

    @hookspec
    def queue_sort(self, pod: PodInfo, since: float) -> tuple[float, ...]:  # type: ignore[empty-body]  # contract only
        """The sort key of a pod: the smallest key goes first. `since` is when the pod was queued, in seconds.

        Called once per attempt. Exactly one plugin has this hook, the same one in all profiles. A key has at most 16
        numbers, none of them NaN. A pod for which the plugin fails goes last.
        """

    @hookspec
    def pre_cycle(self, pod: PodInfo) -> None:
        """A pod is about to be filtered, for an attempt or for what-if: update the columns that verdicts are read from.

        A method with the parameter `pod` is also called for each member of a group that is placed like another member;
        a method without this parameter is called only for that other member. Called before any kept verdict is read, so
        changes that the plugin notes here count for this pod.
        """

    @hookspec
    def pre_cycle_all(self, pods: Sequence[PodInfo]) -> None:
        """As `pre_cycle` for each of these members of a group, which are placed like another member. Optional.

        For plugins that need less time for many members at once. Without this hook `pre_cycle` is called for each.
        """

    @hookspec
    def pre_filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> Status | Narrow | None:
        """Prepare, reject the pod as a whole, narrow the nodes down, or SKIP this plugin's filter.

        Called once per attempt, over all nodes. For a plugin that declares `reads` it is called once per identity of
        pods.
        """

    @hookspec
    def skip_key(self, pod: PodInfo) -> Hashable:
        """What SKIP follows from, for a plugin that is called for each attempt. Optional; it saves calls.

        If this plugin answers SKIP to `pre_filter` and `pre_score` of a pod, it would answer SKIP for each pod with the
        same class, labels, annotations, owners and claims, as long as this hook answers an equal value for that pod.
        None promises nothing. Called in each attempt, after `pre_cycle`, so it has to be quick: a version of what is
        read, for example. A plugin that writes to the cycle although it answers SKIP is called for each attempt.
        """

    @hookspec
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:  # type: ignore[empty-body]  # contract only
        """Unsigned integers: 0 where a node is feasible, k > 0 for `self.reasons[k - 1]`.

        A plugin with more reasons than it can list has `explain(cycle, pod, code) -> Sequence[Reason]` instead. Called
        over all nodes. For a plugin that declares `reads` it is called again only for nodes that changed.
        """

    @hookspec
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        """A value for all that this plugin reads of a pod besides its class: labels, annotations, owners, and objects
        that the pod names, for example its claim. None stands for nothing.

        Pods of one class for which every plugin answers the same are alike: a result for one holds for all. The
        verdicts of plugins that declare `reads` are kept for all like pods. So such a plugin answers equal values only
        where its verdicts are equal, and the hints of its events read no more of a pod. `annotations` are those of the
        pod and its owners, as from `handle.workload(pod)`. Called in each attempt, for each member of a group, so it
        has to be quick.
        """

    @hookspec
    def identity_all(
        self, pods: Sequence[PodInfo], annotations: Sequence[Mapping[str, str]]
    ) -> Sequence[Hashable] | None:
        """As `identity` for each of these members of a group; None if the answer is None for all of them. Optional.

        For plugins that need less time for many members at once; without it `identity` is called for each.
        """

    @hookspec
    def capacity(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> Int64Column | None:
        """The greatest number of pods like this one that fit on each node together; None if requests alone decide.

        For a plugin whose filter counts something that requests do not show. Called after filter, only for members of
        groups. A number that is too high costs time; a number that is too low keeps groups out.
        """

    @hookspec
    def post_filter(
        self, cycle: Cycle, pod: PodInfo, nodes: NodeView, diagnosis: Diagnosis
    ) -> Status | str | Proposal | None:
        """Try to help a pod for which no node is feasible. Called only then, in order, until one plugin succeeds.

        The name of a node nominates the node. A Status explains why nothing helps. None means no opinion. If
        `handle.preemption_is_reviewed(pod)`, a plugin that would remove pods answers a Proposal and removes no pod yet.
        """

    @hookspec
    def post_reject(self, pod: PodInfo, diagnosis: Diagnosis) -> bool | None:
        """Some plugin has rejected the pod. For a rejected group it is called for one member of each kind.

        True makes this plugin one of the rejecting plugins, so that its events wake the pod too.
        """

    @hookspec
    def pre_score(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> Status | None:
        """Prepare scores, or SKIP this plugin's score. `cycle.feasible` says which nodes count.

        For a plugin that declares `reads` it is called once per identity, without `cycle.feasible`.
        """

    @hookspec
    def score(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> ScoreColumn:  # type: ignore[empty-body]  # contract only
        """float64, 0..100 where feasible (any range when the plugin has normalize_score); higher is better.

        If the plugin declares `reads`, the framework owns the returned array from then on.
        """

    @hookspec
    def normalize_score(self, cycle: Cycle, pod: PodInfo, scores: ScoreColumn) -> ScoreColumn:  # type: ignore[empty-body]  # contract only
        """Turn the scores of the feasible nodes into 0..100. Only for plugins that have `score`."""

    @hookspec
    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Reserve, in memory, what the pod takes on the chosen node. After a rejection the reservations are undone."""

    @hookspec
    def reserve_all(
        self, cycles: Sequence[Cycle], pods: Sequence[PodInfo], nodes: Sequence[str]
    ) -> Callable[[], None] | Status | None:
        """A function that does what `reserve` does for all of these pods; cycles and nodes are in the same order.

        Optional, for plugins that need less time for many members of a gang at once than for one after the other. The
        pods are members of one group, in the order in which `reserve` would be called. Answers: a function that does
        what `reserve` would do for each pod, and cannot fail; SKIP if `reserve` would do nothing for any of them; None
        if `reserve` has to be called for each pod, for example because it may reject one. This method itself reserves
        nothing: the functions are called after every plugin with `reserve` or `permit` has answered, and only if no
        plugin answered None. `unreserve` is called for each pod in any case.
        """

    @hookspec
    def unreserve(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """The pod does not go to the node after all: give back what reserve, permit or pre_bind took.

        Called in reverse order, for every plugin that has this hook, no matter which step failed.
        """

    @hookspec
    def permit(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Allow, reject, or `wait(seconds)`, a finite number: the pod is held until `handle.waiting` lets it go."""

    @hookspec
    def permit_all(
        self, cycles: Sequence[Cycle], pods: Sequence[PodInfo], nodes: Sequence[str]
    ) -> Callable[[], None] | Status | None:
        """As `reserve_all`, for `permit`: a function or SKIP allows all of these pods. Nothing is reserved yet."""

    @hookspec
    def pre_bind_pre_flight(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Whether `pre_bind` of this plugin will do something for the pod; must be quick, and do nothing yet.

        SKIP: `pre_bind` is not called for this pod. None or SUCCESS: the binding may take long. If it does, the
        scheduler writes the node to status.nominatedNodeName of the pod, for autoscalers and other schedulers to read;
        for the members of a gang at once. For a plugin without this method `pre_bind` is always called, and counts as
        quick.
        """

    @hookspec
    async def pre_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Do what is needed on the API before the pod is bound: locks, volumes. Async; may wait."""

    @hookspec
    async def bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Bind the pod; SKIP leaves it to the next plugin. Async."""

    @hookspec
    async def post_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """The pod is bound. Async; a failure is only logged.

        If very many bindings take long, calls that have not ended are cancelled, the oldest first. That is a failure.
        """

    @hookspec
    def placement_generate(self, attempt: GroupAttempt, nodes: NodeView) -> Iterable[Placement] | Status | None:
        """Sets of nodes among which a pod group could be placed as a whole; lower tiers are tried first.

        Called once per attempt of a group, in order, until a plugin answers. None means no opinion; a Status says why
        there is no such set. The framework reads a generator no further than needed. If no plugin answers, all nodes
        are one set. Rows are numbers of nodes, each at most once. A plugin may offer 4096 sets, or 16 for each node
        where that is more.
        """

    @hookspec
    def placement_score(self, attempt: GroupAttempt, placement: Placement, nodes: NodeView) -> float:  # type: ignore[empty-body]  # contract only
        """How good a placement of a whole group is, 0..100. Called for each placement of a tier that has the room."""

    @hookspec
    def placement_narrow(self, attempt: GroupAttempt, placement: Placement, nodes: NodeView) -> Iterable[Rows] | None:
        """Smaller sets of nodes within a placement, for members that share something that some of its nodes cannot use.

        For example a claim with devices that only some nodes reach. Called for each placement before it is tried, until
        a plugin answers. The group is tried on each of these sets in turn; on the whole placement if there are none.
        None means no opinion. While a set is tried, the plugin's generator is suspended at the `yield` of the set. So
        the plugin can set something up for the members before the `yield`, and undo it when the generator goes on or is
        closed. Other pods are decided meanwhile.
        """

    @hookspec
    def pod_group_concede(self, attempt: GroupAttempt) -> AbstractContextManager[None] | None:
        """No placement holds the group as its members prefer. Called only then, for every plugin with this hook.

        A plugin that can make do with less for the members, for example with later alternatives of their claims,
        answers with a context manager. The group is tried once more within its block. Other pods are decided meanwhile,
        so the plugin must make do with less for these members only. None means that the plugin has nothing to concede.
        """

    @hookspec
    def pod_group_key(self, attempt: GroupAttempt) -> Hashable:
        """What these hooks of this plugin follow from: `pod_group_concede`, `pod_group_post_filter`,
        `placement_generate` and `placement_narrow`. Optional; it saves attempts.

        If the plugin could not help a group, it cannot help any group of like members for which this hook answers an
        equal value, as long as the cluster is the same; nor does it offer such a group other placements. Groups are
        compared only if they need as many members, of the same classes, with the same topology, strategy and priority.
        None promises nothing. Called after these hooks for a group that has no room in the whole cluster. A subclass
        that changes one of these hooks has to define this hook as well.
        """

    @hookspec
    def pod_group_can_help(self, attempt: GroupAttempt) -> bool:  # type: ignore[empty-body]  # contract only
        """Whether `pod_group_concede` or `pod_group_post_filter` of this plugin may help the group now, or do anything
        else that matters. Optional; it saves attempts.

        Asked about a group that was rejected before, when pods have gone and the whole cluster still has too little
        room for the group. If all plugins with one of these hooks answer False, the group goes on waiting without an
        attempt, so the answer has to be quick, and False has to be certain. A subclass that changes one of these hooks
        has to define this hook as well.
        """

    @hookspec
    def pod_group_post_filter(self, attempt: GroupAttempt, nodes: NodeView) -> Status | Mapping[str, str] | None:
        """Try to help a pod group that has no placement. Called only then, in order, until one plugin succeeds.

        A mapping nominates nodes: pod UID to the node on which the plugin makes room. A Status explains why nothing
        helps; one that is not resolvable takes the nominations of the waiting members back, if no later plugin helps.
        """


POINTS = (
    "pre_enqueue",
    "queue_sort",
    "pre_filter",
    "filter",
    "post_filter",
    "pre_score",
    "score",
    "reserve",
    "permit",
    "pre_bind",
    "bind",
    "post_bind",
    "placement_generate",
    "placement_score",
    "pod_group_post_filter",
)
"""The extension points for which a profile lists plugins."""
UNLISTED = (
    "pre_cycle",
    "post_enqueue",
    "post_reject",
    "unreserve",
    "pre_bind_pre_flight",
    "placement_narrow",
    "pod_group_concede",
)
"""The extension points at which every plugin of a profile is called that has the method."""
