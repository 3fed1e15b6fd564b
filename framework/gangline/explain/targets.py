"""What a user asks about: a pod, or a workload with all its running or waiting pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.groups import Lookup
from gangline.groups.owners import chain_of
from gangline.state.pods import PodInfo

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
}
"""The kinds that may stand before the slash, as in kubectl."""


@dataclass(frozen=True, slots=True)
class Target:
    """One object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()} {self.namespace}/{self.name}"

    def pods(self, pods: Iterable[PodInfo], lookup: Lookup) -> list[PodInfo]:
        """The pods of the target, by name."""
        mine = [pod for pod in pods if pod.namespace == self.namespace and self._means(pod, lookup)]
        return sorted(mine, key=lambda pod: pod.name)

    def _means(self, pod: PodInfo, lookup: Lookup) -> bool:
        if self.kind == "Pod":
            return pod.name == self.name
        nearest = pod.controller
        if nearest is None:
            return False
        top = chain_of(nearest, pod.namespace, lookup).top
        return (self.kind, self.name) in ((nearest.kind, nearest.name), (top.kind, top.name))


def parse(text: str, namespace: str | None) -> Target:
    """Read `POD`, `NAMESPACE/POD` or `KIND/NAME`, with kubectl's names of kinds. Raises ConfigError."""
    before, slash, name = text.partition("/")
    if not slash:
        return Target("Pod", namespace or "default", text)
    if not name or "/" in name:
        raise ConfigError("", text, "expected POD, NAMESPACE/POD or KIND/NAME, as in job/train")
    kind = KINDS.get(before.lower().partition(".")[0])
    if kind is not None:
        return Target(kind, namespace or "default", name)
    if namespace is not None:
        known = ", ".join(sorted({kind.lower() for kind in KINDS.values()}))
        raise ConfigError("", text, f"no kind is called {before!r}; with --namespace one of {known} is expected")
    return Target("Pod", before, name)
