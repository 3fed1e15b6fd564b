"""Which nodes count as dead because they have been silent for long, and the members that are being removed there.

A node that is not ready may still run pods that nobody can see, so Kubernetes keeps its pods, being deleted, until the
node answers. A StatefulSet creates no pod under the name of such a pod, and a Job with a pod failure policy waits until
the pod has ended. Where a profile says after how long a silent node is certainly off (`deadAfterSeconds`), these pods
are removed as those of deleted nodes are: marked as failed, and deleted without the node's word.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from functools import partial

from gangline import GanglineError, Handle, PodInfo
from gangline_plugins.memberships import group_of
from gangline_plugins.recovery.carrying_out import Removing
from gangline_plugins.recovery.losses import Loss
from gangline_plugins.recovery.policies import RecoveryPolicy, policy_of
from gangline_plugins.recovery.telling import RecoveryNotices

log = logging.getLogger(__name__)


def with_silent(losses: Mapping[str, Loss], now: float, after: float) -> Mapping[str, Loss]:
    """The losses by node, where nodes that are silent for `after` seconds count as dead; for 0, none of them does."""
    if not after:
        return losses
    why = f"for {after:g} s, so it counts as dead"
    return {
        name: loss
        if not loss.is_silent or now < loss.since + after
        else replace(loss, why=f"{loss.why} {why}", is_dead=True)
        for name, loss in losses.items()
    }


class StillDead(Container[str]):
    """A container of node names that judges anew at each question: it contains those of its nodes that are dead now.

    A recovery takes minutes if budgets hold up evictions, and a node that is back meanwhile may run its pods.
    """

    def __init__(self, nodes: Collection[str], losses: Callable[[], Mapping[str, Loss]]) -> None:
        """`losses` gives the lost nodes by name."""
        self._nodes = nodes
        self._losses = losses

    def __contains__(self, node: object) -> bool:
        if node not in self._nodes:
            return False
        loss = self._losses().get(str(node))
        return loss is not None and loss.is_dead


class Forcing:
    """Deletes once more, without the node's word, members that were being deleted when their node died."""

    def __init__(self, handle: Handle, removing: Removing, notices: RecoveryNotices) -> None:
        self._handle = handle
        self._removing = removing
        self._notices = notices
        self._forced: set[str] = set()
        """The UIDs of the pods that were deleted once more, or are being deleted so now."""

    def look(self, lost: Iterable[tuple[PodInfo, Loss]]) -> None:
        """Delete once more those of these pods whose nodes are dead and that are being deleted already."""
        for pod, loss in lost:
            if loss.is_dead and pod.terminating and pod.uid not in self._forced and self._is_ours(pod):
                self._forced.add(pod.uid)
                self._handle.spawn(partial(self._force, pod, loss))
        self._forced.intersection_update(self._handle.state.pods)

    def _is_ours(self, pod: PodInfo) -> bool:
        """Whether the pod is a member of a gang that this profile recovers, whoever deletes it."""
        is_member = pod.scheduler_name == self._handle.profile and group_of(self._handle, pod) is not None
        return is_member and policy_of(self._handle, pod) is not RecoveryPolicy.NONE

    async def _force(self, pod: PodInfo, loss: Loss) -> None:
        try:
            await self._removing.carry_out([pod], (loss.node,), (), loss.why)
        except GanglineError as error:
            self._forced.discard(pod.uid)  # the next round tries it again
            log.error("pod %s: %s", pod.key, error)
        else:
            self._notices.forced(pod, f"{loss.why}; the pod is deleted without the node's word")
