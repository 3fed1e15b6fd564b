"""Simulates the controllers of workloads: when a pod finishes or is deleted, the next pod is created."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from gangline.errors import NotFound
from gangline.kube.interface import EventType
from gangline.kube.resources import JOBS, PODS
from gangline.simulate.following import follow
from gangline.simulate.history import Notice
from gangline.simulate.server import InMemoryServer
from gangline.simulate.workloads import OWNERS, controller, is_over, missing


class Workloads:
    """Keeps the number of pods of every workload on one server."""

    def __init__(self, server: InMemoryServer) -> None:
        self._server = server
        self._owned: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)  # by UIDs: owner, pod

    async def run(self) -> None:
        """Creates pods until cancelled."""
        async with aclosing(follow(self._server, PODS)) as notices:
            async for notice in notices:
                self._see(notice)

    def _see(self, notice: Notice) -> None:
        """Notes a change of a pod, and creates the pods that its owner lacks."""
        data = notice.revision.data
        reference = controller(data)
        if reference is None:
            return
        pods = self._owned[reference["uid"]]
        if notice.type is EventType.DELETED:
            pods.pop(data["metadata"]["uid"], None)
        else:
            pods[data["metadata"]["uid"]] = data
        if notice.type is EventType.DELETED or is_over(data):
            self._make_missing(reference, data["metadata"].get("namespace"))

    def _make_missing(self, reference: Mapping[str, Any], namespace: str | None) -> None:
        resource = OWNERS.get((reference["apiVersion"], reference["kind"]))
        if resource is None:
            return
        try:
            owner = self._server.get(resource, reference["name"], namespace=namespace).data
        except NotFound:
            return
        if owner["metadata"]["uid"] != reference["uid"] or "deletionTimestamp" in owner["metadata"]:
            return
        pods = self._owned[reference["uid"]]
        if resource is JOBS:
            self._count(owner, list(pods.values()))
        for pod in missing(owner, list(pods.values())):
            made = self._server.create(PODS, pod)
            pods[made.data["metadata"]["uid"]] = made.data

    def _count(self, job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> None:
        """Write into a job's status how many of its pods have succeeded: groups are read from it."""
        before = job.get("status", {})
        succeeded = sum(pod.get("status", {}).get("phase") == "Succeeded" for pod in pods)
        if succeeded > before.get("succeeded", 0):
            status = {**before, "succeeded": succeeded}
            self._server.replace(JOBS, {**job, "status": status}, subresource="status")
