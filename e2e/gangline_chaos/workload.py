"""Users and controllers: units come and go, what strangers delete is made anew, and pods of lost nodes are removed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from contextlib import suppress

import aiohttp

from gangline_chaos.units import CLAIMS, Unit, make
from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.workloads import Manifest, is_bound, is_succeeded

TICK_S = 0.4
RETRY_S = 0.2
MOST_GPUS = 44
"""That units ask for at a time, of 96."""
SURGE, SURGE_GPUS = 4, 14
"""Units that come together with a fault, and how many GPUs more are asked for then."""
PATIENCE_S = 12.0
"""When pods wait longer, a unit that has its nodes ends early: perhaps the pods lack room."""
FINALIZERS = {"metadata": {"finalizers": None}}


class Workload:
    """Everything that is wanted of a cluster, and the controllers that keep it so."""

    def __init__(self, api: Api, rng: random.Random, seconds: tuple[float, float]) -> None:
        self._api = api
        self._rng = rng
        self._whims = random.Random(rng.random())
        """For what depends on when things happen: the units are the same for each seed."""
        self._seconds = seconds
        self._units: dict[str, Unit] = {}
        self._count = 0
        self._ended = 0.0
        self.grows = True
        """Whether new units come."""
        self.surge = 0
        """More work comes next: 1 so that a fault meets work in progress, 2 for new work during the fault."""
        self.pods: dict[str, Manifest] = {}
        """By name, as they were listed last."""

    @property
    def count(self) -> int:
        """How many units there were."""
        return self._count

    @property
    def has_units(self) -> bool:
        """Whether there are any."""
        return bool(self._units)

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

    async def end(self, names: Iterable[str] | None = None) -> None:
        """Units go, all of them if none are named."""
        for name in list(self._units) if names is None else list(names):
            await self._end(self._units[name])

    def waiting(self) -> set[str]:
        """The UIDs of the pods without a node, as they were listed last."""
        return {pod["metadata"]["uid"] for pod in self.pods.values() if not is_bound(pod)}

    def bound(self) -> list[str]:
        """The names of the pods with a node."""
        return sorted(name for name, pod in self.pods.items() if is_bound(pod))

    def groups(self) -> list[str]:
        """Where the PodGroups of all units are."""
        own = [(unit, each) for unit in self._units.values() for each in unit.objects if each["kind"] == "PodGroup"]
        return [Unit("", 0, [each], [], [], 0.0).paths(self._api.namespace)[0] for _, each in own]

    async def _tick(self) -> None:
        await self._collect()
        now = time.monotonic()
        for unit in list(self._units.values()):
            await self._repair(unit)
            there = [self.pods.get(pod["metadata"]["name"]) for pod in unit.pods]
            is_placed = all(pod is not None and is_bound(pod) for pod in there)
            unit.placed_at = (unit.placed_at or now) if is_placed else None
        await self._retire(now)
        most = MOST_GPUS + self.surge * SURGE_GPUS
        for _ in range(SURGE if self.surge else 1):
            if self.grows and sum(unit.gpus for unit in self._units.values()) < most:
                self._count += 1
                await self.add(make(self._rng, self._count, self._seconds))
        self.surge = 0

    async def _collect(self) -> None:
        """List the pods, and remove those whose node is gone."""
        nodes = {node["metadata"]["name"] for node in await self._api.list("/api/v1/nodes")}
        found = await self._api.list(self._api.pods)
        lost = [pod["metadata"]["name"] for pod in found if is_bound(pod) and pod["spec"]["nodeName"] not in nodes]
        await self._api.delete_many(f"{self._api.pods}/{name}" for name in lost)
        self.pods = {pod["metadata"]["name"]: pod for pod in found if pod["metadata"]["name"] not in lost}

    async def _repair(self, unit: Unit) -> None:
        """Make what is missing of a unit: one pod, or after a loss sometimes the whole gang anew."""
        missing = [pod for pod in unit.pods if pod["metadata"]["name"] not in self.pods]
        if not missing:
            if self._whims.random() < 0.1:
                for each in unit.objects:
                    await self._put(each)
            return
        unit.placed_at = None
        if unit.claims or (len(missing) < len(unit.pods) and self._whims.random() < 0.5):
            for pod in unit.pods:
                await self._api.delete(f"{self._api.pods}/{pod['metadata']['name']}", at_once=True)
            await self._drop_claims(unit)
            missing = unit.pods
        await self._make(unit, missing)

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
        for pod in unit.pods:
            await self._delete(f"{self._api.pods}/{pod['metadata']['name']}")
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
            try:
                await self._api.merge(path, FINALIZERS)
            except Refused as error:
                if error.status != 404:
                    raise
            await self._api.delete(path)

    async def _delete(self, path: str) -> None:
        """Delete an object, again and again until the API server answers."""
        while True:
            try:
                return await self._api.delete(path)
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(RETRY_S)
            except Refused as error:
                if error.status < 429:
                    raise
                await asyncio.sleep(RETRY_S)
