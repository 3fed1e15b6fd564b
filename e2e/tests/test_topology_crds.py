"""The API server takes configurations of leaves and spines that make sense, and refuses others."""

from __future__ import annotations

from typing import Any

import pytest

from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.workloads import Manifest
from gangline_plugins.leaf_spine.documents import read_document

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
LEAF: Manifest = {
    "type": "leaf",
    "nodeSelector": {"switch": "leaf-1"},
    "networkBandwidth": 400,
    "maxLatency": 2,
    "gpuTypes": ["H100"],
    "maxNodes": 4,
    "maxGPUs": 32,
}
WEIGHTS = {
    "resourceAvailability": 0.4,
    "topologyAlignment": 0.3,
    "domainUtilization": 0.2,
    "historicalPerformance": 0.1,
}
CONSTRAINTS = {"maxNodesPerLeaf": 4, "maxGPUsPerLeaf": 32}


def document(kind: str, name: str = "example", **spec: Any) -> Manifest:
    return {"apiVersion": "topology.scheduler/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


FULL = document(
    "TopologySchedulerConfig",
    scoringWeights=WEIGHTS,
    topologyConstraints={
        "maxNodesPerDomain": 4,
        "maxGPUsPerDomain": 32,
        "minDomainsPerSpine": 2,
        "maxDomainsPerSpine": 8,
        "allowCrossDomainScheduling": False,
    },
    domainConfigs=[{"metadata": {"name": "leaf-1"}, "spec": LEAF}],
    enableMetrics=True,
    updateInterval="30s",
)


@pytest.mark.parametrize(
    "manifest",
    [
        document("SchedulerConfig", scoringWeights=WEIGHTS, topologyConstraints=CONSTRAINTS),
        FULL,
        document("DomainConfig", **LEAF),
    ],
    ids=lambda manifest: str(manifest["kind"]),
)
async def test_every_field_is_kept_and_read_back_by_the_plugin(api: Api, manifest: Manifest) -> None:
    made = await api.create(manifest)

    assert made["spec"] == manifest["spec"]
    assert read_document(made | {"metadata": manifest["metadata"]}, "made") == read_document(manifest, "given")


async def test_weights_that_are_not_given_have_their_defaults(api: Api) -> None:
    made = await api.create(document("SchedulerConfig", scoringWeights={}))

    assert made["spec"]["scoringWeights"] == WEIGHTS


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        (document("SchedulerConfig", scoringWeights={"resourceAvailability": 0.5}), "the weights must sum to 1"),
        (document("TopologySchedulerConfig", scoringWeights={"topologyAlignment": 0.1}), "the weights must sum to 1"),
        (document("SchedulerConfig", scoringWeights={"topologyAlignment": -0.1}), "spec.scoringWeights"),
        (document("SchedulerConfig", topologyConstraints={"maxNodesPerLeaf": 0}), "maxNodesPerLeaf"),
        (document("DomainConfig"), "spec.type"),
        (document("DomainConfig", type="rack"), "spec.type"),
        (document("DomainConfig", type="leaf", networkBandwidth=0), "spec.networkBandwidth"),
        (document("DomainConfig", type="leaf", maxLatency="2us"), "spec.maxLatency"),
        (document("TopologySchedulerConfig", domainConfigs=[{"spec": LEAF}]), "metadata"),
    ],
    ids=["sum", "sum of the other", "negative", "no nodes", "no type", "type", "bandwidth", "latency", "no name"],
)
async def test_what_makes_no_sense_is_refused(api: Api, manifest: Manifest, says: str) -> None:
    with pytest.raises(Refused) as refused:
        await api.create(manifest)

    assert refused.value.status == 422
    assert says in refused.value.message


async def test_a_domain_shows_its_columns(api: Api) -> None:
    await api.create(document("DomainConfig", "leaf-1", **LEAF))
    path = f"/apis/topology.scheduler/v1alpha1/namespaces/{api.namespace}/domainconfigs"
    status = {"status": {"observedGeneration": 1, "currentNodes": 4, "allocatedGPUs": 9}}
    await api.request(
        "PATCH", f"{path}/leaf-1/status", status, headers={"Content-Type": "application/merge-patch+json"}
    )
    table = await api.request("GET", path, headers=TABLE)
    shown = [i for i, each in enumerate(table["columnDefinitions"]) if not each["priority"] and each["name"] != "Age"]

    assert [table["columnDefinitions"][i]["name"] for i in shown] == [
        "Name",
        "Type",
        "Gbps",
        "Latency",
        "Nodes",
        "GPUs in use",
    ]
    assert [table["rows"][0]["cells"][i] for i in shown] == ["leaf-1", "leaf", 400, 2, 4, 9]
