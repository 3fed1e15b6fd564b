"""One decision as a table: for each node the verdict of every filter, every score, and the total."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangline.profile.runtime import Runtime
from gangline.state.pods import PodInfo
from gangline.status import Code


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a filter plugin on a node that it rejects."""

    plugin: str
    code: Code
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The verdicts and scores of one node."""

    name: str
    rejections: tuple[Verdict, ...]
    """The verdicts of all plugins that reject the node, in the order of the calls; the first one decides."""
    narrowed: bool
    """Whether the first rejection comes from a pre-filter that has limited the nodes to others."""
    scores: dict[str, int]
    """Score per plugin, 0..100, before the weight; empty for a node that is not feasible or the only feasible one."""
    total: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """Why a pod goes to its node, or to none."""

    pod: str
    profile: str
    weights: dict[str, int]
    nodes: tuple[NodeReport, ...]
    message: str
    """The text of the FailedScheduling event; "" when a node is feasible."""
    held: str = ""
    """Why the scheduler does not try the pod: the plugin that keeps it out of the queue, and the plugin's reason. "" if
    the pod is tried."""

    @property
    def feasible(self) -> list[str]:
        """Names of the nodes that pass every filter."""
        return [node.name for node in self.nodes if not node.rejections]

    @property
    def best(self) -> list[str]:
        """The feasible nodes with the highest total; one of them is taken at random."""
        feasible = [node for node in self.nodes if not node.rejections]
        highest = max((node.total or 0 for node in feasible), default=0)
        return [node.name for node in feasible if (node.total or 0) == highest]

    def node(self, name: str) -> NodeReport | None:
        """The report of one node, or None."""
        return next((node for node in self.nodes if node.name == name), None)


def explain(runtime: Runtime, pod: PodInfo) -> Report:
    """Judge a pod in the cluster as it is now; nothing changes. Raises PluginError."""
    evaluator = runtime.evaluator
    filtered = evaluator.filter(pod)
    diagnosis = evaluator.diagnose(filtered)
    nodes = diagnosis.nodes
    count = int(np.count_nonzero(filtered.feasible))
    columns = evaluator.scores(filtered) if count > 1 else {}
    weights = {plugin: weight for plugin, weight in evaluator.weights().items() if plugin in columns}
    place = {int(row): i for i, row in enumerate(np.flatnonzero(filtered.feasible))}
    reports = []
    for i, name in enumerate(nodes.names):  # a report is read by a person: one line per node
        if not name:
            continue
        scores = {plugin: int(column[place[i]]) for plugin, column in columns.items()} if i in place else {}
        total = sum(weights[plugin] * score for plugin, score in scores.items()) if i in place else None
        narrowed = diagnosis.narrowed is not None and not diagnosis.narrowed[i]
        rejections = tuple(Verdict(*found) for found in diagnosis.all_of(i))
        reports.append(NodeReport(name, rejections, narrowed, scores, total))
    message = "" if count else diagnosis.message()
    admitted = runtime.pre_enqueue(pod)
    held = "" if admitted.is_success else f"{admitted.plugin}: {admitted.message}"
    return Report(pod.key, runtime.name, weights, tuple(reports), message, held)
