"""The judge of placements: a good one passes, and each kind of bad one is named."""

from __future__ import annotations

from typing import Any

import pytest

from gangline_e2e.constraints import Objects, violations
from gangline_e2e.volumes import claim, disk
from gangline_e2e.workloads import Manifest, gpu_pod, kwok_node

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
APP = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": ZONE}
ANTI = {"affinity": {"podAntiAffinity": {REQUIRED: [APP]}}}
NEAR = {"affinity": {"podAffinity": {REQUIRED: [APP]}}}
EVENLY = {"topologySpreadConstraints": [{**APP, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
RATHER = {"topologySpreadConstraints": [{**APP, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]}
SPARSE = {"topologySpreadConstraints": [{**EVENLY["topologySpreadConstraints"][0], "minDomains": 3}]}
PORT = {"containers": [{"name": "main", "image": "none", "ports": [{"containerPort": 1, "hostPort": 80}]}]}
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def on(node: str, spec: Manifest, app: str = "a", number: int = 0) -> Manifest:
    """A pod on a node."""
    return gpu_pod(f"{app}-{number}", gpus=0, labels={"app": app}, spec={**spec, "nodeName": node})


def judged(*pods: Manifest, mode: str = "ReadWriteOnce", bound: bool = True) -> list[str]:
    """What is wrong with pods on two nodes, in the zones a and b; there is a claim with a volume in a."""
    nodes = [kwok_node(f"in-{zone}", cpu="4", gpus=0, labels={ZONE: zone}) for zone in "ab"]
    data, volume = claim("data", "", "1Gi", volume="disk", mode=mode), disk("disk", "default/data", {ZONE: "a"})
    data["metadata"]["uid"] = volume["spec"]["claimRef"]["uid"] = "1"
    data["status"] = {"phase": "Bound" if bound else "Pending"}
    return violations(Objects(list(pods), nodes, [data], [volume]))


def wants(key: str, operator: str, *values: str) -> Manifest:
    """A required node affinity."""
    expressions = [{"key": key, "operator": operator, "values": list(values)}]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}}


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([on("in-a", ANTI), on("in-b", ANTI, number=1)], id="apart"),
        pytest.param([on("in-a", {}), on("in-a", NEAR, "b")], id="near"),
        pytest.param([on("in-a", EVENLY), on("in-b", EVENLY, number=1), on("in-a", EVENLY, number=2)], id="evenly"),
        pytest.param([on("in-a", RATHER), on("in-a", RATHER, number=1)], id="soft constraint"),
        pytest.param([on("in-a", PORT), on("in-b", PORT, number=1)], id="ports"),
        pytest.param([on("in-a", CLAIM), on("in-b", {}, number=1)], id="volume"),
        pytest.param([on("in-a", wants(ZONE, "In", "a", "b"))], id="node affinity"),
        pytest.param([gpu_pod("waiting", cpu="500", spec=CLAIM)], id="not bound"),
    ],
)
def test_a_good_placement_passes(pods: list[Manifest]) -> None:
    assert judged(*pods) == []


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        pytest.param([on("in-a", ANTI), on("in-a", {}, number=1)], "beside a-1 against its anti", id="beside"),
        pytest.param([on("in-b", {}), on("in-a", NEAR, "b")], "no pod near it", id="far"),
        pytest.param([on("in-a", EVENLY), on("in-a", EVENLY, number=1)], "unevenly", id="uneven"),
        pytest.param(
            [on("in-a", SPARSE), on("in-b", SPARSE, number=1), on("in-a", SPARSE, number=2)], "unevenly", id="domains"
        ),
        pytest.param([on("in-a", PORT), on("in-a", PORT, number=1)], "shares TCP port 80 with a-1", id="port"),
        pytest.param([on("in-b", CLAIM)], "volume disk cannot be used there", id="zone of a volume"),
        pytest.param([on("in-a", wants(ZONE, "NotIn", "a"))], "breaks its node affinity", id="node affinity"),
        pytest.param([on("in-a", {"nodeSelector": {ZONE: "b"}})], "labels do not match", id="node selector"),
        pytest.param([gpu_pod("large", gpus=0, cpu="5", spec={"nodeName": "in-a"})], "overcommitted", id="resources"),
    ],
)
def test_each_broken_constraint_is_named(pods: list[Manifest], why: str) -> None:
    assert why in " ".join(judged(*pods))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"bound": False}, "claim data is not bound", id="not bound"),
        pytest.param({"mode": "ReadWriteOncePod"}, "is used by another pod too", id="for one pod"),
    ],
)
def test_a_claim_that_two_pods_cannot_use_so_is_named(fields: dict[str, Any], why: str) -> None:
    assert why in " ".join(judged(on("in-a", CLAIM), on("in-a", CLAIM, number=1), **fields))
