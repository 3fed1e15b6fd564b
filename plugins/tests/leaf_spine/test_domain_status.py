"""The status of a DomainConfig says how many nodes are in it and how many GPUs are in use."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import numpy as np
import pytest

from gangline import Action, Level, PodInfo, Topology, Unavailable, model, resources
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.testing import cluster, make_node, make_pod
from gangline_plugins.leaf_spine.domain_status import PERIOD, counts_of

from .leaf_cases import HOME, LEAF, SPINE, Bench, fabric

SYSTEM = "kube-system"
PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: LeafSpine}]}}
- schedulerName: other
  plugins: {multiPoint: {enabled: [{name: LeafSpine}]}}
"""
Status = dict[str, Any]


class Domains(SimulatedCluster):
    """Two leaves of two nodes with 8 GPUs under one spine, and what is described of them."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        for leaf in range(2):
            labels = {SPINE: "spine-0", LEAF: f"leaf-{leaf}"}
            self.create(resources.NODES, *(make_node(f"l{leaf}-n{n}", labels=labels) for n in range(2)))

    def describe(self, name: str, type: str = "leaf", namespace: str = SYSTEM, **spec: Any) -> None:
        meta = model.ObjectMeta(name=name, namespace=namespace)
        self.create(resources.DOMAIN_CONFIGS, model.Document(meta, {"type": type, **spec}))

    def status(self, name: str, namespace: str = SYSTEM) -> Status:
        return self.get(resources.DOMAIN_CONFIGS, name, namespace).status

    def client(self, refused: str = "") -> SimulatedClient:
        """One that counts what is written; what has this name is refused."""

        def fault(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
            if verb != "patch" or resource.key != resources.DOMAIN_CONFIGS.key:
                return None
            self.writes.append(name)
            return Unavailable(503, "ServiceUnavailable", "no room") if name == refused else None

        return SimulatedClient(self.server, faults=fault)


def told(nodes: int, gpus: int) -> Status:
    return {"observedGeneration": 1, "currentNodes": nodes, "allocatedGPUs": gpus}


def test_a_status_follows_what_is_in_the_domain_and_is_written_when_it_has_changed_alone() -> None:
    cluster = Domains()
    cluster.describe("leaf-0")
    cluster.describe("spine-0", "spine", HOME)
    cluster.describe("leaf-9")
    cluster.describe("leaf-1", namespace="default")

    async def story() -> list[Status]:
        seen = []
        async with cluster.scheduling(PROFILE, cluster.client()):
            cluster.create(resources.PODS, make_pod("p", gpus=8, node="l0-n0"), make_pod("q", gpus=4, node="l1-n0"))
            await cluster.until(lambda: cluster.status("leaf-0") == told(2, 8))
            seen += [cluster.status("spine-0", HOME), cluster.status("leaf-9"), cluster.status("leaf-1", "default")]
            await asyncio.sleep(5 * PERIOD)
            cluster.server.delete(resources.PODS, "p", namespace="default", grace_period_seconds=0)
            await cluster.until(lambda: cluster.status("leaf-0") == told(2, 0))
            cluster.server.delete(resources.NODES, "l0-n1")
            await cluster.until(lambda: cluster.status("leaf-0") == told(1, 0))
        return seen

    assert cluster.play(story) == [told(4, 12), told(0, 0), {}]
    assert sorted(set(cluster.writes)) == ["leaf-0", "leaf-9", "spine-0"]
    assert len(cluster.writes) <= 3 + 2 + 2 + 2  # nothing was written by both profiles, or while nothing happened


def test_one_that_cannot_be_written_harms_no_other_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Domains()
    cluster.describe("leaf-0")
    cluster.describe("leaf-1")

    async def story() -> None:
        async with cluster.scheduling(PROFILE, cluster.client(refused="leaf-0")):
            await cluster.until(lambda: cluster.status("leaf-1") == told(2, 0))
            await asyncio.sleep(3 * PERIOD)

    with caplog.at_level(logging.WARNING):
        cluster.play(story)

    assert cluster.status("leaf-0") == {}
    assert cluster.writes.count("leaf-0") > 2
    assert sum("cannot write the status of DomainConfigs" in message for message in caplog.messages) == 1


def test_the_level_counts_that_the_specification_names_and_else_the_narrowest_with_the_name() -> None:
    nodes = [
        *fabric(spines=2, leaves=2, nodes=3),
        make_node("x", labels={SPINE: "leaf-1", LEAF: "other"}),
        make_node("spine-1", labels={SPINE: "far", LEAF: "away"}),
    ]
    cache = cluster(nodes)
    levels = Topology(cache.nodes, [Level("spine", SPINE), Level("leaf", LEAF)]).chain()
    ones = cache.nodes.view().alive.astype(np.int64)

    leaf, spine = (
        next(level.level for level in levels if level.values[0].startswith(name)) for name in ("leaf", "spine")
    )
    wanted = {
        (leaf, "leaf-1"): (6, 12),  # under both spines
        (spine, "leaf-1"): (1, 2),
        (leaf, "spine-1"): (6, 12),  # there is no such leaf, and a node of this name does not count
        (spine, "none"): (0, 0),
    }
    assert list(counts_of(list(wanted), levels, ones, 2 * ones)) == list(wanted.values())


def test_the_generation_of_a_specification_that_is_refused_is_not_said_to_be_observed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Domains()
    cluster.describe("leaf-0")

    async def story() -> None:
        async with cluster.scheduling(PROFILE, cluster.client()):
            await cluster.until(lambda: cluster.status("leaf-0") == told(2, 0))
            client = SimulatedClient(cluster.server)
            await client.patch(resources.DOMAIN_CONFIGS, "leaf-0", {"spec": {"type": "ring"}}, namespace=SYSTEM)
            cluster.server.delete(resources.NODES, "l0-n1")
            await cluster.until(lambda: cluster.status("leaf-0")["currentNodes"] == 1)
            cluster.server.delete(resources.NODES, "l0-n0")
            await cluster.until(lambda: cluster.status("leaf-0")["currentNodes"] == 0)

    with caplog.at_level(logging.WARNING):
        cluster.play(story)

    assert cluster.status("leaf-0")["observedGeneration"] == 1
    refusals = [message for message in caplog.messages if "what was valid before stays in use" in message]
    assert len(refusals) == 1  # whatever status is written


def test_a_status_that_is_written_wakes_no_gang_and_another_spec_does() -> None:
    bench = Bench(fabric())
    hints = [
        each.hint
        for each in bench.plugin.events_to_register()
        if each.event.resource == resources.DOMAIN_CONFIGS.key and each.event.action & Action.UPDATE
    ]
    pod: PodInfo = bench.cache.record(make_pod("p"))
    before = model.Document(model.ObjectMeta(name="leaf-0"), {"type": "leaf"})
    counted = model.Document(before.metadata, before.spec, told(4, 0))
    faster = model.Document(before.metadata, {"type": "leaf", "networkBandwidth": 400})

    assert hints and all(hint is not None for hint in hints)
    assert not any(hint(pod, before, counted) for hint in hints if hint)
    assert all(hint(pod, before, faster) and hint(pod, None, before) for hint in hints if hint)
