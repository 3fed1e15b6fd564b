"""The effect of changes of a cluster: one simulation without the changes, one with the changes, and the difference.

Both simulations start from the same snapshot with the same seed and run for the same time, so every difference comes
from the changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import msgspec

from gangline import config
from gangline.config import SchedulerConfiguration
from gangline.errors import InvalidObject
from gangline.explain.snapshots import Snapshot
from gangline.groups.gpu_count import gpus_of
from gangline.kube.resources import PODS
from gangline.loop.scheduler import Options, Scheduler
from gangline.model import Pod
from gangline.overview.summary import Gpus, LevelUse, overview
from gangline.profile.registry import Catalog
from gangline.profile.runtime import first_grouping
from gangline.simulate.arrivals import arrive, by_arrival
from gangline.simulate.changing import NewNodes, add_nodes, drain
from gangline.simulate.claim_controller import ClaimController
from gangline.simulate.client import SimulatedClient
from gangline.simulate.cluster import running
from gangline.simulate.controller import Workloads
from gangline.simulate.kubelet import Kubelet
from gangline.simulate.manifests import Manifest
from gangline.simulate.replacing import Replacements
from gangline.simulate.restoring import restore
from gangline.simulate.server import InMemoryServer
from gangline.simulate.session import why_pending
from gangline.simulate.time import VirtualClock, run
from gangline.simulate.workloads import FINISHED
from gangline.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class SupposedChanges:
    """The changes of the snapshot that a user supposes."""

    manifests: Sequence[Manifest] = ()
    drains: Sequence[str] = ()
    new_nodes: Sequence[NewNodes] = ()
    configuration: SchedulerConfiguration | None = None
    """Other profiles than those of the snapshot."""

    def __bool__(self) -> bool:
        return bool(self.manifests or self.drains or self.new_nodes or self.configuration)


class Side(msgspec.Struct, frozen=True, rename="camel"):
    """The cluster at the end of one of the two simulations."""

    nodes: int
    placed: int
    """Pods that have a node and have not ended."""
    waiting: int
    gpus: Gpus
    levels: list[LevelUse]


class PodDifference(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that differs: it is on another node, waits in one simulation only, or exists in one simulation only."""

    pod: str
    gpus: int
    before: str
    """The node without the changes; "" if the pod waits or is not there."""
    after: str
    """The node with the changes; "" if the pod waits or is not there."""
    why: str
    """Why the pod has no node after the changes; "" if it has one."""


class WaitDifference(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that waits in one of the two simulations."""

    pod: str
    before: str | None
    """Why the pod waits without the changes; null if it does not wait."""
    after: str | None
    """Why the pod waits with the changes; null if it does not wait."""


class Difference(msgspec.Struct, frozen=True, rename="camel"):
    """The difference that changes make."""

    source: str
    """Where the cluster comes from."""
    seconds: float
    """Seconds of virtual time of each simulation."""
    before: Side
    after: Side
    pods: list[PodDifference]
    waiting: list[WaitDifference]
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class _End:
    """The end of one simulation: the pods by their keys."""

    side: Side
    nodes: Mapping[str, str]
    why: Mapping[str, str]
    """Why pods wait."""
    gpus: Mapping[str, int]
    ended: Set[str]


def compare(snapshot: Snapshot, source: str, changes: SupposedChanges, seconds: float, seed: int = 0) -> Difference:
    """Simulate a snapshot without and with the changes. Raises ConfigError and PluginError; `source` names it there."""
    served = config.load(snapshot.configuration, source)
    warnings: list[str] = []
    before, _ = _simulated(snapshot, source, SupposedChanges(configuration=served), seconds, seed, warnings)
    with_profiles = msgspec.structs.replace(changes.configuration or served, extenders=())
    changed = SupposedChanges(changes.manifests, changes.drains, changes.new_nodes, with_profiles)
    after, gone = _simulated(snapshot, source, changed, seconds, seed, warnings)
    if changes.configuration is not None and changes.configuration.extenders:
        warnings.append("extenders: none of them is asked in a simulation")
    warnings += _in_no_namespace(snapshot, changes.manifests)
    return Difference(
        source=source,
        seconds=seconds,
        before=before.side,
        after=after.side,
        pods=_different(before, after, gone),
        waiting=[
            WaitDifference(key, before.why.get(key), after.why.get(key)) for key in sorted({*before.why, *after.why})
        ],
        warnings=list(dict.fromkeys(warnings)),
    )


def _in_no_namespace(snapshot: Snapshot, manifests: Sequence[Manifest]) -> list[str]:
    """A warning for each namespace of a manifest that neither the cluster nor a manifest has."""
    lists = [each.items for each in snapshot.lists if each.resource == "v1/namespaces"]
    if not lists:
        return []
    there = {item["metadata"]["name"] for items in lists for item in items}
    made = [each.data["metadata"] for each in manifests if each.data["kind"] == "Namespace"]
    there |= {metadata["name"] for metadata in made}
    named = {each.data["metadata"].get("namespace") or "default" for each in manifests}
    why = "is not in the cluster: `kubectl apply` would refuse what is simulated in it"
    return [f"namespace {name} {why}" for name in sorted(named - there)]


def _different(before: _End, after: _End, gone: Mapping[str, str]) -> list[PodDifference]:
    """The pods that differ, first the pods without a node after the changes."""
    found = []
    for key in {*before.nodes, *before.why, *after.nodes, *after.why}:
        is_there = [key in end.nodes or key in end.why for end in (before, after)]
        old, new = before.nodes.get(key, ""), after.nodes.get(key, "")
        if old != new or not all(is_there):
            otherwise = "has ended" if key in after.ended else gone.get(key, "is gone")
            why = "" if new else after.why.get(key, otherwise)
            gpus = after.gpus.get(key, before.gpus.get(key, 0))
            found.append(PodDifference(key, gpus, old, new, why))
    return sorted(found, key=lambda each: (bool(each.after), each.pod))


def _simulated(
    snapshot: Snapshot, source: str, changes: SupposedChanges, seconds: float, seed: int, warnings: list[str]
) -> tuple[_End, Mapping[str, str]]:
    """The end of a simulation, and the pods that are gone for good, with the reason."""
    clock = VirtualClock(snapshot.taken_at)
    server = InMemoryServer(clock)
    warnings += restore(snapshot, server, source)
    add_nodes(server, changes.new_nodes)
    gone = drain(server, changes.drains)
    controllers = Replacements(server)
    (_, first), *late = by_arrival(changes.manifests)
    warnings += server.load_manifests(first)
    assert changes.configuration is not None
    scheduler = Scheduler(
        changes.configuration,
        SimulatedClient(server, latency={"bind": 0.002}),
        clock,
        Catalog.discover(),
        Options(seed=seed),
        Metrics(warns_of_slow=False),
    )
    works = (
        scheduler.run(),
        Kubelet(server, clock).run(),
        Workloads(server).run(),
        controllers.run(),
        ClaimController(server).run(),
        arrive(server, late, warnings),
    )

    async def story() -> _End:
        async with running(*works):
            await asyncio.sleep(seconds)
            return _end(server, scheduler)

    return run(story(), clock), gone


def _end(server: InMemoryServer, scheduler: Scheduler) -> _End:
    nodes: dict[str, str] = {}
    why: dict[str, str] = {}
    ended: set[str] = set()
    gpus: dict[str, int] = {}
    waiting, cache = [], scheduler.cache
    for pod in (msgspec.convert(each.data, Pod) for each in server.list(PODS)):
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if pod.status.phase in FINISHED:
            ended.add(key)
            continue
        if pod.spec.node_name:
            nodes[key] = pod.spec.node_name
        else:
            why[key] = why_pending(pod, scheduler)
        try:
            record = cache.pods.get(pod.metadata.uid) or cache.record(pod)
        except InvalidObject:  # the scheduler leaves it out, too
            continue
        gpus[key] = gpus_of(record, cache)
        if not pod.spec.node_name:
            waiting.append(record)
    runtimes = list(scheduler.runtimes.values())
    seen = overview(cache, waiting, (first_grouping(runtimes) or runtimes[0]).topology)
    there = int(cache.nodes.alive[: cache.nodes.size].sum())
    return _End(Side(there, len(nodes), len(why), seen.gpus, seen.levels), nodes, why, gpus, ended)
