"""Judge where gangs are by the API's own objects alone; nothing here is Gangline's, and nothing is fast."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal

from gangline_e2e.gangs import GANG, LEAF, PART, SPINE, Gang
from gangline_e2e.placements import Amounts, allocatable, misfit, requests
from gangline_e2e.workloads import Manifest, Manifests, is_bound

Domain = tuple[str, ...]
Nodes = Mapping[str, Manifest]
"""By name."""


def by_gang(pods: Iterable[Manifest]) -> dict[str, Manifests]:
    """The pods of each gang."""
    found: dict[str, Manifests] = defaultdict(list)
    for pod in pods:
        found[pod["metadata"].get("labels", {}).get(GANG, "")].append(pod)
    return dict(found)


def domain_of(node: Manifest, level: str) -> Domain | None:
    """The domain of a level that a node is in; a leaf is told by its spine too. None for a node without the label."""
    labels = node["metadata"]["labels"]
    keys = (SPINE, LEAF) if level == LEAF else (level,)
    return tuple(labels[key] for key in keys) if all(key in labels for key in keys) else None


def domains_of(pods: Iterable[Manifest], level: str, nodes: Nodes) -> set[Domain | None]:
    """The domains that pods with a node are in."""
    return {domain_of(nodes[pod["spec"]["nodeName"]], level) for pod in pods if is_bound(pod)}


def broken_rules(gangs: Iterable[Gang], pods: Iterable[Manifest], nodes: Nodes) -> list[str]:
    """One line for each gang that is not where it has to be, and for each that has its nodes in part."""
    of = by_gang(pods)
    found = []
    for gang in gangs:
        placed = [pod for pod in of.get(gang.name, ()) if is_bound(pod)]
        if 0 < len(placed) < gang.min_member:
            found.append(f"gang {gang.name}: {len(placed)} of at least {gang.min_member} pods have a node")
        if gang.rule.required and not _together(placed, gang.rule.required, nodes):
            found.append(f"gang {gang.name}: not in one {gang.rule.required}")
        parts = defaultdict(list)
        for pod in placed if gang.rule.part else ():
            parts[pod["metadata"]["labels"][PART]].append(pod)
        for name, members in parts.items():
            if not _together(members, gang.rule.part, nodes):
                found.append(f"gang {gang.name}: {name} is not in one {gang.rule.part}")
    return found


def scattered(gangs: Iterable[Gang], pods: Iterable[Manifest], nodes: Nodes) -> list[Gang]:
    """The gangs that have their nodes, but not in one domain of the level that they prefer."""
    of = by_gang(pods)
    return [
        gang
        for gang in gangs
        if gang.rule.preferred and gang.name in of and not _together(of[gang.name], gang.rule.preferred, nodes)
    ]


def has_room(gang: Gang, level: str, pods: Manifests, occupied: Iterable[Manifest], nodes: Nodes) -> bool:
    """Whether some domain of a level would hold all these pods of a gang beside what occupies the nodes."""
    used: dict[str, Amounts] = defaultdict(lambda: defaultdict(Decimal))
    for pod in occupied:
        for resource, amount in requests(pod).items():
            used[pod["spec"]["nodeName"]][resource] += amount
    wanted, first = requests(pods[0]), pods[0]
    room: dict[Domain, int] = defaultdict(int)
    for name, node in nodes.items():
        domain = domain_of(node, level) if level else ()
        if domain is not None and not misfit(first, node):
            room[domain] += _fits(wanted, node, used[name])
    return any(number >= len(pods) for number in room.values())


def _fits(wanted: Mapping[str, Decimal], node: Manifest, used: Amounts) -> int:
    there = allocatable(node)
    return min(int((there.get(each, Decimal(0)) - used[each]) // amount) for each, amount in wanted.items() if amount)


def _together(pods: Iterable[Manifest], level: str, nodes: Nodes) -> bool:
    found = domains_of(pods, level, nodes)
    return len(found) <= 1 and None not in found
