"""What extenders' answers mean: which pods an extender manages, which nodes are left, and what its scores add.

No I/O. Names are turned into rows as late as possible, because nodes may come and go while an extender answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from gangline.api.diagnosis import RejectedNodes
from gangline.api.proposal import Victims
from gangline.config import Extender
from gangline.errors import ExtenderError
from gangline.extenders.wire import ExtenderFilterResult, HostPriority, ReturnedVictims
from gangline.state.nodes import Nodes
from gangline.state.pods import PodInfo
from gangline.status import MAX_SCORE, BoolColumn, Reason, ScoreColumn

EXTENDER = "Extender"
"""Stands for all extenders among the plugins that reject a pod; for it, every cluster event counts."""
MAX_PRIORITY = 10
"""The best score that an extender can give."""


def in_order(extenders: Iterable[Extender]) -> list[tuple[int, Extender]]:
    """The extenders in the order of the calls, each with its position in the file: ignorable extenders come last."""
    return sorted(enumerate(extenders), key=lambda each: each[1].ignorable)


def looks_after(extender: Extender, pod: PodInfo) -> bool:
    """Whether the pod requests a resource that the extender manages, or the extender manages all pods."""
    managed = {resource.name for resource in extender.managed_resources}
    return not managed or not managed.isdisjoint(_asked_for(pod))


def _asked_for(pod: PodInfo) -> Iterator[str]:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.resources is not None:
            yield from container.resources.requests or ()
            yield from container.resources.limits or ()


# Filtering


class Verdicts(msgspec.Struct, frozen=True, eq=False):
    """The nodes that extenders leave, in order, and why the other nodes were rejected."""

    passed: Sequence[str]
    failed: Mapping[str, Reason]

    def after(self, extender: Extender, answer: ExtenderFilterResult) -> Verdicts:
        """The verdicts after the answer of one more extender about the nodes that had passed. Raises ExtenderError."""
        url, verb = extender.url_prefix, extender.filter_verb
        if answer.error:
            raise ExtenderError(url, verb, answer.error)
        asked, left = set(self.passed), answer.names(by_name=extender.node_cache_capable)
        for name in left:
            if name not in asked:
                why = f'claims a filtered node "{name}" which is not found in the input node list'
                raise ExtenderError(url, verb, why)
        silent = Reason(f"node(s) were left out by extender {url}", resolvable=False)
        failed = {name: silent for name in asked.difference(left)}
        failed |= {name: Reason(why) for name, why in answer.failed_nodes.items() if name in failed}
        unresolvable = answer.failed_and_unresolvable_nodes
        failed |= {name: Reason(why, resolvable=False) for name, why in unresolvable.items() if name in failed}
        return Verdicts(list(dict.fromkeys(left)), {**self.failed, **failed})


class _Reasons(msgspec.Struct, frozen=True):
    """Stands for a plugin in `RejectedNodes`, which asks it for the reasons."""

    reasons: Sequence[Reason]


def rejection(failed: Mapping[str, Reason], nodes: Nodes) -> RejectedNodes:
    """The nodes that extenders rejected, in the form of a filter plugin's rejections."""
    numbers = {reason: number for number, reason in enumerate(dict.fromkeys(failed.values()), start=1)}
    codes = np.zeros(nodes.size, dtype=np.uint32)
    for name, reason in failed.items():  # a loop over nodes: each may have words of its own
        row = nodes.row_of(name)
        if row is not None:
            codes[row] = numbers[reason]
    return RejectedNodes(EXTENDER, _Reasons(tuple(numbers)), codes)


def mask(names: Collection[str], nodes: Nodes) -> BoolColumn:
    """The nodes with these names that still exist."""
    found = np.zeros(nodes.size, dtype=np.bool_)
    found[[row for name in names if (row := nodes.row_of(name)) is not None]] = True
    return found


# Scoring


def weighted(extender: Extender, answer: Iterable[HostPriority]) -> dict[str, float]:
    """What one extender adds to the plugins' weighted scores, by node."""
    scale = extender.weight * MAX_SCORE / MAX_PRIORITY
    added: dict[str, float] = {}
    for each in answer:
        added[each.host] = added.get(each.host, 0.0) + each.score * scale
    return added


def bonus(added: Iterable[Mapping[str, float]], nodes: Nodes) -> ScoreColumn | None:
    """What all extenders add, by row; None if they add nothing."""
    column = np.zeros(nodes.size)
    for scores in added:
        for name, score in scores.items():  # a loop over nodes: they are named one by one
            row = nodes.row_of(name)
            if row is not None:
                column[row] += score
    return column if column.any() else None


# Preempting


def reviewed(extender: Extender, answer: Mapping[str, ReturnedVictims], nodes: Nodes) -> dict[str, Victims]:
    """The candidates that an extender leaves. Raises ExtenderError for one without victims, or with unknown ones.

    An ignorable extender may name no victims: the node is then no candidate.
    """
    left = {}
    for name, returned in answer.items():
        victims = Victims(_pods(extender, name, returned.uids, nodes), returned.violations)
        if victims.pods:
            left[name] = victims
        elif not extender.ignorable:
            why = f'expected at least one victim pod on node "{name}"'
            raise ExtenderError(extender.url_prefix, extender.preempt_verb, why)
    return left


def _pods(extender: Extender, name: str, uids: Iterable[str], nodes: Nodes) -> tuple[PodInfo, ...]:
    row = nodes.row_of(name)
    if row is None:
        raise ExtenderError(extender.url_prefix, extender.preempt_verb, f'node "{name}" is not known')
    on_node, pods = nodes.pods_on[row], []
    for uid in uids:
        if uid not in on_node:
            why = f"claims to preempt pod (UID: {uid}) on node: {name}, but the pod is not found on that node"
            raise ExtenderError(extender.url_prefix, extender.preempt_verb, why)
        pods.append(on_node[uid])
    return tuple(pods)
