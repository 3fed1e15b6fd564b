"""Plays Kueue for one Job: makes its Workload, takes it off when the Workload is deactivated, and admits it again."""

from __future__ import annotations

from datetime import UTC, datetime

from gangline_e2e.api import Api
from gangline_e2e.workloads import Manifest


class PlayedKueue:
    """Kueue with one Job, which it has admitted."""

    def __init__(self, api: Api, job: str) -> None:
        self._api = api
        self._job = f"/apis/batch/v1/namespaces/{api.namespace}/jobs/{job}"
        self._path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{api.namespace}/workloads/job-{job}"

    async def manage(self) -> None:
        """Create the Workload of the Job, which is admitted."""
        job = await self._api.get(self._job)
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
        pods = {"name": "main", "count": job["spec"]["parallelism"], "template": job["spec"]["template"]}
        made = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": f"job-{name}", "namespace": self._api.namespace, "ownerReferences": [owner]},
            "spec": {"queueName": "team", "podSets": [pods]},
        }
        await self._api.create(made)
        await self._say(QuotaReserved="True", Admitted="True")

    async def workload(self) -> Manifest:
        """The Workload."""
        return await self._api.get(self._path)

    async def take_off(self) -> None:
        """Wait until the Workload is deactivated; then suspend the Job, and take the quota back when its pods go."""
        await self._until(active=False)
        await self._say(QuotaReserved="True", Admitted="True", Evicted="True")
        await self._api.merge(self._job, {"spec": {"suspend": True}})

        async def is_off() -> bool:
            return not (await self._api.get(self._job))["status"].get("active")

        await self._api.until(is_off, "the Job has no active pod")
        await self._say(QuotaReserved="False", Admitted="False", Evicted="True")

    async def admit_again(self) -> None:
        """Wait until the Workload is active; then admit it, and start the Job."""
        await self._until(active=True)
        await self._say(QuotaReserved="True", Admitted="True", Evicted="False")
        await self._api.merge(self._job, {"spec": {"suspend": False}})

    async def _until(self, active: bool) -> None:
        async def is_so() -> bool:
            return bool((await self.workload())["spec"]["active"]) == active

        await self._api.until(is_so, f"the Workload has active: {active}", timeout_s=60)

    async def _say(self, **conditions: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        more = {"lastTransitionTime": now, "message": ""}
        data = [{"type": kind, "status": status, "reason": kind, **more} for kind, status in conditions.items()]
        await self._api.merge(f"{self._path}/status", {"status": {"conditions": data}})
