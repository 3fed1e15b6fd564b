"""Users and controllers: units come and go, what strangers delete is made anew, and pods of lost nodes are removed.

The pods of ReplicaSets and Jobs are made here, too, as kube-controller-manager would make them, but at once: that waits
for ever longer when pods of a Job are lost again and again, and for a minute until it removes pods of deleted nodes.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

import aiohttp

from gangline.simulate.workloads import controller, is_over, missing
from gangline_chaos import owned
from gangline_chaos.asking import change, patiently
from gangline_chaos.judge.objects import GANG
from gangline_chaos.units import CLAIMS, Unit, make
from gangline_e2e.api import Api
from gangline_e2e.day.objects import paths
from gangline_e2e.errors import Refused
from gangline_e2e.workloads import Manifest, is_bound, is_succeeded

TICK_S = 0.4
MOST_GPUS = 44
"""The most GPUs that all units ask for at the same time, of 96."""
SURGE, SURGE_GPUS = 4, 14
"""How many units come together with a fault, and for how many GPUs more they may ask then."""
PATIENCE_S = 12.0
"""Seconds after which, if pods still wait, a unit with nodes ends early: perhaps the pods lack room."""
HOMELESS_S = 6.0
"""Seconds for which pods with a controller stay on a deleted node: longer than the grace of recovery."""
FINALIZERS = {"metadata": {"finalizers": None}}


class Workload:
    """All units of a cluster, and the controllers that keep them complete."""

    def __init__(self, api: Api, rng: random.Random, seconds: tuple[float, float]) -> None:
        self._api = api
        self._rng = rng
        self._whims = random.Random(rng.random())
        """For choices that depend on timing. Units are made with the other generator, so a seed always gives the same
        units.
        """
        self._seconds = seconds
        self._units: dict[str, Unit] = {}
        self._count = 0
        self._ended = 0.0
        self.grows = True
        """Whether new units come."""
        self.surge = 0
        """The additional work that comes next: 1 for work that a fault meets, 2 for new work during the fault."""
        self.pods: dict[str, Manifest] = {}
        """The pods by name, as listed last."""
        self._homeless: dict[str, float] = {}
        """When pods were first seen on a node that there is not, by UID."""

    async def run(self) -> None:
        """Play until cancelled; what the API server refuses or does not answer is tried again."""
        while True:
            with suppress(aiohttp.ClientError, OSError, Refused):  # OSError: time-outs too
                await self._tick()
            await asyncio.sleep(TICK_S)

    async def add(self, unit: Unit) -> None:
        """A unit comes."""
        unit.made_at = time.monotonic()
        self._units[unit.name] = unit
        await self._make(unit, unit.pods)
        await self._control(unit)

    async def end(self) -> None:
        """All units go."""
        for unit in list(self._units.values()):
            await self._end(unit)

    def groups(self) -> list[str]:
        """The paths of the PodGroups of all units."""
        made = [each for unit in self._units.values() for each in unit.objects if each["kind"] == "PodGroup"]
        return paths(self._api.namespace, made)

    async def _tick(self) -> None:
        await self._collect()
        now = time.monotonic()
        for unit in list(self._units.values()):
            await self._repair(unit)
            unit.placed_at = (unit.placed_at or now) if self._is_placed(unit) else None
        await self._retire(now)
        most = MOST_GPUS + self.surge * SURGE_GPUS
        for _ in range(SURGE if self.surge else 1):
            if self.grows and sum(unit.gpus for unit in self._units.values()) < most:
                self._count += 1
                await self.add(make(self._rng, self._count, self._seconds))
        self.surge = 0

    def _is_placed(self, unit: Unit) -> bool:
        there = [self.pods.get(pod["metadata"]["name"]) for pod in unit.pods]
        controlled = [pod for pod in self._controlled(unit) if is_bound(pod) and not is_over(pod)]
        return len(controlled) >= unit.controlled and all(pod is not None and is_bound(pod) for pod in there)

    def _controlled(self, unit: Unit) -> list[Manifest]:
        """The pods of a unit that its controllers have made, as they were listed last."""
        if not unit.controlled:
            return []
        return [pod for pod in self.pods.values() if pod["metadata"].get("labels", {}).get(GANG) == unit.name]

    async def _collect(self) -> None:
        """List the pods, and remove those whose node is gone: those with a controller after a while."""
        nodes = {node["metadata"]["name"] for node in await self._api.list("/api/v1/nodes")}
        found, now = await self._api.list(self._api.pods), time.monotonic()
        homeless = [pod for pod in found if is_bound(pod) and pod["spec"]["nodeName"] not in nodes]
        self._homeless = {uid: self._homeless.get(uid, now) for uid in (pod["metadata"]["uid"] for pod in homeless)}
        lost = {
            pod["metadata"]["name"]
            for pod in homeless
            if controller(pod) is None or now - self._homeless[pod["metadata"]["uid"]] > HOMELESS_S
        }
        await self._api.delete_many(f"{self._api.pods}/{name}" for name in lost)
        self.pods = {pod["metadata"]["name"]: pod for pod in found if pod["metadata"]["name"] not in lost}

    async def _control(self, unit: Unit) -> None:
        """Make the pods that the controllers of a unit lack."""
        for each in unit.owners:
            try:
                owner = await self._api.get(owned.path_of(each, self._api.namespace))
            except Refused as error:
                if error.status != 404:
                    raise
                owner = await self._api.create(each)
            uid = owner["metadata"]["uid"]
            pods = [pod for pod in self.pods.values() if (controller(pod) or {}).get("uid") == uid]
            for pod in missing(owner, pods):
                made = await self._api.create(pod)
                self.pods[made["metadata"]["name"]] = made

    async def _repair(self, unit: Unit) -> None:
        """Make what is missing of a unit: one pod, or after a loss sometimes the whole gang anew."""
        await self._control(unit)
        lacking = [pod for pod in unit.pods if pod["metadata"]["name"] not in self.pods]
        if not lacking:
            if self._whims.random() < 0.1:
                for each in unit.objects:
                    await self._put(each)
            return
        unit.placed_at = None
        if unit.claims or (len(lacking) < len(unit.pods) and self._whims.random() < 0.5):
            for pod in unit.pods:
                await self._api.delete(f"{self._api.pods}/{pod['metadata']['name']}", at_once=True)
            await self._drop_claims(unit)
            lacking = unit.pods
        await self._make(unit, lacking)

    async def _retire(self, now: float) -> None:
        """Units that have been there for long enough go, and one more if pods wait for long."""
        placed = [unit for unit in self._units.values() if unit.placed_at is not None]
        for unit in placed:
            done = any(is_succeeded(self.pods[pod["metadata"]["name"]]) for pod in unit.pods)
            if done or now - (unit.placed_at or now) > unit.seconds:
                await self._end(unit)
        late = [unit for unit in self._units.values() if unit.placed_at is None and now - unit.made_at > PATIENCE_S]
        left = [unit for unit in placed if unit.name in self._units]
        if late and left and now - self._ended > PATIENCE_S / 2:
            await self._end(min(left, key=lambda unit: unit.made_at))

    async def _end(self, unit: Unit) -> None:
        for owner in unit.owners:
            await self._delete(owned.path_of(owner, self._api.namespace))
        for name in await self._pods_of(unit):
            await self._delete(f"{self._api.pods}/{name}")
        await self._drop_claims(unit)
        for path in unit.paths(self._api.namespace):
            await self._delete(path)
        self._units.pop(unit.name, None)
        self._ended = time.monotonic()

    async def _make(self, unit: Unit, pods: list[Manifest]) -> None:
        for each in (*unit.objects, *unit.claims, *pods):
            await self._put(each)

    async def _put(self, manifest: Manifest) -> None:
        """Create an object unless it is there."""
        try:
            await self._api.create(manifest)
        except Refused as error:
            if error.reason != "AlreadyExists":
                raise

    async def _drop_claims(self, unit: Unit) -> None:
        """Delete the claims with their finalizers, as the controller of claims would let them go."""
        for each in unit.claims:
            path = f"{CLAIMS.format(self._api.namespace)}/{each['metadata']['name']}"
            await change(self._api, path, FINALIZERS)
            await self._api.delete(path)

    async def _pods_of(self, unit: Unit) -> list[str]:
        """The names of the pods of a unit."""
        if not unit.controlled:
            return [pod["metadata"]["name"] for pod in unit.pods]
        found = await patiently(lambda: self._api.list(self._api.pods, labelSelector=f"{GANG}={unit.name}"))
        return [pod["metadata"]["name"] for pod in found]

    async def _delete(self, path: str) -> None:
        await patiently(lambda: self._api.delete(path))
