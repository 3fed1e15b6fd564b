"""Small clusters for the tests of DefaultPreemption."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gangline import ApiError, Handle, NotFound, PodInfo, Proposal, Status, model
from gangline.testing import Cache, FakeHandle, NoClient, Runtime
from gangline.testing.configured import load_cluster, make_profiles
from gangline_plugins.default_preemption import Args, DefaultPreemption
from gangline_plugins.default_preemption.importance import Candidate

_CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}]
"""
Object = dict[str, Any]


class StartingAt(random.Random):
    """Always draws the same number, as far as the range goes."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self._number = number

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """The number."""
        return self._number % start


@dataclass
class Client(NoClient):
    """Keeps patches and deletions; `failures` holds, by verb and name, the errors to raise one after the other."""

    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    failures: dict[tuple[str, str], list[ApiError]] = field(default_factory=dict)
    there: set[str] = field(default_factory=set)
    """The pods that exist, by their names, which are their UIDs."""

    async def get(self, resource: Any, name: str, **options: Any) -> Any:
        """GET."""
        if name not in self.there:
            raise NotFound(404, "NotFound", "gone")
        return model.Pod(metadata=model.ObjectMeta(name=name, uid=name))

    async def patch(self, resource: Any, name: str, patch: Any, **options: Any) -> Any:
        """PATCH."""
        self._call("patch", name, patch)

    async def delete(self, resource: Any, name: str, **options: Any) -> None:
        """DELETE."""
        self._call("delete", name, options["uid"])

    def _call(self, verb: str, name: str, what: Any) -> None:
        self.calls.append((verb, name, what))
        errors = self.failures.get((verb, name))
        if errors:
            raise errors.pop(0)


@dataclass
class Cluster:
    """A cache, a profile with all default plugins, and the plugin under test."""

    cache: Cache
    runtime: Runtime
    plugin: DefaultPreemption
    client: Client
    fakes: FakeHandle

    @property
    def handle(self) -> Handle:
        """What the plugin was given."""
        return self.runtime.handle

    @property
    def events(self) -> list[tuple[str, str, str]]:
        """The name of the object, the reason and the note of each event."""
        return [(each.pod.partition("/")[2], each.reason, each.note) for each in self.fakes.fake_recorder.events]

    def pod(self, obj: Object) -> PodInfo:
        """The record of a pod that has no node."""
        return self.cache.record(msgspec.convert(obj, model.Pod, strict=False))

    def decide(self, obj: Object | PodInfo) -> Candidate | Status:
        """Where room could be made and who would have to go, or what is said instead."""
        pod = obj if isinstance(obj, PodInfo) else self.pod(obj)
        diagnosis = self.runtime.evaluator.diagnose(self.runtime.evaluator.filter(pod))
        return self.plugin.decide(pod, diagnosis.nodes, diagnosis)

    def victims(self, obj: Object) -> tuple[str, list[str]]:
        """The node that is chosen, and the victims' names in order."""
        candidate = self.decide(obj)
        assert isinstance(candidate, Candidate), candidate
        return candidate.node, [victim.name for victim in candidate.victims]

    def refusal(self, obj: Object | PodInfo) -> str:
        """What is said when there is no candidate."""
        status = self.decide(obj)
        assert isinstance(status, Status), status
        return status.message

    def preempt(self, obj: Object | PodInfo) -> Status | str:
        """What post_filter answers."""
        pod = obj if isinstance(obj, PodInfo) else self.pod(obj)
        diagnosis = self.runtime.evaluator.diagnose(self.runtime.evaluator.filter(pod))
        answer = self.plugin.post_filter(pod, diagnosis.nodes, diagnosis)
        assert not isinstance(answer, Proposal)
        return answer

    async def carry_out(self) -> None:
        """Run what was spawned."""
        while self.fakes.background.spawned:
            await self.fakes.background.spawned.pop(0)()


def cluster(
    nodes: list[Object], pods: list[Object], pdbs: list[Object] | None = None, args: Args | None = None, start: int = 0
) -> Cluster:
    """A cluster that looks at nodes from the start-th on."""
    cache = load_cluster({"nodes": nodes, "pods": pods, "pdbs": pdbs or []})
    client = Client()
    fakes = FakeHandle(cache, client)
    runtime = make_profiles(_CONFIGURATION, fakes)["default-scheduler"]
    runtime.handle.random = StartingAt(start)
    plugin = DefaultPreemption(args or Args(), runtime.handle)
    return Cluster(cache, runtime, plugin, client, fakes)


def node(name: str, cpu: int = 4, **labels: str) -> Object:
    """A node with that many CPUs."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": 110}},
    }


def pod(
    name: str,
    cpu: int,
    priority: int,
    node: str = "",
    start: str | None = None,
    labels: dict[str, str] | None = None,
    status: Object | None = None,
    metadata: Object | None = None,
    port: int = 0,
    **spec: Any,
) -> Object:
    """A pod that asks for CPUs; `start` is a time of day."""
    container: Object = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    started = {"startTime": f"2024-01-01T{start}Z"} if start else {}
    return {
        "metadata": {"name": name, "namespace": "d", "uid": name, "labels": labels or {}, **(metadata or {})},
        "spec": {"nodeName": node, "priority": priority, "containers": [container], **spec},
        "status": {**started, **(status or {})},
    }


def budget(allowed: int, disrupted: tuple[str, ...] = (), **match: str) -> Object:
    """A PodDisruptionBudget over the pods with these labels."""
    return {
        "metadata": {"name": "-".join(match.values()), "namespace": "d"},
        "spec": {"selector": {"matchLabels": match}},
        "status": {
            "disruptionsAllowed": allowed,
            "disruptedPods": {name: "2024-01-01T00:00:00Z" for name in disrupted},
        },
    }
