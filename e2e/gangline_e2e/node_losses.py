"""Nodes that are lost under running gangs, and how long a gang takes until all its members have nodes again.

What counts is what the API server says: a gang is whole when as many of its pods as it has members are bound to nodes
that are well, and none of those is being deleted. A node that is *cut off* is played by nobody any more, so its pods
never end; kube-controller-manager would taint it, and here the test does.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gangline_e2e.api import Api
from gangline_e2e.workloads import KWOK_NODE, Manifest, Manifests, gpu_pod

NODES = "/api/v1/nodes"
GANG = "example.com/gang"
POD_GROUP = "scheduling.x-k8s.io/pod-group"
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}


def replicated(name: str, size: int, scheduler_name: str, annotations: dict[str, str]) -> Manifests:
    """A gang of pods with 8 GPUs each that a ReplicaSet makes anew: the PodGroup, and the ReplicaSet."""
    labels = {GANG: name, POD_GROUP: name}
    pod = gpu_pod(name, gpus=8, scheduler_name=scheduler_name, labels=labels, annotations=annotations)
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod["spec"]}
    spec = {"replicas": size, "selector": {"matchLabels": {GANG: name}}, "template": template}
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}}
    return [
        {**group, "spec": {"minMember": size}},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec},
    ]


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a gang that has a node and is not being deleted."""

    uid: str
    node: str


class Members:
    """Where the members of all gangs are, as the API server's watch says."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Member]] = defaultdict(dict)
        self._left: dict[str, str] = {}
        self._changed = asyncio.Event()

    def note(self, event: str, pod: Manifest) -> None:
        """A pod has changed."""
        metadata = pod["metadata"]
        gang, uid = metadata.get("labels", {}).get(GANG, ""), metadata["uid"]
        node = pod["spec"].get("nodeName", "")
        if event != "DELETED" and node:
            self._left[uid] = node
        else:
            self._left.pop(uid, None)
        if node and event != "DELETED" and "deletionTimestamp" not in metadata:
            self._of[gang][uid] = Member(uid, node)
        else:
            self._of[gang].pop(uid, None)
        self._changed.set()

    def of(self, gang: str) -> list[Member]:
        """The members of a gang, by UID."""
        return sorted(self._of[gang].values(), key=lambda member: member.uid)

    def nodes(self, gang: str) -> set[str]:
        """The nodes of a gang."""
        return {member.node for member in self.of(gang)}

    def on(self, nodes: Iterable[str]) -> int:
        """How many pods are on these nodes, those included that are being deleted."""
        wanted = set(nodes)
        return sum(node in wanted for node in self._left.values())

    async def whole(self, gang: str, size: int, lost: Iterable[str] = (), timeout_s: float = 60.0) -> float:
        """Wait until a gang has all its members on nodes that are not lost; returns the time, monotonic."""
        bad = set(lost)
        try:
            async with asyncio.timeout(timeout_s):
                while len(self.of(gang)) < size or not bad.isdisjoint(self.nodes(gang)):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"gang {gang} has {self.of(gang)} after {timeout_s:g} s, lost are {bad}") from None
        return time.monotonic()


@asynccontextmanager
async def following(api: Api) -> AsyncIterator[Members]:
    """Follow the pods of a namespace until the block ends."""
    members = Members()

    async def follow() -> None:
        async for event, pod in api.watch(api.pods):
            if event != "RESTART":
                members.note(event, pod)

    task = asyncio.create_task(follow())
    try:
        yield members
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def cut_off(api: Api, nodes: Iterable[str]) -> None:
    """Nobody hears of these nodes any more."""
    await asyncio.gather(*(_cut_off(api, node) for node in nodes))


async def _cut_off(api: Api, node: str) -> None:
    await api.merge(
        f"{NODES}/{node}", {"metadata": {"annotations": {KWOK_NODE: None}}, "spec": {"taints": [UNREACHABLE]}}
    )
    await api.merge(f"{NODES}/{node}/status", {"status": {"conditions": [ready("Unknown")]}})


async def put_out_of_service(api: Api, nodes: Iterable[str]) -> None:
    """Nobody hears of these nodes any more, and an administrator says that nothing runs there."""
    await cut_off(api, nodes)
    taints = [UNREACHABLE, OUT_OF_SERVICE]
    await asyncio.gather(*(api.merge(f"{NODES}/{node}", {"spec": {"taints": taints}}) for node in nodes))


async def heal(api: Api, nodes: Iterable[str]) -> None:
    """These nodes are heard of again."""
    await asyncio.gather(*(_heal(api, node) for node in nodes))


async def _heal(api: Api, node: str) -> None:
    await api.merge(f"{NODES}/{node}/status", {"status": {"conditions": [ready("True")]}})
    await api.merge(f"{NODES}/{node}", {"metadata": {"annotations": {KWOK_NODE: "fake"}}, "spec": {"taints": None}})


def ready(status: str) -> Manifest:
    """The condition Ready of a node, as of now."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    reason = "KubeletReady" if status == "True" else "NodeStatusUnknown"
    stamps = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": "Ready", "status": status, "reason": reason, "message": reason, **stamps}


async def delete(api: Api, nodes: Iterable[str]) -> Manifests:
    """Delete nodes; returns them as they were, without what the API server adds."""
    before = await asyncio.gather(*(api.get(f"{NODES}/{node}") for node in nodes))
    await asyncio.gather(*(api.delete(f"{NODES}/{node['metadata']['name']}", at_once=True) for node in before))
    kept = ("name", "labels", "annotations")
    return [{**node, "metadata": {key: node["metadata"][key] for key in kept}} for node in before]
