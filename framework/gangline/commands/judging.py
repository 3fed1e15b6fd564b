"""Shared code of commands that judge pods of a live cluster: the listed cluster, its waiting pods, and profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import click

from gangline import moments
from gangline.api.plugin import Clock
from gangline.clock import SystemClock
from gangline.config import SchedulerConfiguration
from gangline.deciding.what_if import WhatIf
from gangline.errors import Forbidden
from gangline.explain.live import load_live
from gangline.explain.refusals import Refusals
from gangline.groups import Groups
from gangline.kube.interface import Client
from gangline.kube.resources import RESOURCE_CLAIMS
from gangline.kube.versions import newest
from gangline.profile.assembly import judging_runtimes, watched_by
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.topology import Topology


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A cluster as it was when it was listed."""

    cluster: Cache
    runtimes: Mapping[str, Runtime]
    """The profiles by schedulerName; their background work never runs."""
    groups: Mapping[str, Unit]
    """The waiting groups by key, in the order of their waiting time, the longest first."""
    pending: Sequence[PodInfo] = ()
    """Every pod that waits for a node."""


async def judge(client: Client, configuration: SchedulerConfiguration, clock: Clock | None = None) -> Judged:
    """List a cluster and build the profiles of a configuration on it. Raises ApiError and GanglineError."""
    clock = clock or SystemClock()
    refusals = Refusals()
    cluster, pending = await load_live(client, with_groups=True, refusals=refusals)
    nominations = _nominations(pending)
    groups: dict[str, Unit] = {}
    runtimes: dict[str, Runtime] = {}
    judging_runtimes(
        configuration,
        cluster,
        clock=clock,
        client=client,
        grouping=Groups(cluster),
        pending=WhatIf(runtimes, cluster, lambda: nominations, groups.get, clock.monotonic),
        at_work=runtimes,
    )
    with_claims = any(pod.cls.spec.resource_claims for pod in pending)
    await _load_watched(client, cluster, list(runtimes.values()), with_claims, refusals)
    refusals.check()
    for runtime in runtimes.values():
        list(runtime.handle.placed.start_over(cluster.pods))
        mine = [pod for pod in pending if pod.scheduler_name == runtime.name]
        groups |= _waiting(runtime, mine, clock)
    return Judged(cluster, runtimes, dict(sorted(groups.items(), key=lambda item: item[1].added)), pending)


def check_level(topology: Topology, level: str) -> None:
    """Raises UsageError if --level names no level of the topology of a listed cluster."""
    if topology.find(level) is None:
        raise click.UsageError(f"--level: {level!r} is no level of the topology; the levels are: {topology.names()}")


async def _load_watched(
    client: Client, cluster: Cache, runtimes: Sequence[Runtime], with_claims: bool, refusals: Refusals
) -> None:
    """List the objects that plugins watch in addition to those of every scheduler.

    A user who may not list the objects of devices still gets right answers, unless pods wait `with_claims`. Refusals
    of the API server are noted in `refusals`.
    """
    for selection in watched_by(runtimes):
        resource, store = selection.resource, cluster.store(selection.resource)
        if len(store) or (served := await newest(client, resource)) is None:
            continue
        is_needed = with_claims or resource.group != RESOURCE_CLAIMS.group
        with refusals.noted() if is_needed else suppress(Forbidden):
            found = await client.list(
                served,
                namespace=selection.namespace or None,
                label_selector=selection.label_selector,
                field_selector=selection.field_selector,
            )
            for obj in found.items:
                store.upsert(obj)


def _waiting(runtime: Runtime, pods: Sequence[PodInfo], clock: Clock) -> dict[str, Unit]:
    members: dict[str, list[PodInfo]] = {}
    for pod in pods:
        key = runtime.group_key(pod)
        if key:
            members.setdefault(key, []).append(pod)
    now = clock.now()
    return {
        key: Unit(mine, added=clock.monotonic() - max(0.0, now - min(_created(pod, now) for pod in mine)), group=key)
        for key, mine in members.items()
    }


def _created(pod: PodInfo, now: float) -> float:
    """When a pod was created; now if nobody says so, as in a snapshot that somebody has changed."""
    try:
        return moments.moment(pod.created)
    except ValueError:
        return now


def _nominations(pending: Sequence[PodInfo]) -> dict[str, dict[str, PodInfo]]:
    found: dict[str, dict[str, PodInfo]] = {}
    for pod in pending:
        if pod.nominated_node_name:
            found.setdefault(pod.nominated_node_name, {})[pod.uid] = pod
    return found
