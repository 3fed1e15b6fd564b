"""The API server takes GpuClaims and GpuNodeStatuses that make sense, refuses others and shows both in columns."""

from __future__ import annotations

from typing import Any

import pytest

from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import NODE_STATUSES, claim, node_status
from gangline_e2e.workloads import Manifest

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def claims(api: Api) -> str:
    return f"/apis/gpu.scheduling/v1/namespaces/{api.namespace}/gpuclaims"


async def columns(api: Api, path: str) -> tuple[list[str], list[Any]]:
    """The column names that kubectl prints, without -o wide and AGE, and the cells of the only row."""
    table = await api.request("GET", path, headers=TABLE)
    shown = [i for i, each in enumerate(table["columnDefinitions"]) if not each["priority"] and each["name"] != "Age"]
    (row,) = table["rows"]
    return [table["columnDefinitions"][i]["name"] for i in shown], [row["cells"][i] for i in shown]


async def test_an_empty_claim_gets_the_defaults(api: Api) -> None:
    made = await api.create({"apiVersion": "gpu.scheduling/v1", "kind": "GpuClaim", "metadata": {"name": "plain"}})

    assert made["spec"] == {
        "devices": {"count": 1, "policy": "contiguous", "exclusivity": "Exclusive"},
        "topology": {"mode": "Preferred", "minBandwidthGBps": 0},
    }


async def test_every_field_of_a_claim_is_kept(api: Api) -> None:
    spec = {
        "selector": {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
        "devices": {"count": 4, "policy": "preferIds", "preferIds": [4, 5], "exclusivity": "Shared", "fraction": 0.25},
        "topology": {"mode": "Required", "minBandwidthGBps": 600},
        "gangRef": "training",
        "network": {"rdmaRequired": True, "minPorts": 2, "preferredHcas": ["mlx5_0"]},
        "storage": {"cuFile": "Required"},
    }

    made = await api.create(claim("full", **spec))

    assert made["spec"] == spec


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({"devices": {"policy": "tight"}}, "spec.devices.policy", id="policy"),
        pytest.param({"devices": {"exclusivity": "Mine"}}, "spec.devices.exclusivity", id="exclusivity"),
        pytest.param({"topology": {"mode": "Maybe"}}, "spec.topology.mode", id="mode"),
        pytest.param({"storage": {"cuFile": "Perhaps"}}, "spec.storage.cuFile", id="cuFile"),
        pytest.param({"devices": {"count": 0}}, "spec.devices.count", id="count 0"),
        pytest.param({"devices": {"count": 10_000}}, "spec.devices.count", id="count 10,000"),
        pytest.param({"devices": {"exclusivity": "Shared", "fraction": 0.001}}, "spec.devices.fraction", id="low"),
        pytest.param({"devices": {"exclusivity": "Shared", "fraction": 1.5}}, "spec.devices.fraction", id="high"),
        pytest.param({"topology": {"minBandwidthGBps": -1}}, "spec.topology.minBandwidthGBps", id="bandwidth"),
        pytest.param({"devices": {"exclusivity": "MIG", "migProfile": "big"}}, "spec.devices.migProfile", id="profile"),
        pytest.param({"gangRef": "Not A Name"}, "spec.gangRef", id="gangRef"),
        pytest.param({"devices": {"fraction": 0.5}}, "fraction needs exclusivity Shared", id="fraction alone"),
        pytest.param({"devices": {"memoryGiB": 8}}, "memoryGiB needs exclusivity Shared", id="memory alone"),
        pytest.param(
            {"devices": {"exclusivity": "Shared", "fraction": 0.5, "memoryGiB": 8}},
            "fraction and memoryGiB exclude each other",
            id="fraction and memory",
        ),
        pytest.param({"devices": {"exclusivity": "MIG"}}, "exclusivity MIG needs a migProfile", id="MIG alone"),
        pytest.param({"devices": {"migProfile": "1g.10gb"}}, "migProfile needs exclusivity MIG", id="profile alone"),
        pytest.param({"devices": {"preferIds": [1]}}, "preferIds needs policy preferIds", id="ids alone"),
        pytest.param(
            {"devices": {"policy": "preferIds"}}, "policy preferIds needs a list of preferIds", id="preferIds alone"
        ),
        pytest.param(
            {"devices": {"count": 2, "policy": "spread"}, "topology": {"mode": "Required"}},
            "policy spread and topology.mode Required contradict",
            id="spread and required",
        ),
        pytest.param(
            {"topology": {"mode": "Ignore", "minBandwidthGBps": 400}},
            "topology.mode Ignore contradicts minBandwidthGBps",
            id="bandwidth ignored",
        ),
        pytest.param(
            {"devices": {"exclusivity": "MIG", "migProfile": "1g.10gb"}, "topology": {"minBandwidthGBps": 400}},
            "MIG instances have no links to each other",
            id="links of instances",
        ),
        pytest.param({"devices": {"policy": "preferIds", "preferIds": [1, 1]}}, "Duplicate value", id="ids twice"),
        pytest.param({"devices": {"policy": "preferIds", "preferIds": [-1]}}, "preferIds[0]", id="id below 0"),
    ],
)
async def test_a_claim_that_makes_no_sense_is_refused(api: Api, spec: Manifest, says: str) -> None:
    with pytest.raises(Refused) as refused:
        await api.create(claim("bad", **spec))

    assert refused.value.status == 422
    assert says in refused.value.message


@pytest.mark.parametrize(
    "devices",
    [
        {"exclusivity": "Shared", "memoryGiB": 8},
        {"exclusivity": "MIG", "migProfile": "1g.10gb"},
        {"exclusivity": "MIG", "migProfile": "1g.10gb+me"},
        {"exclusivity": "MIG", "migProfile": "1c.3g.40gb"},
        {"count": 64, "policy": "spread"},
    ],
    ids=str,
)
async def test_a_claim_that_makes_sense_is_taken(api: Api, devices: Manifest) -> None:
    made = await api.create(claim("good", devices=devices))

    assert made["spec"]["devices"].items() >= devices.items()


async def test_how_a_claim_shares_devices_stays_once_a_pod_has_some(api: Api) -> None:
    await api.create(claim("used", devices={"exclusivity": "Shared", "fraction": 0.5}))
    path = f"{claims(api)}/used"
    await api.merge(path, {"spec": {"devices": {"fraction": 0.25}}})
    await api.merge(f"{path}/status", {"status": {"phase": "Bound", "nodeName": "node-a"}})

    for devices in (
        {"fraction": 0.5},
        {"fraction": None, "memoryGiB": 8},
        {"fraction": None, "exclusivity": "Exclusive"},
    ):
        with pytest.raises(Refused, match="cannot change once a pod has devices"):
            await api.merge(path, {"spec": {"devices": devices}})
    changed = await api.merge(path, {"spec": {"devices": {"count": 2}}})

    assert changed["spec"]["devices"] == {"count": 2, "policy": "contiguous", "exclusivity": "Shared", "fraction": 0.25}


async def test_a_claim_shows_its_columns(api: Api) -> None:
    await api.create(claim("shown", devices={"count": 2, "policy": "spread"}))
    status = {"phase": "Bound", "nodeName": "node-a", "gpuIds": [0, 1], "allocated": "node-a:0,1"}
    status["message"] = "two of node-a"
    await api.merge(f"{claims(api)}/shown/status", {"status": status})

    names, cells = await columns(api, claims(api))

    assert names == ["Name", "Req", "Policy", "Topology", "Allocated", "Phase", "Message"]
    assert cells == ["shown", "2", "spread", "Preferred", "node-a:0,1", "Bound", "two of node-a"]


async def test_the_status_of_a_claim_is_written_apart_from_its_spec(api: Api) -> None:
    await api.create(claim("apart") | {"status": {"phase": "Bound"}})
    path = f"{claims(api)}/apart"
    await api.merge(f"{path}/status", {"spec": {"gangRef": "other"}, "status": {"phase": "Reserved"}})

    found = await api.get(path)

    assert found["status"] == {"phase": "Reserved"}
    assert "gangRef" not in found["spec"]
    with pytest.raises(Refused, match=r"status\.phase"):
        await api.merge(f"{path}/status", {"status": {"phase": "Lost"}})


async def test_a_node_status_shows_its_columns(api: Api) -> None:
    name = f"{api.namespace}-node"
    await api.create(node_status(name))
    status = {"total": 2, "healthy": 1, "used": 1, "free": 0, "devices": [{"id": 0, "health": "Healthy"}, {"id": 1}]}
    await api.merge(f"{NODE_STATUSES}/{name}/status", {"status": status})

    table = await api.request("GET", f"{NODE_STATUSES}/{name}", headers=TABLE)
    names, cells = await columns(api, f"{NODE_STATUSES}/{name}")

    assert names == ["Name", "Node", "Devices", "Healthy", "Used", "Free"]
    assert cells == [name, name, 2, 1, 1, 0]
    assert [each["name"] for each in table["columnDefinitions"]][6:10] == ["Model", "Driver", "Clique", "Heartbeat"]
    found = await api.get(f"{NODE_STATUSES}/{name}")
    assert [device["health"] for device in found["status"]["devices"]] == ["Healthy", "Unknown"]


async def test_a_node_status_has_the_name_of_its_node_for_ever(api: Api) -> None:
    name = f"{api.namespace}-node"
    await api.create(node_status(name))

    with pytest.raises(Refused, match="a GpuNodeStatus has the name of its node"):
        await api.create(node_status(f"{name}-2", node=name))
    with pytest.raises(Refused, match="nodeName cannot change"):
        await api.merge(f"{NODE_STATUSES}/{name}", {"spec": {"nodeName": "other"}})
    with pytest.raises(Refused, match=r"spec\.nodeName: Required"):
        await api.create({**node_status(f"{name}-3"), "spec": {}})


@pytest.mark.parametrize(
    ("status", "says"),
    [
        pytest.param({"devices": [{"id": 0}, {"id": 0}]}, "Duplicate value", id="ids twice"),
        pytest.param({"devices": [{"id": -1}]}, "status.devices[0].id", id="id below 0"),
        pytest.param({"devices": [{"uuid": "GPU-1"}]}, "status.devices[0].id", id="no id"),
        pytest.param({"devices": [{"id": 0, "health": "Fine"}]}, "status.devices[0].health", id="health"),
        pytest.param({"devices": [{"id": 3, "links": [{"peer": 3}]}]}, "no link to itself", id="own peer"),
        pytest.param({"devices": [{"id": 0, "links": [{"peer": 1, "kind": "USB"}]}]}, "links[0].kind", id="kind"),
        pytest.param(
            {"devices": [{"id": 0, "links": [{"peer": 1}, {"peer": 1}]}]}, "Duplicate value", id="peers twice"
        ),
        pytest.param({"total": -1}, "status.total", id="total"),
        pytest.param({"heartbeatTime": "yesterday"}, "status.heartbeatTime", id="heartbeat"),
    ],
)
async def test_a_status_that_makes_no_sense_is_refused(api: Api, status: Manifest, says: str) -> None:
    name = f"{api.namespace}-node"
    await api.create(node_status(name))

    with pytest.raises(Refused) as refused:
        await api.merge(f"{NODE_STATUSES}/{name}/status", {"status": status})

    assert refused.value.status == 422
    assert says in refused.value.message
