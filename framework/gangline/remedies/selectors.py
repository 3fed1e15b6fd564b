"""Remedies by the nodes that pods require: a label or a node affinity that would not matter if it were preferred."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from gangline import model
from gangline.plurals import listed
from gangline.remedies.remedy import Remedy, RemedyCost, RemedyKind
from gangline.remedies.rewriting import rewritten
from gangline.remedies.trying import Trial

_MOST_LABELS = 16
"""Labels that are tried one by one, at most."""
_Labels = Mapping[str, str]


def prefer_nodes(trial: Trial) -> Iterator[Remedy]:
    """Each label of the nodeSelector, or the node affinity, that the pods need not require; if none is enough alone,
    all of them together.
    """
    specs = {pod.cls.id: pod.spec for pod in trial.pods}.values()
    labels = {key: value for spec in specs for key, value in (spec.node_selector or {}).items()}
    affinity = any(_required(spec) for spec in specs)
    singly: list[tuple[_Labels, bool]] = [({key: value}, False) for key, value in list(labels.items())[:_MOST_LABELS]]
    if affinity:
        singly.append(({}, True))
    found = [remedy for each in singly if (remedy := _tried(trial, *each)) is not None]
    if not found and len(singly) > 1 and (remedy := _tried(trial, labels, affinity)) is not None:
        found = [remedy]
    yield from found


def _tried(trial: Trial, labels: _Labels, affinity: bool) -> Remedy | None:
    pods = rewritten(trial.pods, partial(_without, labels, affinity), trial.cache)
    if pods is None or not trial.starts(pods):
        return None
    values = {"labels": dict(labels), "nodeAffinity": affinity}
    return Remedy(RemedyKind.PREFER_NODES, _sentence(trial, labels, affinity), values, RemedyCost())


def _sentence(trial: Trial, labels: _Labels, affinity: bool) -> str:
    named = [f"{key}={value}" for key, value in labels.items()]
    if not named:
        return "Prefer the nodes of the pods' node affinity instead of requiring them."
    more = " and the pods' node affinity" if affinity else ""
    word = "label" if len(named) == 1 else "labels"
    have = "" if more else f", which {_having(trial, labels)},"
    return f"Prefer nodes with the {word} {listed(named)}{more}{have} instead of requiring them."


def _having(trial: Trial, labels: _Labels) -> str:
    """How many nodes have the labels: for one remedy each node is looked at, because that creates no columns."""
    nodes = [each for each in trial.cache.nodes.objects if each is not None]
    number = sum(labels.items() <= (each.metadata.labels or {}).items() for each in nodes)
    return "no node has" if not number else "1 node has" if number == 1 else f"{number} nodes have"


def _required(spec: model.PodSpec) -> bool:
    """Whether there is a required node affinity that somebody could change: a pod of a DaemonSet has its node in it."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return required is not None and not any(term.match_fields for term in required.node_selector_terms)


def _without(labels: _Labels, affinity: bool, spec: model.PodSpec) -> model.PodSpec:
    left = {key: value for key, value in (spec.node_selector or {}).items() if labels.get(key) != value}
    spec = msgspec.structs.replace(spec, node_selector=left or None)
    whole = spec.affinity
    if not affinity or whole is None or whole.node_affinity is None or not _required(spec):
        return spec
    looser = msgspec.structs.replace(whole.node_affinity, required=None)
    return msgspec.structs.replace(spec, affinity=msgspec.structs.replace(whole, node_affinity=looser))
