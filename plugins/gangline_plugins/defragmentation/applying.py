"""Carries out a plan: has the room kept, evicts the pods batch by batch, and waits for their replacements. Does all the
I/O.

Rules:
- Nothing is evicted before a scheduler confirms that it keeps the room for the replacements and the freed nodes.
- Pods are evicted through the Eviction API, so the API server enforces PodDisruptionBudgets.
- A batch begins when all replacements of the batch before it are on their planned nodes.
- At the first deviation from the plan, the run moves nothing more, deletes the record and reports the deviation. A pod
  that is gone before its eviction is no deviation: its room is free.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from gangline import Clock, Conflict, GanglineError, NotFound, PatchKind, TooManyRequests, model, resources
from gangline_plugins.defragmentation import record as records
from gangline_plugins.defragmentation.arguments import DefragmentationArgs
from gangline_plugins.defragmentation.checking import changed, lacks_room
from gangline_plugins.defragmentation.following import Following
from gangline_plugins.defragmentation.plan import Move, MovePlan, MoveStep
from gangline_plugins.defragmentation.record import CONFIG_MAP, Record, owner_in
from gangline_plugins.preemption.removing import evict_patiently

_ANSWER = 30.0
"""Seconds within which a scheduler has to confirm that it keeps the room."""


class Stopped(GanglineError):
    """Something deviated from the plan, so nothing more is moved."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"stopped: {self.why}"


class Applying:
    """Carries out plans one at a time; `say` is called with one line for each step."""

    def __init__(self, client: Any, clock: Clock, args: DefragmentationArgs, say: Callable[[str], None]) -> None:
        self._client = client
        self._clock = clock
        self._args = args
        self._say = say
        self._pods = Following(client)

    async def carry_out(self, plan: MovePlan, record: Record) -> None:
        """Carry out all moves; the group has its nodes at the end. Raises Stopped and ApiError."""
        failure: GanglineError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                follower = group.create_task(self._pods.run())
                await self._within_record(plan, record)
                follower.cancel()
        except* GanglineError as failures:
            failure = _first(failures)
        if failure is not None:
            raise failure

    async def _within_record(self, plan: MovePlan, record: Record) -> None:
        await self._pods.listed.wait()
        await self._write_down(record)
        try:
            await self._kept(record)
            await self._move_all(plan, record)
        finally:
            await self._clear(record)

    # The record

    async def _write_down(self, record: Record) -> None:
        meta = model.ObjectMeta(name=CONFIG_MAP, namespace=self._args.namespace)
        made = model.ConfigMap(metadata=meta, data=records.written(self._renewed(record)))
        try:
            await self._client.create(resources.CONFIG_MAPS, made)
        except Conflict:
            await self._remove_stale()
            await self._client.create(resources.CONFIG_MAPS, made)

    async def _remove_stale(self) -> None:
        """Remove the record that an earlier run has left behind. Raises Stopped if it has not expired."""
        found = await self._client.get(resources.CONFIG_MAPS, CONFIG_MAP, namespace=self._args.namespace)
        if records.read(found).until > self._clock.now():
            place = f"ConfigMap {self._args.namespace}/{CONFIG_MAP}"
            raise Stopped(f"pods are being moved already, for {records.read(found).goal} ({place})")
        await self._delete(found)

    async def _delete(self, found: model.ConfigMap) -> None:
        meta = found.metadata
        await self._client.delete(resources.CONFIG_MAPS, meta.name, namespace=meta.namespace, uid=meta.uid)

    async def _clear(self, record: Record) -> None:
        try:
            found = await self._client.get(resources.CONFIG_MAPS, CONFIG_MAP, namespace=self._args.namespace)
            if records.read(found).id == record.id:
                await self._delete(found)
        except NotFound:
            return

    async def _kept(self, record: Record) -> None:
        """Wait until a scheduler confirms that it keeps the room. Raises Stopped."""
        try:
            async with asyncio.timeout(_ANSWER):
                while True:
                    found = await self._client.get(resources.CONFIG_MAPS, CONFIG_MAP, namespace=self._args.namespace)
                    if records.held(found) == record.id:
                        return
                    await self._next_change(found.metadata.resource_version)
        except TimeoutError:
            why = f'no scheduler keeps room for what is moved: is Defragmentation in the profile "{record.profile}"?'
            raise Stopped(why) from None

    async def _next_change(self, version: str) -> None:
        events = self._client.watch(
            resources.CONFIG_MAPS,
            resource_version=version,
            namespace=self._args.namespace,
            field_selector=f"metadata.name={CONFIG_MAP}",
        )
        async with aclosing(events):
            async for event in events:
                if event.object is not None:
                    return

    async def _renew(self, record: Record) -> None:
        await self._client.patch(
            resources.CONFIG_MAPS,
            CONFIG_MAP,
            {"data": records.written(self._renewed(record))},
            namespace=self._args.namespace,
            kind=PatchKind.MERGE,
        )

    def _renewed(self, record: Record) -> Record:
        """The record with a later expiry: long enough for each wait of one batch, and for the last wait for the
        group.
        """
        until = self._clock.now() + 4 * self._args.timeout_seconds
        return msgspec.structs.replace(record, until=until)

    # Moving

    async def _move_all(self, plan: MovePlan, record: Record) -> None:
        arrivals = _Arrivals(self._pods, plan.steps)
        for number, batch in enumerate(plan.batches):
            if plan.group and self._has_started(plan):
                self._say(f"{plan.goal} has its nodes: no more moves are needed")
                return
            if number:
                await self._renew(record)
            await self._move(batch, arrivals)
        if plan.group and not await self._pods.until(lambda: self._has_started(plan), self._args.timeout_seconds):
            raise Stopped(f"{plan.goal} has not started although all moves are done")

    async def _move(self, batch: Sequence[Move], arrivals: _Arrivals) -> None:
        evicting: list[tuple[MoveStep, asyncio.Task[bool]]] = []
        nodes = (await self._client.list(resources.NODES)).items
        if why := changed(batch, self._pods.pods):
            raise Stopped(why)
        # Pods evicted earlier may still be terminating; their room is taken until they are gone.
        await self._pods.until(lambda: not lacks_room(batch, self._pods.pods, nodes), self._args.timeout_seconds)
        if why := lacks_room(batch, self._pods.pods, nodes):
            raise Stopped(why)
        async with asyncio.TaskGroup() as group:
            for move in batch:
                self._say(f"moving {move.name}: {_path(move)}")
                evicting += [(step, group.create_task(self._evict(step))) for step in move.steps]
        arrivals.expect([step for step, task in evicting if task.result()])
        await self._pods.until(lambda: arrivals.are_all_there() or arrivals.are_elsewhere(), self._args.timeout_seconds)
        if not arrivals.are_all_there():
            raise Stopped(arrivals.what_is_missing())

    async def _evict(self, step: MoveStep) -> bool:
        """Have a pod evicted; False if the pod is gone: its room is free, and nobody says whether another one comes."""
        try:
            which = step.namespace, step.name, step.uid
            await evict_patiently(self._client, self._clock, which, self._args.timeout_seconds)
            return True
        except NotFound:
            return False
        except TooManyRequests as error:
            raise Stopped(f"pod {step.namespace}/{step.name} may not be evicted: {error.message}") from None

    def _has_started(self, plan: MovePlan) -> bool:
        found = (self._pods.pods.get(uid) for uid in plan.members)
        return sum(pod is not None and bool(pod.spec.node_name) for pod in found) >= plan.needed


class _Arrivals:
    """Which controllers have new pods on nodes since the moves began."""

    def __init__(self, pods: Following, steps: Sequence[MoveStep]) -> None:
        self._pods = pods
        self._names = {step.owner: f"{step.namespace}/{step.name}" for step in steps}
        self._before = {uid for uid, pod in pods.pods.items() if pod.spec.node_name}
        self._nodes: dict[str, set[str]] = {owner: set() for owner in self._names}
        for step in steps:
            self._nodes[step.owner].add(step.destination)
        self._expected: Counter[str] = Counter()

    def expect(self, steps: Sequence[MoveStep]) -> None:
        """Expect one more new pod for each of these steps."""
        self._expected.update(step.owner for step in steps)

    def are_all_there(self) -> bool:
        """Whether each controller has as many new pods on planned nodes as pods were evicted."""
        return not self._late()

    def are_elsewhere(self) -> bool:
        """Whether a controller has as many new pods as were evicted, but some of them on other nodes than planned."""
        there = Counter(owner for owner, _ in self._arrived())
        return any(there[owner] >= self._expected[owner] for owner in self._late())

    def what_is_missing(self) -> str:
        """Which replacement is missing, or which one went to a different node."""
        late = self._late()
        for owner, pod in self._arrived():
            if owner in late and pod.spec.node_name not in self._nodes[owner]:
                return f"pod {pod.metadata.namespace}/{pod.metadata.name} went to node {pod.spec.node_name}, unplanned"
        names = [self._names[owner] for owner in late]
        return f"no pod has a node in place of {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"

    def _late(self) -> list[str]:
        """The controllers whose new pods are not all on planned nodes."""
        there = Counter(owner for owner, pod in self._arrived() if pod.spec.node_name in self._nodes[owner])
        return [owner for owner, number in self._expected.items() if there[owner] < number]

    def _arrived(self) -> list[tuple[str, model.Pod]]:
        found = []
        for uid, pod in self._pods.pods.items():
            if uid not in self._before and pod.spec.node_name and pod.metadata.deletion_timestamp is None:
                controller = next((each for each in pod.metadata.owner_references if each.controller), None)
                owner = owner_in(pod.metadata.namespace, controller)
                if owner in self._nodes:
                    found.append((owner, pod))
        return found


def _first(failures: BaseExceptionGroup[GanglineError]) -> GanglineError:
    """The first failure of a group of failures, which may be nested."""
    found = failures.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


def _path(move: Move) -> str:
    """The source and destination of the first steps, for example "a -> b"."""
    shown = [f"{step.source} -> {step.destination}" for step in move.steps[:2]]
    more = len(move.steps) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
