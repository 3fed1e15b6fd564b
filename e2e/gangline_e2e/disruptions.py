"""Jobs whose pods are taken off their nodes: the conditions of the pods, and the failures that their Jobs count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from gangline_e2e import gangs, node_losses
from gangline_e2e.api import Api, connect
from gangline_e2e.gpu_crds import install
from gangline_e2e.gpu_fleet import PROFILE
from gangline_e2e.workloads import Manifest, is_bound, priority_class

DISRUPTION_TARGET = "DisruptionTarget"
IGNORE = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": DISRUPTION_TARGET, "status": "True"}]}]}
"""The pod failure policy that ignores disruptions."""
ONE_LEAF = {"gangline.dev/topology-required": "leaf"}
SUSPEND = {"gangline.dev/eviction": "suspend"}
NOTHING: Mapping[str, str] = {}


class Disruptions:
    """Jobs on two leaves, and the reasons in the conditions of their pods when these were removed."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.reasons: dict[str, str] = {}
        """By UID of each removed pod: the reason in its condition DisruptionTarget at that moment, "" without one."""
        self._pods: dict[str, Manifest] = {}

    async def follow(self) -> None:
        """Note every pod of the namespace until this is cancelled."""
        async for event, pod in self.api.watch(self.api.pods):
            if event == "RESTART":
                continue
            uid = pod["metadata"]["uid"]
            if event == "DELETED" or "deletionTimestamp" in pod["metadata"]:
                self.reasons.setdefault(uid, _reason(pod))
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod

    async def add(self, name: str, size: int, annotations: Mapping[str, str] = NOTHING, gpus: int = 8) -> set[str]:
        """Create a Job that may not fail, and wait until its pods are bound; returns their UIDs.

        The Job ignores disruptions, unless its annotations ask for suspension.
        """
        rules: dict[str, Any] = {"backoffLimit": 0}
        if not SUSPEND.items() <= annotations.items():
            rules["podFailurePolicy"] = IGNORE
        manifest = gangs.job_of(name, size, gpus, annotations, completionMode="Indexed", **rules)
        manifest["spec"]["template"]["metadata"]["annotations"] = dict(annotations)
        await self.api.create(manifest)
        return await self.runs(name, size)

    async def runs(self, name: str, size: int, but: str = "") -> set[str]:
        """Wait until so many pods of the Job, without the pod with the UID `but`, have nodes; returns their UIDs."""

        async def are_bound() -> set[str]:
            found = {uid for uid in self._of(name) if is_bound(self._pods[uid]) and uid != but}
            return found if len(found) == size else set()

        return await self.api.until(are_bound, f"{size} pods of {name} have nodes", timeout_s=100)

    async def is_made_anew(self, name: str, size: int, before: set[str]) -> None:
        """Wait until the Job has as many pods as it wants, none of them one of `before`."""

        async def all_are_new() -> bool:
            found = self._of(name)
            return len(found) == size and found.isdisjoint(before)

        await self.api.until(all_are_new, f"{name} has {size} new pods", timeout_s=100)

    async def are_removed(self, uids: set[str]) -> None:
        """Wait until all of these pods are being deleted."""

        async def are_all() -> bool:
            return uids <= self.reasons.keys()

        await self.api.until(are_all, "the pods are being deleted", timeout_s=100)

    async def add_urgent(self, size: int) -> None:
        """Create a gang that preempts others, and wait until its pods are bound."""
        await self.api.create(self.urgent(size))
        await self.runs("urgent", size)

    def urgent(self, size: int) -> Manifest:
        """A gang that preempts others."""
        manifest = gangs.job_of("urgent", size, 8, {}, completionMode="Indexed")
        manifest["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
        return manifest

    async def end(self, job: str) -> None:
        """Delete a Job with its pods."""
        await self.api.request("DELETE", self.path(job), propagationPolicy="Background")

    def path(self, job: str) -> str:
        """The path of a Job."""
        return f"/apis/batch/v1/namespaces/{self.api.namespace}/jobs/{job}"

    async def is_suspended(self, job: str) -> bool:
        """Whether a Job is suspended."""
        return bool((await self.api.get(self.path(job)))["spec"].get("suspend"))

    async def events_of(self, job: str) -> set[str]:
        """The reasons of the events about a Job."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.api.namespace}/events"
        found = await self.api.list(path)
        return {
            each["reason"]
            for each in found
            if (each["regarding"].get("kind"), each["regarding"].get("name")) == ("Job", job)
        }

    async def have_events(self, job: str, reasons: set[str]) -> None:
        """Wait until there are events with all these reasons about a Job."""

        async def are_there() -> bool:
            return reasons <= await self.events_of(job)

        await self.api.until(are_there, f"events about {job}: {reasons}")

    async def failures(self, name: str) -> int:
        """How many failed pods the Job counts, once it has counted all."""

        async def counted() -> Manifest | None:
            status = (await self.api.get(self.path(name)))["status"]
            is_counting = any(status.get("uncountedTerminatedPods", {}).values()) or status.get("terminating")
            return None if is_counting else status

        status = await self.api.until(counted, f"{name} has counted its pods", timeout_s=100)
        assert not any(each["type"] == "Failed" for each in status.get("conditions") or []), status
        failed: int = status.get("failed", 0)
        return failed

    def said(self, uids: set[str]) -> set[str]:
        """The reasons that these removed pods had."""
        return {self.reasons[uid] for uid in uids}

    def some_of(self, uids: set[str]) -> tuple[str, str]:
        """One of these pods, by UID, and its node."""
        uid = min(uids)
        return uid, self._pods[uid]["spec"]["nodeName"]

    async def cordon(self, leaf: int | None = None) -> None:
        """Cordon the nodes of this leaf and uncordon all others; without a leaf uncordon all."""
        for node in await self.api.list(node_losses.NODES):
            is_closed = node["metadata"]["labels"][gangs.LEAF] == f"leaf-{leaf}"
            await self.api.merge(
                f"{node_losses.NODES}/{node['metadata']['name']}", {"spec": {"unschedulable": is_closed}}
            )

    def _of(self, name: str) -> set[str]:
        return {uid for uid, pod in self._pods.items() if pod["metadata"].get("labels", {}).get(gangs.GANG) == name}


@asynccontextmanager
async def following(api: Api) -> AsyncIterator[Disruptions]:
    """Follow the pods of a namespace until the block ends."""
    found = Disruptions(api)
    task = asyncio.create_task(found.follow())
    try:
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def furnished(kubeconfig: Path, nodes: int) -> AsyncIterator[Disruptions]:
    """The custom resources, a priority class `urgent` and two leaves of so many nodes; then pods are followed."""
    async with connect(kubeconfig) as api:
        await install(api)
        await api.create(priority_class("urgent", 100))
        await api.create_many(gangs.fabric(spines=1, leaves=2, nodes=nodes))
        async with following(api) as found:
            yield found


def configuration(**arguments: Manifest) -> Manifest:
    """The profile of gangs, with arguments of some plugins."""
    config: Manifest = yaml.safe_load(PROFILE.read_text())
    config["profiles"][0]["pluginConfig"] += [{"name": name, "args": args} for name, args in arguments.items()]
    return config


def _reason(pod: Manifest) -> str:
    conditions = pod["status"].get("conditions", [])
    return next((each["reason"] for each in conditions if each["type"] == DISRUPTION_TARGET), "")
