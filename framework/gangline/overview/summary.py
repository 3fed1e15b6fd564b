"""The cluster at a glance: GPUs, waiting pods with the reason, and groups with their places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from gangline.api.pod_group import Membership, PodGroup, Problem
from gangline.groups import Groups
from gangline.overview.claim_use import ClaimUse, claim_use, lacks_claim, why_waiting
from gangline.overview.device_use import DeviceUse, device_use
from gangline.overview.domain_use import DomainUse, domain_use, ready_nodes
from gangline.overview.gpu_use import gpu_use
from gangline.overview.shown import ALL, Shown
from gangline.state.cache import Cache
from gangline.state.node_view import Int64Column
from gangline.state.pods import PodInfo
from gangline.state.topology import Domains, Topology
from gangline.wire.custom_resources import GPU

_START = re.compile(r"estimated start (\S+)")
_KEPT = re.compile(
    r"room is kept on ([0-9]{1,9}) nodes .{1,300} with ([0-9]{1,9}) GPUs since (\S+), until (\S+) at most"
)


class Gpus(msgspec.Struct, rename="camel"):
    """The GPUs of the cluster, and how well they are used."""

    nodes: int
    total: int
    used: int
    free: int
    stranded: int
    """Free GPUs on nodes where no running or waiting pod with GPUs would fit."""
    empty_nodes: int
    """Nodes with only free GPUs."""
    partial_nodes: int
    """Nodes that are neither empty nor full."""
    utilization: float
    """The share of GPUs in use, 0..1; 0 without GPUs."""
    efficiency: float
    """The share of GPUs that are in use or that some pod could use, 0..1; 0 without GPUs."""


class LevelUse(msgspec.Struct, rename="camel"):
    """The domains of one level of the network."""

    level: str
    domains: int
    complete: int
    """Domains with only free GPUs."""


class InDomain(msgspec.Struct, rename="camel"):
    """The content of one domain of the network."""

    level: str
    domain: str
    """The name of the domain after the names of the wider domains."""
    nodes: int
    ready: int
    """Nodes of the domain whose condition Ready is True."""
    gpus: int
    used: int


class ReservedRoom(msgspec.Struct, rename="camel"):
    """Room that the scheduler keeps for a group."""

    nodes: int
    gpus: int
    since: str
    """RFC 3339."""
    until: str
    """RFC 3339: the time at which the reservation ends at the latest."""


class Gang(msgspec.Struct, rename="camel"):
    """One group."""

    name: str
    dialect: str
    min_member: int
    placed: int
    waiting: int
    where: list[str]
    """The narrowest domains with pods of the group, at most a few."""
    estimated_start: str = ""
    """RFC 3339, if the scheduler keeps room for the group."""
    message: str = ""
    reserved: ReservedRoom | None = None


class WaitingUnits(msgspec.Struct, rename="camel"):
    """A pod on its own that waits, and the reason."""

    pod: str
    scheduler_name: str
    message: str


class NotShown(msgspec.Struct, rename="camel"):
    """The numbers of objects that are not shown, because they have another namespace or other labels."""

    gangs: int
    waiting: int
    """Pods that wait and belong to no gang."""


class Overview(msgspec.Struct, rename="camel"):
    """What `gangline status` shows."""

    gpus: Gpus
    levels: list[LevelUse]
    domains: list[InDomain]
    """The domains of all levels, the widest level first, in the order of the topology."""
    gangs: list[Gang]
    waiting: list[WaitingUnits]
    devices: DeviceUse
    """The devices of dynamic resource allocation."""
    claims: list[ClaimUse]
    """All ResourceClaims; those that wait come first."""
    serves: list[str] | None = None
    """The schedulerNames that the running scheduler serves; None if no running scheduler is known."""
    not_shown: NotShown | None = None
    """The numbers of objects that the user has not asked for; None if the user has asked for everything."""


MOST_DOMAINS = 3
"""Domains that are named for one group, at most."""


def overview(
    cluster: Cache,
    pending: Sequence[PodInfo],
    topology: Topology,
    serves: Sequence[str] | None = None,
    shown: Shown = ALL,
) -> Overview:
    """The cluster with its bound pods, and the pods that wait for a node.

    `serves` has the schedulerNames of the running scheduler; None if no running scheduler is known. GPUs, levels and
    devices are those of the whole cluster; gangs, pods and claims are those that are `shown`.
    """
    use = gpu_use(cluster)
    total, used = use.total, use.used
    nodes = cluster.nodes.objects[: cluster.nodes.size]
    domains = domain_use(topology.switches(), nodes, ready_nodes(nodes), use)
    groups = Groups(cluster)
    waiting, members = _split(pending, groups)
    _, placed = _split(cluster.pods.values(), groups)
    gangs = list(_gangs(placed, groups, members, topology, serves, shown))
    alone = [pod for pod in waiting if shown.has(pod)]
    return Overview(
        gpus=_gpus(cluster, total, used, pending),
        levels=[LevelUse(each.level.level, len(each.level), _complete(each)) for each in domains],
        domains=[found for each in domains for found in _in_domains(each)],
        gangs=sorted(gangs, key=lambda gang: (not gang.waiting, gang.name)),
        waiting=sorted((_waiting(pod, serves, cluster) for pod in alone), key=lambda each: each.pod),
        devices=device_use(cluster),
        claims=shown.claims(claim_use(cluster, pending), (*cluster.pods.values(), *pending)),
        serves=None if serves is None else list(serves),
        not_shown=None
        if shown == ALL
        else NotShown(len({**members, **placed}) - len(gangs), len(waiting) - len(alone)),
    )


def _gpus(cluster: Cache, total: Int64Column, used: Int64Column, pending: Sequence[PodInfo]) -> Gpus:
    has = total > 0
    free = total - used
    kinds = {pod.cls.id: pod for pod in (*cluster.pods.values(), *pending) if pod.cls.requests.real.get(GPU)}
    useful = np.zeros(len(total), dtype=np.bool_)
    for pod in kinds.values():
        useful |= _fits(cluster, pod)
    stranded = int(free[~useful].sum()) if kinds else 0
    there = int(total.sum())
    return Gpus(
        nodes=int(has.sum()),
        total=there,
        used=int(used.sum()),
        free=int(free.sum()),
        stranded=stranded,
        empty_nodes=int((has & (used == 0)).sum()),
        partial_nodes=int((has & (used > 0) & (free > 0)).sum()),
        utilization=int(used.sum()) / there if there else 0.0,
        efficiency=1.0 - stranded / there if there else 0.0,
    )


def _fits(cluster: Cache, pod: PodInfo) -> np.ndarray:
    nodes, cls = cluster.nodes, pod.cls
    fits = nodes.alive[: nodes.size] & ~nodes.unschedulable[: nodes.size]
    for resource, amount in cls.takes:
        fits &= nodes.free[resource, : nodes.size] >= amount
    return fits


def _complete(use: DomainUse) -> int:
    return int(((use.gpus > 0) & (use.used == 0)).sum())


def _in_domains(use: DomainUse) -> Iterable[InDomain]:
    columns = (use.nodes, use.ready, use.gpus, use.used)
    for domain in np.argsort(use.level.order).tolist():
        yield InDomain(use.level.level, use.level.path(domain), *(int(column[domain]) for column in columns))


def _split(pods: Iterable[PodInfo], groups: Groups) -> tuple[list[PodInfo], dict[str, list[PodInfo]]]:
    """Pods on their own, and the members of each group."""
    alone: list[PodInfo] = []
    members: dict[str, list[PodInfo]] = {}
    for pod in pods:
        membership = groups.of(pod)
        if membership is None:
            alone.append(pod)
        else:
            key = membership.key if isinstance(membership, Problem) else membership.group.key
            members.setdefault(key, []).append(pod)
    return alone, members


def _gangs(
    placed: Mapping[str, list[PodInfo]],
    groups: Groups,
    waiting: Mapping[str, list[PodInfo]],
    topology: Topology,
    serves: Sequence[str] | None,
    shown: Shown,
) -> Iterable[Gang]:
    levels = topology.switches()
    for key in {**waiting, **placed}:
        there, here = placed.get(key, []), waiting.get(key, [])
        if not any(map(shown.has, (*here, *there))):
            continue
        membership = groups.of((here or there)[0])
        message = next((said for pod in here if (said := _why(pod, serves))), "")
        group = membership.group if isinstance(membership, Membership) else None
        if group is None and isinstance(membership, Problem):
            message = membership.message
        found = _START.search(message)
        yield Gang(
            name=_name(group, key),
            dialect=group.dialect if group is not None else key.partition(":")[0],
            min_member=group.min_member if group is not None else 0,
            placed=len(there),
            waiting=len(here),
            where=_where(there, levels[-1] if levels else None),
            estimated_start=found.group(1) if found else "",
            message=message,
            reserved=kept_room(message),
        )


def kept_room(message: str) -> ReservedRoom | None:
    """The room that is kept for a group, from the message that the scheduler gave its pods."""
    found = _KEPT.search(message)
    return ReservedRoom(int(found[1]), int(found[2]), found[3], found[4]) if found else None


def with_times(message: str, room: ReservedRoom) -> str:
    """A message about kept room, with the times since when and until when this room is kept."""
    found = _KEPT.search(message)
    if found is None:
        return message
    since, until = found.span(3), found.span(4)
    return message[: since[0]] + room.since + message[since[1] : until[0]] + room.until + message[until[1] :]


def _name(group: PodGroup | None, key: str) -> str:
    return f"{group.namespace}/{group.name}" if group is not None else key.partition(":")[2]


def _where(pods: Sequence[PodInfo], level: Domains | None) -> list[str]:
    rows = sorted({pod.row for pod in pods if pod.row >= 0})
    if level is None:
        return []
    domains = sorted({int(level.ids[row]) for row in rows} - {-1}, key=lambda domain: int(level.order[domain]))
    more = len(domains) - MOST_DOMAINS
    return [level.path(d) for d in domains[:MOST_DOMAINS]] + ([f"and {more} more"] if more > 0 else [])


def _waiting(pod: PodInfo, serves: Sequence[str] | None, cluster: Cache) -> WaitingUnits:
    return WaitingUnits(pod.key, pod.scheduler_name, _why(pod, serves) or lacks_claim(pod, cluster))


def _why(pod: PodInfo, serves: Sequence[str] | None) -> str:
    """The scheduler's message about the pod, or that no running Gangline scheduler serves the pod."""
    if serves is None or pod.scheduler_name in serves:
        return why_waiting(pod)
    nobody = f"no running Gangline serves the schedulerName {pod.scheduler_name}: it serves {', '.join(serves)}"
    if pod.scheduler_name == "default-scheduler":
        nobody = "left to the cluster's own scheduler: no running Gangline serves default-scheduler"
    return f"{nobody}; {said}" if (said := why_waiting(pod)) else nobody
