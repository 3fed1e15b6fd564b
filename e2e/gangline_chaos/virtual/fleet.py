"""The nodes of a virtual cluster with their reports: they come, go, are cordoned and fail."""

from __future__ import annotations

from typing import Any

from gangline.errors import NotFound
from gangline.kube.resources import GPU_NODE_STATUSES, NODES, PODS
from gangline.simulate import InMemoryServer
from gangline_chaos.units import driver_objects
from gangline_e2e.day.fabric import READY, Fabric
from gangline_e2e.gpu_crds import node_status
from gangline_e2e.workloads import Manifest

NOT_READY = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
TAINTS = [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
"""As the controller of nodes sets them."""


class Fleet:
    """Each node by its number."""

    def __init__(self, server: InMemoryServer, fabric: Fabric) -> None:
        self.fabric = fabric
        self._server = server
        self._homeless: set[str] = set()
        for manifest in driver_objects(fabric):
            server.apply_manifest(manifest)
        for number in range(fabric.nodes):
            self.report(number)
            self.make(number)

    def there(self) -> list[int]:
        """The numbers of the nodes that exist."""
        return [number for number in range(self.fabric.nodes) if self._get(number) is not None]

    def make(self, number: int) -> None:
        """The node exists, is Ready and takes pods."""
        node = self.fabric.node(number)
        old = self._get(number)
        if old is None:
            self._server.create(NODES, node)
            return
        self._server.replace(NODES, {**old, "spec": node["spec"]})
        self._say_ready(number, READY)

    def lose(self, number: int) -> None:
        """The node is deleted."""
        if self._get(number) is not None:
            self._server.delete(NODES, self.fabric.name(number))

    def cordon(self, number: int) -> None:
        """No more pods come to the node."""
        if self._get(number) is not None:
            self._server.patch(NODES, self.fabric.name(number), {"spec": {"unschedulable": True}})

    def fail(self, number: int) -> None:
        """The node does not answer any more, and is tainted for it."""
        if self._get(number) is not None:
            self._say_ready(number, NOT_READY)
            self._server.patch(NODES, self.fabric.name(number), {"spec": {"taints": TAINTS}})

    def report(self, number: int) -> None:
        """The agent reports the devices of the node."""
        name = self.fabric.name(number)
        try:
            self._server.get(GPU_NODE_STATUSES, name)
        except NotFound:
            self._server.create(GPU_NODE_STATUSES, node_status(name))
        self._server.patch(GPU_NODE_STATUSES, name, self.fabric.report(number), subresource="status")

    def silence(self, number: int) -> None:
        """The report of the node is deleted."""
        try:
            self._server.delete(GPU_NODE_STATUSES, self.fabric.name(number))
        except NotFound:
            return

    def collect(self) -> None:
        """Delete the pods on nodes that do not exist now and did not at the last look, as the pod garbage collector
        does.
        """
        there = {self.fabric.name(number) for number in self.there()}
        pods = [pod.data for pod in self._server.list(PODS)]
        homeless = {
            pod["metadata"]["uid"]: pod["metadata"]
            for pod in pods
            if (node := pod["spec"].get("nodeName")) and node not in there
        }
        for uid in [uid for uid in homeless if uid in self._homeless]:
            metadata = homeless.pop(uid)
            self._server.delete(PODS, metadata["name"], namespace=metadata["namespace"], grace_period_seconds=0)
        self._homeless = set(homeless)

    def _say_ready(self, number: int, condition: Manifest) -> None:
        patch = {"status": {"conditions": [condition]}}
        self._server.patch(NODES, self.fabric.name(number), patch, subresource="status")

    def _get(self, number: int) -> dict[str, Any] | None:
        try:
            return self._server.get(NODES, self.fabric.name(number)).data
        except NotFound:
            return None
