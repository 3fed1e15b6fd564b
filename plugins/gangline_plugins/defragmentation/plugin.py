"""The plugin: keeps nodes free while pods are being moved and, if configured, moves pods itself at intervals.

Kubernetes cannot move a pod: the pod is evicted, and its controller creates a replacement. So only pods that a
controller replaces can be moved, and each move repeats the work done since the pod's last checkpoint. That work, in
GPU-seconds, is the cost of a move. Pods are moved in these steps:

1. `planning` makes a plan: which pods leave which nodes so that a waiting group fits, or so that whole domains have all
   their GPUs free. It tries the moves in a transaction, and drops a plan that is not worth its cost.
2. `applying` writes a record of the plan into the ConfigMap `gangline-moves`. The record says which nodes are kept for
   the group and on which node each replacement goes.
3. This plugin reads the record in every scheduler process. It keeps other pods off the kept nodes, and confirms in the
   ConfigMap that it does so. Nothing is evicted before, because other pods could take the room first.
4. `applying` evicts the pods batch by batch. This plugin lets each replacement go only to its planned node.
5. When all moves are done and the group has its nodes, or at the first deviation from the plan, `applying` deletes the
   ConfigMap. From then on the plugin keeps nothing. If the process that moves the pods dies, the record expires.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Hashable, Sequence

import numpy as np

from gangline import (
    GANG_SECONDS,
    SKIP,
    Action,
    CodeColumn,
    Deadline,
    EventHint,
    GanglineError,
    GroupAttempt,
    Handle,
    InvalidObject,
    Membership,
    NodeView,
    NotFound,
    PodInfo,
    Reason,
    Status,
    hookimpl,
    model,
    on,
    resources,
)
from gangline_plugins.defragmentation import record as records
from gangline_plugins.defragmentation.applying import Applying
from gangline_plugins.defragmentation.arguments import DefragmentationArgs
from gangline_plugins.defragmentation.holds import Holds
from gangline_plugins.defragmentation.plan import MovePlan
from gangline_plugins.defragmentation.planning import Planner
from gangline_plugins.defragmentation.record import CONFIG_MAP, HELD, Record, record_of
from gangline_plugins.memberships import key_of
from gangline_plugins.preemption.helping import is_helped

log = logging.getLogger(__name__)
_MOST_PLANS = 3
"""In one round, plans are made for at most this many groups, those that have waited longest."""
_MOST_DOUBLINGS = 6
"""The interval between two rounds doubles at most this many times, after rounds that failed."""


class Defragmentation:
    """Keeps nodes for replacements and for the waiting group while `gangline defrag apply` or the plugin itself moves
    pods.

    With `intervalSeconds` it plans for the groups that have waited longest, and carries out the first plan that moves
    pods.
    """

    name = "Defragmentation"
    args_type = DefragmentationArgs
    reasons = (
        Reason("node(s) were kept while pods are moved", resolvable=False),
        Reason("node(s) were not the one kept for the pod in place of a moved one", resolvable=False),
    )

    def __init__(self, args: DefragmentationArgs, handle: Handle) -> None:
        self._args = args
        self._handle = handle
        self._holds = handle.state.tracker(Holds)
        self._unanswered = asyncio.Event()
        self._waiting: dict[str, float] = {}
        """When each waiting group was first rejected, by the key of the group."""
        self._moves = handle.metric("scheduler_defragmentation_moves", "Pods evicted in the background to make room.")
        self.watches = (
            resources.Selection(resources.CONFIG_MAPS, args.namespace, field_selector=f"metadata.name={CONFIG_MAP}"),
        )
        handle.state.store(resources.CONFIG_MAPS).subscribe(self)
        handle.run(self._answer)
        if args.interval_seconds:
            handle.run(self._now_and_then)

    @property
    def planner(self) -> Planner:
        """A planner with this profile's arguments."""
        return Planner(self._handle, self._args)

    @property
    def args(self) -> DefragmentationArgs:
        """The arguments of this profile."""
        return self._args

    def record_of(self, plan: MovePlan) -> Record:
        """The record that is kept while a plan is carried out."""
        return record_of(plan, self._handle.nodes, uuid.uuid4().hex, 0.0)

    # The record

    def on_upsert(self, config_map: model.ConfigMap) -> None:
        """The record was written or renewed: keep the room that it names."""
        if not self._is_ours(config_map):
            return
        try:
            self._holds.take(records.read(config_map), self._handle.nodes)
        except InvalidObject as error:
            log.error("%s", error)
            return
        self._unanswered.set()

    def on_remove(self, config_map: model.ConfigMap) -> None:
        """The record was deleted: all moves are done, so keep nothing."""
        if self._is_ours(config_map):
            self._holds.drop()

    def _is_ours(self, config_map: model.ConfigMap) -> bool:
        meta = config_map.metadata
        return (meta.namespace, meta.name) == (self._args.namespace, CONFIG_MAP)

    async def _answer(self) -> None:
        """Write into the ConfigMap that this scheduler keeps the room, as soon as it does."""
        while True:
            await self._unanswered.wait()
            self._unanswered.clear()
            record = self._holds.record
            if record is not None and record.profile == self._handle.profile:
                try:
                    await self._say_held(record)
                except GanglineError as error:
                    log.error("ConfigMap %s/%s: %s", self._args.namespace, CONFIG_MAP, error)

    async def _say_held(self, record: Record) -> None:
        known: model.ConfigMap | None = self._handle.state.store(resources.CONFIG_MAPS).get(
            CONFIG_MAP, self._args.namespace
        )
        if known is None or records.held(known) == record.id:
            return
        patch = {"metadata": {"uid": known.metadata.uid}, "data": {HELD: record.id}}
        try:
            await self._handle.client.patch(resources.CONFIG_MAPS, CONFIG_MAP, patch, namespace=self._args.namespace)
        except NotFound:
            return

    # Hooks

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A changed or deleted record, or a deleted pod."""
        return (on("configmaps", Action.UPDATE | Action.DELETE), on("pods", Action.DELETE))

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Skip the filter while no pods are being moved."""
        return None if self._keeps else SKIP

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Reject nodes that are kept for other pods; for a replacement pod, reject all nodes but those kept for it."""
        kept, elsewhere = self._holds.kept(pod, key_of(self._handle, pod), nodes), self._holds.elsewhere(pod, nodes)
        verdicts: CodeColumn = np.where(kept, 1, np.where(elsewhere, 2, 0)).astype(np.uint8)
        return verdicts

    @hookimpl
    def identity(self, pod: PodInfo) -> Hashable:
        """Which of the kept room and nodes is kept for the pod; None while no pods are being moved."""
        return self._holds.read_of(pod, key_of(self._handle, pod)) if self._keeps else None

    @hookimpl
    def identity_all(self, pods: Sequence[PodInfo]) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        return list(map(self.identity, pods)) if self._keeps else None

    @property
    def _keeps(self) -> bool:
        """Whether room is kept. A record that nobody renews or deletes, as its program has died, counts no more."""
        return self._holds.until() >= self._handle.clock.now()

    @hookimpl
    def post_reject(self, pod: PodInfo) -> None:
        """Remember that the pod's group waits; the background work helps it later."""
        membership = self._handle.group_of(pod) if self._args.interval_seconds else None
        if isinstance(membership, Membership):
            self._waiting.setdefault(membership.group.key, self._handle.clock.monotonic())

    # In the background

    async def _now_and_then(self) -> None:
        failures = 0
        while True:
            await asyncio.sleep(self._args.interval_seconds * 2.0 ** min(failures, _MOST_DOUBLINGS))
            failures = failures + 1 if await self._has_to_stop() else 0

    async def _has_to_stop(self) -> bool:
        """One round: plan for the groups that have waited longest, and carry out the first plan. True if the round
        failed.
        """
        self._waiting = {key: since for key, since in self._waiting.items() if self._handle.is_queued(key)}
        for key in sorted(self._waiting, key=self._waiting.__getitem__)[:_MOST_PLANS]:
            attempt: GroupAttempt | None = None
            try:
                with self._handle.within(Deadline(GANG_SECONDS)):
                    attempt = self._handle.attempt(key)
                    if attempt is None or is_helped(self._handle, attempt):
                        continue
                    plan = self.planner.for_group(attempt)
                if plan.moves:
                    await self._carry_out(plan, attempt.first)
                    return False
            except GanglineError as error:
                log.error("defragmentation for %s: %s", key, error)
                if attempt is not None:
                    self._tell(attempt.first, "Warning", "DefragmentationStopped", str(error))
                return True
            await asyncio.sleep(0)
        return False

    async def _carry_out(self, plan: MovePlan, first: PodInfo) -> None:
        said = f"moving {len(plan.steps)} pods, {plan.cost:,.0f} GPU-seconds, to make room for {plan.goal}"
        log.info("defragmentation: %s", said)
        self._tell(first, "Normal", "Defragmenting", said)
        applying = Applying(self._handle.client, self._handle.clock, self._args, log.info)
        await applying.carry_out(plan, self.record_of(plan))
        self._moves.inc(len(plan.steps))

    def _tell(self, pod: PodInfo, kind: str, reason: str, note: str) -> None:
        self._handle.recorder.event(pod, kind, reason, note, action="Defragmenting")
