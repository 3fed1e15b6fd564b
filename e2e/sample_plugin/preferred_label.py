"""PreferredLabel: prefers nodes that have the label which an annotation of the pod names."""

from __future__ import annotations

import msgspec
import numpy as np

from gangline import NodeView, PodInfo, ScoreColumn, hookimpl


class Args(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of the plugin."""

    annotation: str = "example.com/prefers-label"
    """The pod's annotation; it holds the key of a node label."""


class PreferredLabel:
    """Scores 100 where the node has the label, else 0."""

    name = "PreferredLabel"
    args_type = Args

    def __init__(self, args: Args) -> None:
        self._annotation = args.annotation

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """All alike for a pod without the annotation."""
        label = pod.annotations.get(self._annotation)
        if label is None:
            return np.zeros(len(nodes))
        return np.where(nodes.label(label).exists, 100.0, 0.0)
