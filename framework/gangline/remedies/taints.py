"""Remedies by tolerations: a taint that would not matter if the pods tolerated it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import msgspec
import numpy as np

from gangline import model
from gangline.remedies.nodes import is_condition
from gangline.remedies.remedy import Remedy, RemedyCost, RemedyKind
from gangline.remedies.rewriting import rewritten
from gangline.remedies.trying import Trial
from gangline.state.taints import TaintKey
from gangline.state.tolerations import untolerated

_MOST_TAINTS = 16
"""Taints that are tried, at most: those that most nodes have."""
_MOST_SHOWN = 3
"""Taints that are shown, at most."""


def tolerate_taint(trial: Trial) -> Iterator[Remedy]:
    """For each taint that is enough to tolerate: the toleration. Taints for faults of the node are left to `nodes`."""
    shown = 0
    for taint, nodes in _untolerated(trial).most_common(_MOST_TAINTS):
        toleration = model.Toleration(taint.key, "Equal" if taint.value else "Exists", taint.value, taint.effect)
        pods = rewritten(trial.pods, partial(_with, toleration), trial.cache)
        if pods is None or not trial.starts(pods):
            continue
        text = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        values = {"key": taint.key, "value": taint.value, "effect": taint.effect, "nodes": nodes}
        sentence = f"Let the pods tolerate the taint {text}, which {nodes} {_nodes(nodes)}."
        yield Remedy(RemedyKind.TOLERATE_TAINT, sentence, values, RemedyCost())
        shown += 1
        if shown == _MOST_SHOWN:
            return


def _nodes(number: int) -> str:
    return "node has" if number == 1 else "nodes have"


def _with(toleration: model.Toleration, spec: model.PodSpec) -> model.PodSpec:
    return msgspec.structs.replace(spec, tolerations=[*spec.tolerations, toleration])


def _untolerated(trial: Trial) -> Counter[TaintKey]:
    """The taints that the pods do not tolerate, each with the number of nodes that have it."""
    nodes = trial.cache.nodes
    alive = np.flatnonzero(nodes.alive[: nodes.size])
    numbers = np.bincount(nodes.taints[alive], minlength=len(nodes.taint_sets))
    found: Counter[TaintKey] = Counter()
    kinds = {pod.cls.id: pod.spec.tolerations for pod in trial.pods}
    for number in np.flatnonzero(numbers).tolist():
        for taint in nodes.taint_sets[number]:
            is_refused = any(untolerated((taint,), accepted) is not None for accepted in kinds.values())
            if is_refused and not is_condition(taint):
                found[taint] += int(numbers[number])
    return found
