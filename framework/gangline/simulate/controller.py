"""Simulates the controllers of workloads: when a pod finishes or is deleted, the next pod is created.

A Job that is suspended loses its pods, and gets new ones when it is resumed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gangline.errors import Conflict, NotFound
from gangline.kube.interface import EventType
from gangline.kube.resources import JOBS, PODS
from gangline.simulate.following import follow_all
from gangline.simulate.history import Notice
from gangline.simulate.server import InMemoryServer
from gangline.simulate.workloads import OWNERS, controller, has_template, is_over, missing, reference_of


class Workloads:
    """Keeps the number of pods of every workload on one server."""

    def __init__(self, server: InMemoryServer) -> None:
        self._server = server
        self._owned: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)  # by UIDs: owner, pod
        self._suspended: set[str] = set()  # by UID: Jobs

    async def run(self) -> None:
        """Creates pods until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow_all(self._server, PODS, self._see), name="controllers pods")
            tasks.create_task(follow_all(self._server, JOBS, self._see_job), name="controllers jobs")

    def _see_job(self, notice: Notice) -> None:
        """Delete the pods of a Job that has been suspended, and create those of a Job that has been resumed."""
        job = notice.revision.data
        uid, namespace = job["metadata"]["uid"], job["metadata"].get("namespace")
        if notice.type is EventType.DELETED or not job["spec"].get("suspend"):
            if uid in self._suspended and notice.type is not EventType.DELETED:
                self._make_missing(reference_of(job), namespace)
            self._suspended.discard(uid)
        elif uid not in self._suspended:
            self._suspended.add(uid)
            for pod in [pod for pod in self._owned[uid].values() if not is_over(pod)]:
                with suppress(NotFound, Conflict):
                    metadata = pod["metadata"]
                    self._server.delete(PODS, metadata["name"], namespace=namespace, uid=metadata["uid"])

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
        if not has_template(owner):
            return
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
