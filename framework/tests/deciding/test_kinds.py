"""Which rejected pods are alike."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import model
from gangline.deciding.scheduling import Rejection, decide
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.testing import cluster, make_node, make_pod, make_runtime
from gangline.wire.custom_resources import CLAIM
from gangline_plugins.counting.pod_topology_spread import PodTopologySpread
from gangline_plugins.gpu.claim import GpuClaim
from gangline_plugins.node_affinity import NodeAffinity
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.taint_toleration import TaintToleration

PLUGINS = (TaintToleration, NodeAffinity, NodeResourcesFit, PodTopologySpread, GpuClaim)
FULL = {"cpu": 9}
CLAIMED = {CLAIM: "c"}


def rejection(cache: Cache, name: str, **fields: Any) -> Rejection:
    made = make_pod(name, **fields)
    made.metadata.owner_references = [model.OwnerReference("Job", f"job-{name}", f"job-{name}", "batch/v1")]
    found = decide(Unit([cache.record(made)], added=0.0), make_runtime(cache, *PLUGINS), cache, {})
    assert isinstance(found, Rejection)
    return found


def a_cluster() -> Cache:
    return cluster([make_node("a", cpu=4, labels={"zone": "x"}), make_node("b", cpu=4, taints=["t:NoSchedule"])])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({"labels": {"app": "a"}}, {"labels": {"app": "b"}}),
        ({"annotations": {"note": "a"}}, {"annotations": {"note": "b"}}),
    ],
    ids=["equal", "labels", "annotations that nobody reads"],
)
def test_pods_of_one_class_are_alike_whatever_only_others_than_the_rejecting_plugins_read(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    cache = a_cluster()

    first, second = rejection(cache, "p", **FULL, **one), rejection(cache, "q", **FULL, **other)

    assert first.plugins == {"NodeResourcesFit", "TaintToleration"}
    assert first.kind is not None and first.kind == second.kind


SPREAD = [model.TopologySpreadConstraint(1, "nowhere", "DoNotSchedule", model.LabelSelector({"app": "a"}))]
UNKNOWN: dict[str, dict[str, Any]] = {
    "a plugin that does not declare what it reads": {"cpu": 1, "topology_spread_constraints": SPREAD},
    "claims of its own": {**FULL, "resource_claims": [model.PodResourceClaim("c", "c")]},
}


@pytest.mark.parametrize("fields", UNKNOWN.values(), ids=UNKNOWN)
def test_no_pod_is_known_to_be_like_it(fields: dict[str, Any]) -> None:
    assert rejection(a_cluster(), "p", **fields).kind is None


def test_pods_of_two_classes_are_not_alike() -> None:
    cache = a_cluster()

    assert rejection(cache, "p", cpu=9).kind != rejection(cache, "q", cpu=10).kind


def test_a_pod_with_a_nomination_is_like_no_other() -> None:
    cache = a_cluster()
    made = make_pod("p", cpu=9)
    made.status.nominated_node_name = "a"

    found = decide(Unit([cache.record(made)], added=0.0), make_runtime(cache, *PLUGINS), cache, {})

    assert isinstance(found, Rejection) and found.kind is None


def test_pods_of_which_a_rejecting_plugin_reads_more_are_not_alike_if_their_owners_differ() -> None:
    cache = a_cluster()

    first, second = (rejection(cache, name, cpu=1, annotations=CLAIMED) for name in "pq")

    assert "GpuClaim" in first.plugins and None not in (first.kind, second.kind)
    assert first.kind != second.kind
