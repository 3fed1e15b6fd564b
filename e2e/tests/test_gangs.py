"""Gangs of every dialect on a fabric of 1,024 nodes: whole, where their rules say, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gangline_e2e import gangs, gpu_fleet
from gangline_e2e.api import Api, connect
from gangline_e2e.gang_checks import broken_rules, has_room, scattered
from gangline_e2e.gang_crds import install_foreign
from gangline_e2e.gang_history import History, history
from gangline_e2e.gangs import ANYWHERE, GANG, LEAF, SPINE, TIER_0, Gang, Rule
from gangline_e2e.gpu_crds import NODE_STATUSES, install, node_status
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.placements import faults
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest, kwok_node

StartControlPlane = Callable[[Options], ControlPlane]
StartGangline = Callable[..., Gangline]
NODES = "/api/v1/nodes"
OPTIONS = Options(
    controller_manager=True,
    apiserver_args=(
        "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ),
)
PHASE = 2.0
"""Seconds in which a gang is bound from its first pod to the last that it needs."""
LEVELS = [{"name": "spine", "nodeLabel": SPINE}, {"name": "leaf", "nodeLabel": LEAF}]
CLAIM_NODES = 16
AT_ONCE = 8
"""Pods that are created at the same time: few, so that the history is noted when it happens."""

pytestmark = pytest.mark.timeout(240)


async def test_hundreds_of_gangs_of_every_dialect_go_where_their_rules_say_and_are_never_bound_in_part(
    start_control_plane: StartControlPlane, start_gangline: StartGangline
) -> None:
    plane = start_control_plane(OPTIONS)
    async with connect(plane.kubeconfig) as api, history(api) as seen:
        await _build(api)
        scheduler = start_gangline(plane.kubeconfig, _configuration())
        possible, impossible = list(_mix()), list(_impossible())
        await _create(api, possible[:1])
        await seen.until(possible[:1], timeout_s=20)
        await _create(api, [*impossible, *possible[1:]])
        await seen.until(possible, timeout_s=100)
        pods, nodes = await api.list(api.pods), await api.list(NODES)

    by_name = {node["metadata"]["name"]: node for node in nodes}
    assert len(possible) > 250
    assert broken_rules([*possible, *impossible], pods, by_name) == []
    assert faults(pods, nodes) == []
    assert [gang.name for gang in impossible if seen.bound[gang.name]] == []
    assert [gang.name for gang in scattered(possible, pods, by_name) if _had_room(gang, seen, by_name)] == []
    phases = seen.phases(possible)
    print(sorted(((round(v,2), k) for k,v in phases.items()), reverse=True)[:12])
    print(f"longest binding phase {max(phases.values()):.2f} s; p99 decision at most {_p99(scheduler):g} s")
    assert max(phases.values()) < PHASE
    assert _p99(scheduler) < 0.5


# The cluster


def _configuration() -> Manifest:
    """The packaged profile, with the levels of the fabric."""
    config = gpu_fleet.configuration("default")
    config["profiles"][0]["pluginConfig"].append({"name": "TopologyPlacement", "args": {"levels": LEVELS}})
    return config


async def _build(api: Api) -> None:
    """The fabric, and beside it two leaves with GPUs that agents report."""
    await install(api)
    await install_foreign(api)
    await api.create_many(gangs.fabric())
    for number in range(CLAIM_NODES):
        name = f"reported-{number}"
        await api.create(kwok_node(name, gpus=0, labels={SPINE: "reported", LEAF: f"leaf-{number // 8}"}))
        await api.create(node_status(name))
        devices = [{"id": i, "health": "Healthy", "island": "0", "bandwidthGBps": 900} for i in range(8)]
        await api.merge(f"{NODE_STATUSES}/{name}/status", {"status": {"total": 8, "devices": devices}})

    async def has_account() -> bool:
        return bool(await api.list("/api/v1/namespaces/default/serviceaccounts"))

    await api.until(has_account, "pods can be created")


async def _create(api: Api, wanted: list[Gang]) -> None:
    await api.create_many(each for gang in wanted for each in gang.objects)
    await api.create_many((pod for gang in wanted for pod in gang.pods), AT_ONCE)


# The gangs


def _mix() -> Iterator[Gang]:
    """More than 250 gangs, all but one the largest first, for nine tenths of the fabric."""
    leaf, spine = Rule(LEAF), Rule(SPINE)
    yield gangs.kueue("switch", 8, Rule(TIER_0), 8)  # alone in wanting one of the leaves that have this label
    yield gangs.scheduler_plugins("huge", 256, Rule(preferred=SPINE), 8)
    yield gangs.upstream("spine-wide", 128, spine, 8)
    yield gangs.indexed_job("half-0", 64, spine, 8)
    yield gangs.volcano("half-1", 64, spine, 8)
    yield gangs.upstream("quarter-0", 32, Rule(preferred=LEAF), 8)
    yield gangs.koordinator("quarter-1", 32, spine, 8)
    yield gangs.kueue("sliced-0", 32, Rule(SPINE, part=LEAF, part_size=8), 8)
    yield gangs.kai("parts-0", 32, Rule(SPINE, part=LEAF, part_size=8), 8)
    for i in range(3):
        yield gangs.kueue(f"slices-{i}", 16, Rule(part=LEAF, part_size=4), 8)
        yield gangs.kai(f"parted-{i}", 12, Rule(part=LEAF, part_size=4), 8)
    for number, dialect in enumerate(_DIALECTS):
        yield dialect(f"leaf-wide-{number}", 7, leaf, 8)
    yield gangs.scheduler_plugins("elastic", 6, leaf, 4, min_member=4)
    for i in range(4):
        yield gangs.gang_ref(f"claims-{i}", 4, leaf, 4)
    for i in range(24):
        for number, dialect in enumerate(_DIALECTS):
            rule = (leaf, Rule(preferred=LEAF), spine, ANYWHERE)[(i + number) % 4]
            yield dialect(f"small-{number}-{i}", (2, 3, 5)[i % 3], rule, (1, 2)[i % 2])


_DIALECTS: tuple[gangs.Dialect, ...] = (
    gangs.upstream,
    gangs.scheduler_plugins,
    gangs.kai,
    gangs.volcano,
    gangs.koordinator,
    gangs.kueue,
    gangs.leader_worker_set,
    gangs.job_set,
    gangs.indexed_job,
    gangs.gpu_count,
)


def _impossible() -> Iterator[Gang]:
    """Gangs that are larger than any domain of the level that they require."""
    yield gangs.upstream("too-wide", 9, Rule(LEAF), 8)
    yield gangs.kueue("too-large", 129, Rule(SPINE), 8)


# What to ask


def _had_room(gang: Gang, seen: History, nodes: dict[str, Manifest]) -> bool:
    """Whether one domain that a scattered gang prefers had room for it when everything that was decided before had
    been bound; nothing has left since.
    """
    end = max(seen.bound[gang.name].values()) + PHASE
    pods = [pod for pod in seen.order if pod["metadata"]["labels"][GANG] == gang.name]
    others = [pod for pod in seen.until_time(end) if pod["metadata"]["labels"][GANG] != gang.name]
    return has_room(gang, gang.rule.preferred, pods, others, nodes)


def _p99(scheduler: Gangline) -> float:
    """The upper end of the bucket in which 99 of 100 decisions on gangs are."""
    families = {family.name: family for family in text_string_to_metric_families(scheduler.metrics())}
    samples = families["gangline_gang_decision_seconds"].samples
    buckets = {float(s.labels["le"]): s.value for s in samples if s.name.endswith("_bucket")}
    return min(end for end, count in buckets.items() if count >= 0.99 * max(buckets.values()))
