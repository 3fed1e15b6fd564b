"""The object that a user asks about: a pod, or a workload with all its running or waiting pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gangline.api.pod_group import Problem
from gangline.errors import ConfigError
from gangline.groups import Groups, Lookup
from gangline.groups.owners import chain_of
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.selectors import Selector

GANG = "PodGroup"
"""The kind that stands for a gang of any dialect."""
KINDS = {
    "po": "Pod",
    "pod": "Pod",
    "pods": "Pod",
    "job": "Job",
    "jobs": "Job",
    "cronjob": "CronJob",
    "cronjobs": "CronJob",
    "cj": "CronJob",
    "deploy": "Deployment",
    "deployment": "Deployment",
    "deployments": "Deployment",
    "rs": "ReplicaSet",
    "replicaset": "ReplicaSet",
    "replicasets": "ReplicaSet",
    "sts": "StatefulSet",
    "statefulset": "StatefulSet",
    "statefulsets": "StatefulSet",
    "jobset": "JobSet",
    "jobsets": "JobSet",
    "lws": "LeaderWorkerSet",
    "leaderworkerset": "LeaderWorkerSet",
    "leaderworkersets": "LeaderWorkerSet",
    "pg": GANG,
    "podgroup": GANG,
    "podgroups": GANG,
}
"""The kinds that may stand before the slash, as in kubectl."""


@dataclass(frozen=True, slots=True)
class Target:
    """One object: a pod, or a workload or gang whose pods are meant."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()} {self.namespace}/{self.name}"

    def pods(self, pods: Iterable[PodInfo], cluster: Cache) -> list[PodInfo]:
        """The pods of the target, by name."""
        near = [pod for pod in pods if pod.namespace == self.namespace]
        if self.kind == GANG:
            groups = Groups(cluster)
            mine = [pod for pod in near if _gang_of(groups, pod) == f"{self.namespace}/{self.name}"]
        else:
            mine = [pod for pod in near if self._means(pod, cluster)]
        return sorted(mine, key=lambda pod: pod.name)

    def _means(self, pod: PodInfo, lookup: Lookup) -> bool:
        if self.kind == "Pod":
            return pod.name == self.name
        nearest = pod.controller
        if nearest is None:
            return False
        top = chain_of(nearest, pod.namespace, lookup).top
        return (self.kind, self.name) in ((nearest.kind, nearest.name), (top.kind, top.name))


@dataclass(frozen=True, slots=True)
class SelectedPods:
    """The pods with certain labels; "" stands for all namespaces."""

    namespace: str
    labels: Selector

    kind = "SelectedPods"
    name = ""

    def __str__(self) -> str:
        return f"the selected pods of {f'namespace {self.namespace}' if self.namespace else 'all namespaces'}"

    def pods(self, pods: Iterable[PodInfo], cluster: Cache) -> list[PodInfo]:
        """The pods, by namespace and name."""
        near = [pod for pod in pods if self.namespace in ("", pod.namespace) and self.labels.matches(pod.labels)]
        return sorted(near, key=lambda pod: (pod.namespace, pod.name))


def _gang_of(groups: Groups, pod: PodInfo) -> str:
    """NAMESPACE/NAME of the gang of a pod; "" if the pod is in no gang."""
    membership = groups.of(pod)
    if membership is None:
        return ""
    key = membership.key if isinstance(membership, Problem) else membership.group.key
    return key.partition(":")[2]


def is_kind(word: str) -> bool:
    """Whether a word is the name of a kind, as in kubectl."""
    return _kind(word) is not None


def _kind(word: str) -> str | None:
    return KINDS.get(word.lower().partition(".")[0])


def parse(text: str, namespace: str | None, default: str = "") -> Target:
    """Read `POD`, `NAMESPACE/POD` or `KIND/NAME`, with kubectl's names of kinds. Raises ConfigError.

    `default` is the namespace of the context; "" if the context has none.
    """
    before, slash, name = text.partition("/")
    if before and not slash:
        return Target("Pod", namespace or default or "default", text)
    if not before or not name or "/" in name:
        raise ConfigError("", text, "expected POD, NAMESPACE/POD or KIND/NAME, as in job/train")
    kind = _kind(before)
    if kind is not None:
        return Target(kind, namespace or default or "default", name)
    if namespace is not None:
        known = ", ".join(sorted({kind.lower() for kind in KINDS.values()}))
        raise ConfigError(
            "", text, f"{before!r} is not one of the kinds {known}, and --namespace names a namespace already"
        )
    return Target("Pod", before, name)
