"""The extension points, in the order in which they are called. No logic.

Names and meaning are kube-scheduler's. A plugin is a class, built once per profile as `Plugin(args, handle)`, that
marks methods with `@hookimpl`; a method may leave out arguments that it does not need. `nodes` is a `NodeView`:
arrays that a plugin returns have one entry per node of the view, `len(nodes)` of them. Arrays that it is given cannot
be written.

Every answer is checked for type, length and range. A wrong one, or an exception, is the plugin's failure: the pod or
gang is not placed and is tried again later, an event on it says why, and the log has the traceback.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import pluggy

from gangline.api.cycle_state import Cycle
from gangline.api.diagnosis import Diagnosis
from gangline.api.hints import EventHint
from gangline.api.placement import Placement
from gangline.api.pod_group import GroupAttempt
from gangline.api.proposal import Proposal
from gangline.state.nodes import Int64Column, NodeView
from gangline.state.pods import PodInfo
from gangline.status import CodeColumn, Narrow, ScoreColumn, Status

PROJECT = "gangline"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a method as the implementation of the extension point of its name."""


class Hooks:
    """Contracts; the runtime walks its own compiled lists of what implements them."""

    @hookspec
    def events_to_register(self) -> Sequence[EventHint]:  # type: ignore[empty-body]  # contract only
        """Which cluster events may make a pod schedulable that this plugin rejected. Called once, at load.

        A plugin without it is taken to want every event, which costs needless attempts.
        """

    @hookspec
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Whether a pod may enter the queue of what is tried. Called when a pod is added or changed; quick.

        None or SUCCESS lets it in; anything else holds it until the pod or, by hint, the cluster changes.
        """

    @hookspec
    def post_enqueue(self, pod: PodInfo) -> None:
        """A pod waits to be scheduled: it is new, or has changed. For plugins that count what is asked for.

        It is called again whenever the pod changes, so count by `pod.uid`.
        """

    @hookspec
    def queue_sort(self, pod: PodInfo, since: float) -> tuple[float, ...]:  # type: ignore[empty-body]  # contract only
        """The sort key of a pod: the smallest goes first. `since` is when it was queued, in seconds.

        Called once per attempt. Exactly one plugin, the same in all profiles. At most 16 numbers, and no NaN; a pod for
        which it fails goes last.
        """

    @hookspec
    def pre_cycle(self, pod: PodInfo) -> None:
        """A pod is about to be filtered, for an attempt or for what-if: bring up to date what verdicts are read from.

        Also called for each member of a group that is placed like others. Called before everything that is kept is
        read, so what it notes as changed counts.
        """

    @hookspec
    def pre_filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> Status | Narrow | None:
        """Prepare, reject the pod as a whole, narrow the nodes down, or SKIP this plugin's filter.

        Called once per attempt over all nodes; once per identity of pods for a plugin that declares `reads`.
        """

    @hookspec
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:  # type: ignore[empty-body]  # contract only
        """Unsigned integers: 0 where a node is feasible, k > 0 for `self.reasons[k - 1]`.

        A plugin with more reasons than it can list has `explain(cycle, pod, code) -> Sequence[Reason]` instead.
        Called over all nodes; a plugin that declares `reads` is called again only for nodes that changed.
        """

    @hookspec
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        """What this plugin reads of a pod beyond its class: of labels, annotations, or objects that they name; or None.

        Pods of one class of which every plugin says the same are alike: what holds for one holds for all. What plugins
        say that declare `reads` is kept for all pods that are alike to them; so they answer a value, equal whenever
        their verdicts would be. `annotations` are those of the pod and its owners, as of `handle.workload(pod)`.
        Called in each attempt, for each member of a group, so it has to be quick.
        """

    @hookspec
    def capacity(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> Int64Column | None:
        """At most how many pods like this one fit on each node beside each other; None where requests alone tell.

        For a plugin whose filter counts what requests do not tell of. Called after filter, for the members of groups
        only. Too much costs time; too little keeps groups out.
        """

    @hookspec
    def post_filter(
        self, cycle: Cycle, pod: PodInfo, nodes: NodeView, diagnosis: Diagnosis
    ) -> Status | str | Proposal | None:
        """Try to help a pod for which no node is feasible. Called only then, in order, until one succeeds.

        The name of a node nominates it; a Status explains why nothing helps; None has no opinion. Where
        `handle.preemption_is_reviewed(pod)`, a plugin that would remove pods answers a Proposal and removes none yet.
        """

    @hookspec
    def post_reject(self, pod: PodInfo, diagnosis: Diagnosis) -> bool | None:
        """The pod has been rejected, by whatever plugin. Called for a member of each kind of a group that was.

        True makes this plugin one of the reasons, so that its events wake the pod too.
        """

    @hookspec
    def pre_score(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> Status | None:
        """Prepare scores, or SKIP this plugin's. `cycle.feasible` says which nodes count.

        Once per identity, and without `cycle.feasible`, for a plugin that declares `reads`.
        """

    @hookspec
    def score(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> ScoreColumn:  # type: ignore[empty-body]  # contract only
        """float64, 0..100 where feasible (any range when the plugin has normalize_score); higher is better.

        The array of a plugin that declares `reads` belongs to the framework from then on.
        """

    @hookspec
    def normalize_score(self, cycle: Cycle, pod: PodInfo, scores: ScoreColumn) -> ScoreColumn:  # type: ignore[empty-body]  # contract only
        """Scores of the feasible nodes alone, to 0..100. Only of plugins that score."""

    @hookspec
    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Claim what the pod takes on the chosen node, in memory. A rejection undoes what was reserved."""

    @hookspec
    def unreserve(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """The pod does not go to the node after all: give back what reserve, permit or pre_bind took.

        Called in reverse order, for every plugin that has it, whatever had failed.
        """

    @hookspec
    def permit(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Allow, reject, or `wait(seconds)`, a finite number: the pod is held until `handle.waiting` lets it go."""

    @hookspec
    async def pre_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """What has to be done on the API before the pod is bound: locks, volumes. Async; may wait."""

    @hookspec
    async def bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Bind; SKIP lets the next plugin do it. Async."""

    @hookspec
    async def post_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """The pod is bound. Async; a failure is only logged."""

    @hookspec
    def placement_generate(self, attempt: GroupAttempt, nodes: NodeView) -> Iterable[Placement] | Status | None:
        """Sets of nodes among which a pod group could be placed as a whole, those to be tried first in lower tiers.

        Called once per attempt of a group, in order, until a plugin answers; None has no opinion, and a Status says why
        there is no such set. A generator is read no further than needed. Without any answer all nodes are one set. Rows
        are numbers of nodes, each once; more than 16 sets for each node, and 4096, are too many.
        """

    @hookspec
    def placement_score(self, attempt: GroupAttempt, placement: Placement, nodes: NodeView) -> float:  # type: ignore[empty-body]  # contract only
        """How good a placement of a whole group is, 0..100. Called for each placement of a tier that has the room."""

    @hookspec
    def pod_group_post_filter(self, attempt: GroupAttempt, nodes: NodeView) -> Status | Mapping[str, str] | None:
        """Try to help a pod group that has no placement. Called only then, in order, until one succeeds.

        Pod UID to the node that is being made room on nominates them; a Status explains why nothing helps.
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
"""The points that a profile lists plugins for."""
UNLISTED = ("pre_cycle", "post_enqueue", "post_reject", "unreserve")
"""The points at which every plugin of a profile is called that has a method for them."""
