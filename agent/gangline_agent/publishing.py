"""Writes a node's GPUs to the API: the GpuNodeStatus and, without gpu-feature-discovery, node labels.

Rules
- Every write is a server-side apply of the whole object, so a restart changes nothing and no old field stays.
- The Node is the owner of the GpuNodeStatus, so deleting the Node deletes the GpuNodeStatus.
- After a failed write the newest status is written, not the status of the failed write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from gangline.errors import ApiError, Forbidden, InvalidObject, NotFound
from gangline.kube.interface import Client
from gangline.kube.resources import GPU_NODE_STATUSES, NODES
from gangline.model import Node
from gangline.wire.custom_resources import GpuDevice, GpuNodeStatusStatus
from gangline_agent import labels

log = logging.getLogger(__name__)

MANAGER, STATUS_MANAGER = "gpu-agent", "gpu-agent-status"
BACKOFF = wait_random_exponential(multiplier=0.5, max=30.0)  # seconds

Sleep = Callable[[float], Awaitable[None]]
Users = Callable[[str], Mapping[int, list[str]]]


def counted(devices: Sequence[GpuDevice]) -> dict[str, int]:
    """The columns of kubectl: all devices, healthy devices, devices in use, and healthy devices that are free."""
    healthy = [device for device in devices if device.health == "Healthy"]
    return {
        "total": len(devices),
        "healthy": len(healthy),
        "used": sum(bool(device.in_use_by) for device in devices),
        "free": sum(not device.in_use_by for device in healthy),
    }


class Publisher:
    """Writes for any number of nodes, at most ``concurrency`` of them at the same time.

    ``users`` gives for a node the UIDs of the pods on each device; every write of a status includes them.
    """

    def __init__(self, client: Client, users: Users, concurrency: int = 32) -> None:
        self._client = client
        self._users = users
        self._turn = asyncio.Semaphore(concurrency)

    async def place(self, node: Node) -> str:
        """Creates or corrects the node's GpuNodeStatus, without its status; returns its UID. Raises ApiError."""
        owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}
        body = {"metadata": {"ownerReferences": [owner]}, "spec": {"nodeName": node.metadata.name}}
        async with self._turn:
            placed = await self._client.apply(GPU_NODE_STATUSES, node.metadata.name, body, field_manager=MANAGER)
        return placed.metadata.uid

    async def report(self, name: str, status: GpuNodeStatusStatus) -> None:
        """Writes the status of a GpuNodeStatus. Raises ApiError, NotFound if there is none."""
        users = self._users(name)
        devices = [msgspec.structs.replace(each, in_use_by=users.get(each.id, [])) for each in status.devices]
        counts = counted(devices)
        body = {"status": {**msgspec.to_builtins(msgspec.structs.replace(status, devices=devices)), **counts}}
        async with self._turn:
            await self._client.apply(GPU_NODE_STATUSES, name, body, field_manager=STATUS_MANAGER, subresource="status")

    async def label(self, node: Node, wanted: Mapping[str, str]) -> None:
        """Sets these labels on a node and takes away those set earlier. Raises ApiError.

        Because of the UID the write does not create a deleted node again.
        """
        body = {"metadata": {"uid": node.metadata.uid, "labels": dict(wanted)}}
        async with self._turn:
            await self._client.apply(NODES, node.metadata.name, body, field_manager=MANAGER)

    async def withdraw(self, name: str, uid: str) -> None:
        """Deletes a GpuNodeStatus; Conflict if it has another UID than the one given. Raises ApiError."""
        async with self._turn:
            try:
                await self._client.delete(GPU_NODE_STATUSES, name, uid=uid or None)
            except NotFound:
                log.debug("the GpuNodeStatus %s is gone already", name)


class Reporter:
    """Keeps the newest status and labels of one node published.

    ``find`` gives the node as it is now; it may raise ApiError and InvalidObject. ``uid`` is that of the GpuNodeStatus,
    once it is there.
    """

    def __init__(
        self,
        publisher: Publisher,
        name: str,
        find: Callable[[], Awaitable[Node]],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.name = name
        self.uid = ""
        self.newest: GpuNodeStatusStatus | None = None
        self._publisher = publisher
        self._find = find
        self._labels: Mapping[str, str] = {}
        self._labelled: Mapping[str, str] | None = None
        self._news = asyncio.Event()
        self._complaint = ""
        self._published = False
        self._rests = False
        self._retrying = AsyncRetrying(
            retry=retry_if_exception_type((ApiError, InvalidObject)),
            wait=BACKOFF,
            sleep=sleep,
            before_sleep=self._complain,
        )

    def report(self, status: GpuNodeStatusStatus, wanted_labels: Mapping[str, str]) -> None:
        """Set the status to publish from now on; ``run`` publishes it."""
        self.newest, self._labels = status, wanted_labels
        self._rests = False
        self._news.set()

    def rest(self) -> bool:
        """Publish nothing until there is a new report; True if something was to be published before."""
        before, self._rests = self._rests, True
        return not before

    def waiting_for(self) -> str | None:
        """Why the API does not have the newest report; None if it has it, or if a write is under way."""
        if self._complaint:
            return self._complaint
        return None if self._published or self._rests else "nothing is published yet"

    async def run(self) -> None:
        """Publishes until cancelled; tries again until the API accepts a report."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._retrying(self.publish)
            if self._complaint:
                log.info("%s: published again", self.name)
                self._complaint = ""

    async def publish(self) -> None:
        """Writes the newest report. Raises ApiError."""
        if self.newest is None:
            return
        node: Node | None = None
        if not self.uid:
            node = await self._find()
            self.uid = await self._publisher.place(node)
        try:
            await self._publisher.report(self.name, self.newest)
        except NotFound:
            self.uid = ""  # deleted meanwhile
            raise
        if self._labelled != self._labels:
            await self._label(node or await self._find())
        self._published = True

    async def _label(self, node: Node) -> None:
        wanted = self._labels
        if not labels.discovered_elsewhere(node.metadata.labels):
            try:
                await self._publisher.label(node, wanted)
            except Forbidden as error:
                log.warning("%s: labels are not set: %s", self.name, error)
        self._labelled = wanted

    def _complain(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if str(error) != self._complaint:  # once per change, not once per attempt
            self._complaint = str(error)
            log.warning("%s: not published, trying again: %s", self.name, error)
