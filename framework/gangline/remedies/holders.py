"""Holders of room on the nodes that could end: pods on their own, and groups as a whole; columns over their pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gangline.api.pod_group import Membership, PodGroup
from gangline.groups.gpu_count import gpus_of
from gangline.remedies.trying import Trial
from gangline.state.node_view import Int64Column, Rows
from gangline.state.pods import PodInfo

_TIED = frozenset(("DaemonSet", "Node"))
"""Controllers whose pods belong to one particular node."""


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """A pod on its own, or all placed members of a group: a group that loses a member may have to start anew."""

    name: str
    """ "pod NAMESPACE/NAME" or "gang NAMESPACE/NAME"."""
    pods: Sequence[PodInfo]
    gpus: int
    priority: int
    """The highest priority among the pods; for a group, the priority of the group."""


class HolderColumns:
    """Columns over the pods of some holders: one value for each pod, with the pods of a holder next to each other."""

    def __init__(self, trial: Trial, holders: Sequence[Holder]) -> None:
        self.all = holders
        self.owners: Rows = np.repeat(np.arange(len(holders)), [len(each.pods) for each in holders])
        """By pod: the number of its holder."""
        pods = [pod for each in holders for pod in each.pods]
        self.rows: Rows = np.fromiter((pod.row for pod in pods), dtype=np.intp, count=len(pods))
        self.gpus: Int64Column = np.fromiter((gpus_of(pod, trial.cache) for pod in pods), np.int64, len(pods))
        held = np.bincount(self.rows, weights=self.gpus, minlength=trial.cache.nodes.size)
        self.held: Int64Column = held.astype(np.int64)
        """By node: the number of GPUs that these pods have on it."""


def holders_of(trial: Trial) -> list[Holder]:
    """All holders except the unit's own group, and pods that belong to their node."""
    alone: list[PodInfo] = []
    groups: dict[str, tuple[PodGroup, list[PodInfo]]] = {}
    own = "" if trial.group is None else trial.group.key
    for pod in trial.cache.pods.values():
        if pod.row < 0 or ((controller := pod.controller) is not None and controller.kind in _TIED):
            continue
        membership = trial.runtime.handle.group_of(pod)
        if membership is None:
            alone.append(pod)
        elif isinstance(membership, Membership) and membership.group.key != own:
            groups.setdefault(membership.group.key, (membership.group, []))[1].append(pod)
    found = [Holder(f"pod {pod.key}", (pod,), gpus_of(pod, trial.cache), pod.priority) for pod in alone]
    for group, pods in groups.values():
        highest = max(pod.priority for pod in pods) if group.priority is None else group.priority
        gpus = sum(gpus_of(pod, trial.cache) for pod in pods)
        found.append(Holder(f"gang {group.namespace}/{group.name}", pods, gpus, highest))
    return found
