"""A cluster in virtual time on which pods come and go, with one scheduler that leads and one that stands by.

Rules:
- Names are never used again: those of pods, of groups and claims, of namespaces, and of nodes that autoscaling makes.
- The API server keeps little of the past, and events for a short time, so that it does not grow.
- Everything follows from the seed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import msgspec

from churn import units
from gangline import config
from gangline.errors import NotFound
from gangline.kube.interface import EventType
from gangline.kube.resources import EVENTS, GPU_NODE_STATUSES, NAMESPACES, NODES, PODS, Resource
from gangline.loop.scheduler import Options, Scheduler
from gangline.profile.registry import Catalog
from gangline.simulate import ClaimController, InMemoryServer, SimulatedClient, VirtualClock
from gangline.simulate.history import Change
from gangline.simulate.server import KNOWN
from gangline_chaos.units import Unit, driver_objects
from gangline_e2e.day.fabric import Fabric
from gangline_e2e.gpu_crds import node_status
from gangline_e2e.gpu_fleet import configuration
from gangline_e2e.workloads import Manifest

HISTORY = 2000
"""How many changes of each kind the API server keeps for watches."""
LEASES = "gangline-system"
EVENTS_S = 20.0
"""Seconds after which the API server deletes events."""
KEPT_NAMESPACES = 20
"""How many of the last namespaces are kept, because their pods may still exist."""
TICK_S = 0.1
LOOK_S = 0.0015
"""The seconds that each decision counts as, for the pauses between decisions: measured times differ in each run."""
QUIET_S = 400.0
"""Seconds after the last pod until all regular checks have run: of locks, nominations and expected placements."""
_KINDS: dict[tuple[str, str], Resource[Any]] = {(each.api_version, each.kind): each for each in KNOWN}


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast everything comes and goes."""

    pods: float = 92.6
    """Pods that come per second: 2 million in six hours."""
    runs: tuple[float, float] = (0.4, 2.4)
    """The least and the most seconds for which a unit runs."""
    waits: float = 20.0
    """Seconds after which a unit without nodes is given up."""
    pods_of_node: int = 100
    """A node comes, or goes, after so many pods."""
    pods_of_namespace: int = 500
    """A namespace is used for so many pods."""


@dataclass(slots=True, eq=False)
class _There:
    """A unit whose pods exist."""

    unit: Unit
    namespace: str
    unbound: set[str] = field(default_factory=set)


class Churn:
    """One cluster; everything is done in `play`."""

    def __init__(
        self, seed: int = 1, pace: Pace | None = None, fabric: Fabric | None = None, with_standby: bool = True
    ) -> None:
        self.clock = VirtualClock()
        self.fabric = fabric or Fabric(nodes=32, gpus=8, leaves=8, spines=2)
        self.server = InMemoryServer(self.clock, history=HISTORY, observe=self._observe)
        self.done: Counter[str] = Counter()
        """How many pods were created, bound, ended and deleted, and how many nodes created and lost."""
        self.schedulers: dict[str, Scheduler] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._pace = pace or Pace()
        self._with_standby = with_standby
        self._chance = random.Random(seed)
        self._there: dict[tuple[str, str], _There] = {}
        """The unit of each pod, by the namespace and name of the pod."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        self._bound: deque[tuple[str, str]] = deque()
        self._events: deque[tuple[float, str, str]] = deque()
        self._extra: deque[str] = deque()
        """The nodes that autoscaling has made."""
        self._namespaces: deque[str] = deque()

    # Time

    async def start(self, stack: AsyncExitStack) -> None:
        """Create the nodes, and start one scheduler that leads and one that stands by."""
        for manifest in driver_objects(self.fabric):
            self._create(manifest, "")
        for number in range(self.fabric.nodes):
            self._make_node(number, self.fabric.name(number))
        ways: dict[str, Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None]
        ways = {"leader": None, "standby": _stands_by} if self._with_standby else {"leader": None}
        for number, (name, way) in enumerate(ways.items()):
            options = Options(identity=name, seed=number, stopwatch=partial(next, itertools.count(0.0, LOOK_S)))
            client = SimulatedClient(self.server, latency={"bind": 0.004})
            scheduler = self.schedulers[name] = Scheduler(_configuration(), client, self.clock, _catalog(), options)
            self.tasks[name] = asyncio.create_task(scheduler.run(way), name=name)
            stack.push_async_callback(_ended, self.tasks[name])
        controller = asyncio.create_task(ClaimController(self.server).run(), name="claims")
        stack.push_async_callback(_ended, controller)

    async def play(self, pods: int) -> None:
        """So many pods come and go; afterwards the cluster is as it was before."""
        until = self.done["made"] + pods
        next_node, owed = self.done["made"], 0.0
        while self.done["made"] < until:
            owed += self._pace.pods * TICK_S
            while owed >= 1 and self.done["made"] < until:
                owed -= self._come()
            while self.done["made"] >= next_node:
                next_node += self._pace.pods_of_node
                self._autoscale()
            await self._pass(TICK_S)
        await self._end()

    async def _end(self) -> None:
        """All pods go, the extra nodes too, and everything comes to rest."""
        while self._there:
            await self._pass(1.0)
        while self._extra:
            self._lose_node(self._extra.popleft())
        while self._namespaces:
            self._delete(NAMESPACES, "", self._namespaces.popleft())
        for _ in range(int(QUIET_S / 5)):
            await self._pass(5.0)

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for task in self.tasks.values():
            if task.done():
                task.result()
                raise AssertionError(f"{task.get_name()} has ended")
        now = self.clock.monotonic()
        while self._bound:
            self._see_bound(self._bound.popleft())
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        while self._events and self._events[0][0] <= now:
            _, namespace, name = self._events.popleft()
            self._delete(EVENTS, namespace, name)

    def _at(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.clock.monotonic() + seconds, next(self._order), act))

    def _observe(self, resource: Resource[Any], change: Change) -> None:
        metadata = change.new.data["metadata"]
        if resource == PODS and change.type is EventType.MODIFIED and change.old is not None:
            if change.new.data["spec"].get("nodeName") and not change.old.data["spec"].get("nodeName"):
                self._bound.append((metadata["namespace"], metadata["name"]))
        elif resource == EVENTS and change.type is EventType.ADDED:
            self._events.append((self.clock.monotonic() + EVENTS_S, metadata["namespace"], metadata["name"]))

    # Units

    def _come(self) -> int:
        """The next unit comes; the number of its pods."""
        namespace = self._namespace()
        unit = units.coming(self._chance)(f"u{next(self._numbers)}")
        there = _There(unit, namespace)
        for manifest in (*unit.objects, *unit.claims, *unit.pods):
            self._create(manifest, namespace)
        for pod in unit.pods:
            self._there[namespace, pod["metadata"]["name"]] = there
            there.unbound.add(pod["metadata"]["name"])
        self.done["made"] += len(unit.pods)
        self._at(self._pace.waits, lambda: self._give_up(there))
        return len(unit.pods)

    def _see_bound(self, key: tuple[str, str]) -> None:
        """A pod is bound, and runs; when all of its unit run, their end is near."""
        there = self._there.get(key)
        if there is None:
            return
        self.done["bound"] += 1
        self._say(key, "Running")
        there.unbound.discard(key[1])
        if not there.unbound:
            self._at(self._chance.uniform(*self._pace.runs), lambda: self._finish(there))

    def _finish(self, there: _There) -> None:
        """The pods of a unit have done their work, or somebody deletes them."""
        if self._chance.random() < 0.3:
            self._remove(there)
            return
        for pod in there.unit.pods:
            key = there.namespace, pod["metadata"]["name"]
            self._say(key, "Succeeded" if self._chance.random() < 0.9 else "Failed")
            self.done["ended"] += 1
        self._at(0.5, lambda: self._remove(there))

    def _give_up(self, there: _There) -> None:
        """Delete units that have waited too long for nodes, as their users would."""
        if there.unbound and self._there.get((there.namespace, there.unit.pods[0]["metadata"]["name"])) is there:
            self.done["given up"] += len(there.unit.pods)
            self._remove(there)

    def _remove(self, there: _There) -> None:
        for pod in there.unit.pods:
            key = there.namespace, pod["metadata"]["name"]
            if self._there.pop(key, None) is not None:
                self.done["deleted"] += 1
            self._delete(PODS, *key)
        for each in (*there.unit.claims, *there.unit.objects):
            self._delete(_KINDS[each["apiVersion"], each["kind"]], there.namespace, each["metadata"]["name"])

    def _say(self, key: tuple[str, str], phase: str) -> None:
        with suppress(NotFound):
            patch = {"status": {"phase": phase}}
            self.server.patch(PODS, key[1], patch, namespace=key[0], subresource="status")

    def _namespace(self) -> str:
        name = f"team-{self.done['made'] // self._pace.pods_of_namespace}"
        if not self._namespaces or self._namespaces[-1] != name:
            self._namespaces.append(name)
            if len(self._namespaces) > KEPT_NAMESPACES:
                self._delete(NAMESPACES, "", self._namespaces.popleft())
        return name

    # Nodes

    def _autoscale(self) -> None:
        """A node comes; another one is drained, or goes under its pods."""
        self._make_node(self._chance.randrange(self.fabric.nodes), f"extra-{next(self._numbers)}")
        if len(self._extra) > self.fabric.nodes // 4:
            name = self._extra.popleft()
            if self._chance.random() < 0.5:
                self._lose_node(name)
            else:
                self.server.patch(NODES, name, {"spec": {"unschedulable": True}})
                self._at(max(self._pace.runs) + 1, lambda: self._lose_node(name))

    def _make_node(self, place: int, name: str) -> None:
        self.done["nodes made"] += 1
        self.server.create(GPU_NODE_STATUSES, node_status(name))
        report = msgspec.json.decode(
            msgspec.json.encode(self.fabric.report(place)).replace(self.fabric.name(place).encode(), name.encode())
        )
        self.server.patch(GPU_NODE_STATUSES, name, report, subresource="status")
        node = self.fabric.node(place)
        if name != self.fabric.name(place):
            self._extra.append(name)
        labels = {**node["metadata"]["labels"], "kubernetes.io/hostname": name}
        self.server.create(NODES, {**node, "metadata": {**node["metadata"], "name": name, "labels": labels}})

    def _lose_node(self, name: str) -> None:
        """A node goes with its report; the pods on it are deleted a little later."""
        self.done["nodes lost"] += 1
        self._delete(NODES, "", name)
        self._delete(GPU_NODE_STATUSES, "", name)
        self._at(3.0, lambda: self._collect(name))

    def _collect(self, node: str) -> None:
        found = [each.data["metadata"] for each in self.server.list(PODS) if each.data["spec"].get("nodeName") == node]
        for metadata in found:
            there = self._there.get((metadata["namespace"], metadata["name"]))
            if there is not None:
                self._remove(there)

    # Objects

    def _create(self, manifest: Manifest, namespace: str) -> None:
        self.server.create(_KINDS[manifest["apiVersion"], manifest["kind"]], manifest, namespace=namespace or None)

    def _delete(self, resource: Resource[Any], namespace: str, name: str) -> None:
        with suppress(NotFound):
            self.server.delete(resource, name, namespace=namespace or None, grace_period_seconds=0)


async def _stands_by(lead: Callable[[], Awaitable[None]]) -> None:
    await asyncio.Event().wait()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@cache
def _configuration() -> config.SchedulerConfiguration:
    return config.load(msgspec.json.encode(configuration(LEASES)), "configuration")


@cache
def _catalog() -> Catalog:
    return Catalog.discover()
