"""One simulation from start to end: load manifests, run the scheduler in virtual time, return the nodes of all pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.config import SchedulerConfiguration
from gangline.kube.resources import EVENTS, GPU_NODE_STATUSES, NODES, POD_GROUPS_V1ALPHA2, PODS, RESOURCE_CLAIMS
from gangline.loop.scheduler import Options, Scheduler
from gangline.model import Event, Node, Pod, ResourceClaim
from gangline.overview.gpu_use import GPUS, device_ids
from gangline.profile.registry import Catalog
from gangline.simulate.arrivals import Arrival, Sample, arrive, by_arrival, watch
from gangline.simulate.claim_controller import ClaimController
from gangline.simulate.client import SimulatedClient
from gangline.simulate.controller import Workloads
from gangline.simulate.folders import Sorted, sort_out
from gangline.simulate.kubelet import Kubelet
from gangline.simulate.server import InMemoryServer
from gangline.simulate.time import VirtualClock, run
from gangline.state.requests import PODS as POD_SLOTS
from gangline.state.requests import allocatable, compute
from gangline.wire.custom_resources import GPU, GpuNodeStatus

if TYPE_CHECKING:
    from gangline.simulate.filming import Film

_MOST_TOLD = 100
"""Warnings from events that are returned, at most."""
_STANDARD = ("cpu", "memory", "ephemeral-storage", POD_SLOTS)


@dataclass(slots=True)
class NodeUse:
    """A node, the pods on it, and how much of each resource they use; cpu in milli-CPU.

    GPUs of a claim or a scheduling map count as used too; a GPU that several pods share counts once.
    """

    name: str
    allocatable: dict[str, int]
    used: dict[str, int] = field(default_factory=dict)
    pods: list[str] = field(default_factory=list)
    devices: dict[str, list[int]] = field(default_factory=dict)
    """Pod to the ids of its GPUs, if they are known."""
    claimed: dict[str, list[str]] = field(default_factory=dict)
    """Pod to the devices of its ResourceClaims."""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that has no node, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of the cluster at the end."""

    nodes: list[NodeUse]
    pending: list[PendingPod]
    finished: int
    """Pods that have run to their end."""
    seconds: float
    """Seconds of virtual time."""
    decisions: int
    """Decisions on single pods and on gangs."""
    decision_seconds: float
    """Seconds of real time that all decisions took."""
    warnings: list[str]
    series: list[Sample] = field(default_factory=list)
    """Samples over time, if they were asked for."""

    @property
    def devices(self) -> list[str]:
        """The extended resources that nodes have: GPUs and the like."""
        return sorted({r for node in self.nodes for r in node.allocatable if r not in _STANDARD})


def simulate(
    paths: Sequence[str | Path] | Sorted,
    config: SchedulerConfiguration,
    seconds: float,
    seed: int = 0,
    every: float | None = None,
    film: Film | None = None,
) -> Outcome:
    """Load manifests and schedule for so many virtual seconds, with a sample of each `every` seconds.

    With a `film`, it records pictures of the cluster. Raises ConfigError and PluginError.
    """
    found = paths if isinstance(paths, Sorted) else sort_out(paths)
    clock = VirtualClock()
    server = InMemoryServer(clock)
    (_, first), *late = by_arrival(found.manifests)
    warnings = [*found.notes, *server.load_manifests(first)]
    if config.extenders:
        config = msgspec.structs.replace(config, extenders=())
        warnings.append("extenders: none of them is asked in a simulation")
    return run(_story(server, clock, config, seconds, seed, late, every, warnings, film), clock)


async def _story(
    server: InMemoryServer,
    clock: VirtualClock,
    config: SchedulerConfiguration,
    seconds: float,
    seed: int,
    late: Sequence[Arrival],
    every: float | None,
    warnings: list[str],
    film: Film | None,
) -> Outcome:
    client = SimulatedClient(server, latency={"bind": 0.002})
    scheduler = Scheduler(config, client, clock, Catalog.discover(), Options(seed=seed))
    start = clock.monotonic()
    samples: list[Sample] = []
    works = [
        scheduler.run(),
        Kubelet(server, clock).run(),
        Workloads(server).run(),
        ClaimController(server).run(),
        _arrivals(server, late, warnings),
    ]
    if every is not None:
        works.append(watch(server, scheduler, clock, every, samples))
    if film is not None:
        works.append(film.record(scheduler, clock))
    async with _at_work(works) as tasks:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        if film is not None:
            film.take()
        outcome = await _outcome(client, scheduler, clock.monotonic() - start)
    return replace(outcome, warnings=[*warnings, *outcome.warnings], series=samples)


async def _outcome(client: SimulatedClient, scheduler: Scheduler, seconds: float) -> Outcome:
    """The state of the cluster after so many virtual seconds, and the numbers of the scheduler's decisions."""
    nodes = (await client.list(NODES)).items
    pods = (await client.list(PODS)).items
    reports = (await client.list(GPU_NODE_STATUSES)).items
    claims = (await client.list(RESOURCE_CLAIMS)).items
    events = (await client.list(EVENTS)).items
    runtimes = scheduler.runtimes.values()
    series = [each for runtime in runtimes for each in (runtime.algorithm_seconds, runtime.group_seconds)]
    return Outcome(
        nodes=_uses(nodes, pods, reports, claims),
        pending=[PendingPod(_key(pod), why_pending(pod, scheduler)) for pod in pods if not pod.spec.node_name],
        finished=sum(pod.status.phase in ("Succeeded", "Failed") for pod in pods),
        seconds=seconds,
        decisions=sum(each.count for each in series),
        decision_seconds=sum(each.total for each in series),
        warnings=_told(events),
    )


@asynccontextmanager
async def _at_work(works: Sequence[Coroutine[Any, Any, None]]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run the coroutines as tasks, which are cancelled at the end of the block."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _arrivals(server: InMemoryServer, late: Sequence[Arrival], warnings: list[str]) -> None:
    """As `arrive`, but never returns, so that the other tasks go on."""
    await arrive(server, late, warnings)
    await asyncio.Event().wait()


def _uses(
    nodes: Sequence[Node], pods: Sequence[Pod], reports: Sequence[GpuNodeStatus], claims: Sequence[ResourceClaim]
) -> list[NodeUse]:
    claimed = _claimed(claims, pods)
    uses = {
        node.metadata.name: NodeUse(node.metadata.name, allocatable(node.status.allocatable, node.metadata.name))
        for node in nodes
    }
    for report in reports:
        if report.metadata.name in uses and report.status.devices:
            uses[report.metadata.name].allocatable.setdefault(GPU, len(report.status.devices))
    requested: dict[str, set[int]] = {}
    given: dict[str, set[int]] = {}
    for pod in pods:
        use = uses.get(pod.spec.node_name)
        if use is None or pod.status.phase in ("Succeeded", "Failed"):
            continue
        use.pods.append(_key(pod))
        if pod.metadata.uid in claimed:
            use.claimed[_key(pod)] = claimed[pod.metadata.uid]
        real = compute(pod.spec).real
        for resource, amount in real.items():
            use.used[resource] = use.used.get(resource, 0) + amount
        if ids := device_ids(pod.metadata.annotations or {}):
            use.devices[_key(pod)] = list(ids)
            by = requested if any(real.get(resource) for resource in GPUS) else given
            by.setdefault(use.name, set()).update(ids)
    for name, held in given.items():
        uses[name].used[GPU] = uses[name].used.get(GPU, 0) + len(held - requested.get(name, set()))
    return sorted(uses.values(), key=lambda use: use.name)


def _claimed(claims: Sequence[ResourceClaim], pods: Sequence[Pod]) -> dict[str, list[str]]:
    """UID of a pod to the devices of the claims that are reserved for the pod or its PodGroup, claim by claim."""
    members: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        for name in _claims_of_group(pod):
            members.setdefault((pod.metadata.namespace, name), []).append(pod.metadata.uid)
    found: dict[str, list[str]] = {}
    for claim in claims:
        for consumer in claim.status.reserved_for:
            is_group = consumer.resource == POD_GROUPS_V1ALPHA2.plural
            key = claim.metadata.namespace, claim.metadata.name
            for uid in members.get(key, ()) if is_group else (consumer.uid,):
                found.setdefault(uid, []).extend(result.device for result in claim.status.results)
    return found


def _claims_of_group(pod: Pod) -> set[str]:
    """The names of the claims that a pod of a PodGroup uses, its own and those of the group."""
    if pod.spec.scheduling_group is None:
        return set()
    made = [each.resource_claim_name for each in pod.status.resource_claim_statuses]
    return {name for name in (*made, *(each.resource_claim_name for each in pod.spec.resource_claims)) if name}


def why_pending(pod: Pod, scheduler: Scheduler) -> str:
    """Why a pod has no node, as the scheduler says."""
    unit = scheduler.queue.get(pod.metadata.uid)
    if unit is None:
        return f"no profile serves the scheduler name {pod.spec.scheduler_name}"
    return unit.message or "not yet tried"


def _told(events: Sequence[Event]) -> list[str]:
    """The warnings in events, each once, without the reasons why pods wait."""
    told = dict.fromkeys(
        f"{event.regarding.kind} {event.regarding.namespace}/{event.regarding.name}: {event.reason}: {event.note}"
        for event in events
        if event.regarding is not None and event.type == "Warning" and event.reason != "FailedScheduling"
    )
    more = len(told) - _MOST_TOLD
    return [*list(told)[:_MOST_TOLD], *([f"{more} more events warn of something"] if more > 0 else [])]


def _key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
