"""Finds which pods have which devices of a node by the pods' annotations, for the GpuNodeStatus.

The scheduler does not use this list: it reads the annotations itself. So the list may be old, and it is missing if the
agent has no right to list pods.
"""

from __future__ import annotations

from gangline.kube.informer import Informer
from gangline.kube.interface import Client
from gangline.kube.resources import PODS
from gangline.model import Pod
from gangline.wire.custom_resources import ALLOCATED
from gangline.wire.texts import device_ids

FINISHED = ("Succeeded", "Failed")


class Usage:
    """Watches the pods of one node, or of all nodes, while `run` runs."""

    def __init__(self, client: Client, node: str = "") -> None:
        chosen = f"spec.nodeName={node}" if node else "spec.nodeName!="
        self._informer = Informer(client, PODS, self, field_selector=chosen)
        self._ids: dict[str, dict[str, tuple[int, ...]]] = {}
        """For each node the device ids of each pod on it, by UID."""
        self._nodes: dict[str, str] = {}

    async def run(self) -> None:
        """Watch until cancelled; errors of the API are logged, and the watch goes on."""
        await self._informer.run()

    def of(self, node: str) -> dict[int, list[str]]:
        """For each device of a node that is in use the UIDs of the pods on it, sorted."""
        users: dict[int, list[str]] = {}
        for uid, ids in sorted(self._ids.get(node, {}).items()):
            for id_ in ids:
                users.setdefault(id_, []).append(uid)
        return users

    def upsert(self, pod: Pod, /) -> None:
        """Note the devices of a pod that was added or has changed; the informer calls this."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        ids = device_ids((pod.metadata.annotations or {}).get(ALLOCATED, ""))
        if pod.status.phase in FINISHED or not ids:
            self.remove(pod.metadata.namespace, pod.metadata.name, uid)
        else:
            self._nodes[uid] = node
            self._ids.setdefault(node, {})[uid] = ids

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        """Forget the devices of a pod that was deleted or has ended; the informer calls this."""
        node = self._nodes.pop(uid, "")
        users = self._ids.get(node, {})
        users.pop(uid, None)
        if not users:
            self._ids.pop(node, None)
