"""A cluster with configured domains, and what TopologyAnnotations says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gangline import GroupAttempt, Placement, PodGroup, Role, model
from gangline.testing import Cache, FakeHandle, Groups, Runtime, cluster, make_pod, make_runtime
from gangline_plugins.leaf_spine import LeafSpine
from gangline_plugins.leaf_spine.arguments import LeafSpineArgs
from gangline_plugins.leaf_spine.documents import Domain
from gangline_plugins.topology_annotations import TopologyAnnotations

LEAF, SPINE = "topology.gangline.dev/leaf", "topology.gangline.dev/spine"


def owned(name: str, annotations: Mapping[str, str] | None = None, on: str = "", owner: str = "job") -> model.Pod:
    pod = make_pod(name, gpus=1, node=on, annotations=annotations)
    pod.metadata.owner_references = [model.OwnerReference("Job", owner, f"uid-{owner}", "batch/v1", controller=True)]
    return pod


class Bench:
    """A cluster and the plugin on it; domains are configured for LeafSpine in the same profile."""

    def __init__(self, nodes: Iterable[model.Node], pods: Iterable[model.Pod] = (), *domains: Domain) -> None:
        self.cache: Cache = cluster(nodes, pods)
        self.handle = FakeHandle(self.cache, grouping=Groups(self.cache))
        args = {"LeafSpine": LeafSpineArgs(domains=list(domains))}
        self.runtime: Runtime = make_runtime(self.cache, LeafSpine, TopologyAnnotations, args=args, handle=self.handle)
        self.plugin: TopologyAnnotations = self.runtime.profile.plugins["TopologyAnnotations"]

    def scores(self, pod: model.Pod) -> dict[str, float]:
        """The plugin's scores by node; empty where it has no opinion."""
        filtered = self.runtime.evaluator.filter(self.cache.record(pod))
        found = self.runtime.evaluator.scores(filtered).get("TopologyAnnotations")
        names = [name for name, feasible in zip(self.cache.nodes.names, filtered.feasible, strict=False) if feasible]
        return {} if found is None else dict(zip(names, found.tolist(), strict=False))

    def best(self, pod: model.Pod) -> set[str]:
        """The nodes with the highest score."""
        scores = self.scores(pod)
        return {name for name, score in scores.items() if score == max(scores.values())}

    def verdicts(self, pod: model.Pod) -> dict[str, tuple[str, ...]]:
        """For each node the reasons against it."""
        diagnosis = self.runtime.evaluator.diagnose(self.runtime.evaluator.filter(self.cache.record(pod)))
        return {
            name: tuple(text for _, _, texts in diagnosis.all_of(row) for text in texts)
            for row, name in enumerate(self.cache.nodes.names)
        }

    def message(self, pod: model.Pod) -> str:
        """What the pod is told if no node will do."""
        return self.runtime.evaluator.diagnose(self.runtime.evaluator.filter(self.cache.record(pod))).message()

    def group(self, annotations: Mapping[str, str]) -> GroupAttempt:
        """Two members of a gang."""
        pods = [self.cache.record(owned(f"member-{i}", annotations)) for i in range(2)]
        capacity = np.full(self.cache.nodes.size, 2, dtype=np.int64)
        return GroupAttempt(PodGroup("default", "gang", "test", 2), [Role("", pods, capacity)], 2)

    def placed(self, group: GroupAttempt, *prefixes: str) -> float:
        """The score of a placement on the nodes whose names begin so."""
        rows = [row for row, name in enumerate(self.cache.nodes.names) if name.startswith(prefixes)]
        return self.plugin.placement_score(group, Placement("test", np.array(rows)), self.cache.nodes.view())
