"""Simulates all kubelets: bound pods start, run for the time in their annotation, and end when they are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from gangline.api.plugin import Clock
from gangline.clock import rfc3339
from gangline.errors import Conflict, InvalidObject, NotFound
from gangline.kube.interface import EventType
from gangline.kube.resources import NODES, PODS, Resource
from gangline.simulate.defaulting import with_condition
from gangline.simulate.following import follow_all
from gangline.simulate.history import Data, Notice
from gangline.simulate.manifests import run_seconds
from gangline.simulate.server import InMemoryServer
from gangline.simulate.workloads import FINISHED

READY = ("Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready")


class Kubelet:
    """Runs the pods of every node of a server.

    ``start_seconds`` pass between binding and running. A deleted pod ends after ``stop_seconds``, or after its grace
    period if that is shorter. Pods on a node that does not exist do not start. Pods on an unreachable node, whose
    condition Ready is Unknown, neither start nor end until the node is reachable again or is deleted. New nodes become
    ready, unless they have a Ready condition.
    """

    def __init__(
        self, server: InMemoryServer, clock: Clock, *, start_seconds: float = 1.0, stop_seconds: float = 1.0
    ) -> None:
        self._server = server
        self._clock = clock
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        self._running: dict[str, asyncio.Task[None]] = {}  # what happens next to a pod, by its UID
        self._ending: set[str] = set()  # UIDs
        self._node_changed = asyncio.Event()

    async def run(self) -> None:
        """Runs nodes and pods until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow_all(self._server, NODES, self._see_node), name="kubelet nodes")
            tasks.create_task(
                follow_all(self._server, PODS, lambda notice: self._see_pod(notice, tasks)), name="kubelet pods"
            )

    def _see_node(self, notice: Notice) -> None:
        data = notice.revision.data
        if notice.type is EventType.ADDED:
            self._change_status(NODES, data, lambda status: _with_ready(status, self._clock.now()))
        self._node_changed.set()
        self._node_changed = asyncio.Event()

    def _see_pod(self, notice: Notice, tasks: asyncio.TaskGroup) -> None:
        """Starts the next step of a pod, unless the step is under way."""
        data = notice.revision.data
        uid, name = data["metadata"]["uid"], data["metadata"]["name"]
        if notice.type is EventType.DELETED:
            self._ending.discard(uid)
            self._cancel(uid)
        elif not data["spec"].get("nodeName"):
            return
        elif "deletionTimestamp" in data["metadata"]:
            if uid not in self._ending:
                self._ending.add(uid)
                self._cancel(uid)
                tasks.create_task(self._end(data), name=f"end {name}")
        elif uid not in self._running:
            self._running[uid] = tasks.create_task(self._live(data), name=f"run {name}")

    def _cancel(self, uid: str) -> None:
        task = self._running.pop(uid, None)
        if task is not None:
            task.cancel()

    async def _live(self, pod: Mapping[str, Any]) -> None:
        """The remaining steps of a pod, from its binding to its end."""
        elapsed = 0.0
        if pod["status"]["phase"] == "Pending":
            await asyncio.sleep(self._start_seconds)
            if await self._node_heard_of(pod) is None or not self._change_status(PODS, pod, self._started):
                return
        elif pod["status"]["phase"] == "Running" and "startTime" in pod["status"]:
            elapsed = self._clock.now() - datetime.fromisoformat(pod["status"]["startTime"]).timestamp()
        else:
            return
        try:
            seconds = run_seconds(pod["metadata"])
        except InvalidObject as error:
            why = str(error)
            self._change_status(PODS, pod, lambda status: {**status, "phase": "Failed", "message": why})
            return
        if seconds is None:
            return
        await asyncio.sleep(max(0.0, seconds - elapsed))
        self._change_status(PODS, pod, self._succeeded)

    async def _end(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        await asyncio.sleep(min(self._stop_seconds, metadata["deletionGracePeriodSeconds"]))
        await self._node_heard_of(pod)
        with suppress(NotFound, Conflict):  # somebody was faster
            self._server.delete(
                PODS,
                metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
                grace_period_seconds=0,
            )

    async def _node_heard_of(self, pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Wait until the node of a pod is reachable; returns the node, or None if it does not exist (any more)."""
        while True:
            try:
                node = self._server.get(NODES, pod["spec"]["nodeName"]).data
            except NotFound:
                return None
            if _is_heard_of(node):
                return node
            await self._node_changed.wait()

    def _started(self, status: Data) -> Data:
        if status.get("phase") in FINISHED:
            return status  # somebody has ended it meanwhile, and no pod runs again
        now = self._clock.now()
        status = {**status, "phase": "Running", "startTime": rfc3339(now)}
        for condition in READY:
            status = with_condition(status, {"type": condition, "status": "True"}, now)
        return status

    def _succeeded(self, status: Data) -> Data:
        if status.get("phase") in FINISHED:
            return status
        now = self._clock.now()
        status = {**status, "phase": "Succeeded"}
        for condition in ("ContainersReady", "Ready"):
            over = {"type": condition, "status": "False", "reason": "PodCompleted"}
            status = with_condition(status, over, now)
        return status

    def _change_status(self, resource: Resource[Any], seen: Mapping[str, Any], change: Callable[[Data], Data]) -> bool:
        """Writes a new status, unless the object has been deleted."""
        metadata = seen["metadata"]
        try:
            current = self._server.get(resource, metadata["name"], namespace=metadata.get("namespace")).data
        except NotFound:
            return False
        if current["metadata"]["uid"] != metadata["uid"]:
            return False
        changed = {**current, "status": change(current.get("status", {}))}
        self._server.replace(resource, changed, subresource="status")
        return True


def _is_heard_of(node: Mapping[str, Any]) -> bool:
    """Whether a node is reachable: its condition Ready is not Unknown."""
    conditions = node.get("status", {}).get("conditions", [])
    return not any(each["type"] == "Ready" and each["status"] == "Unknown" for each in conditions)


def _with_ready(status: Data, now: float) -> Data:
    """The status of a node with a Ready condition; an existing condition stays."""
    if any(each["type"] == "Ready" for each in status.get("conditions", [])):
        return status
    return with_condition(status, {"type": "Ready", "status": "True", "reason": "KubeletReady"}, now)
