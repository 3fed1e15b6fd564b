"""Case files: the objects of dynamic resource allocation, and claims that a controller would have made."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import model
from gangline.errors import InvalidObject
from gangline.explain.case import check_names, load_cluster, make_claims
from gangline.kube.resources import DEVICE_CLASSES, GPU_CLAIMS, GPU_NODE_STATUSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.testing import make_pod

SLICE: dict[str, Any] = {
    "metadata": {"name": "a-gpus"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "a",
        "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "basic": {"attributes": {"model": {"string": "h"}}}}],
    },
}
CLASS: dict[str, Any] = {"metadata": {"name": "gpu"}, "spec": {}}
CLAIM = {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}}
CASE: dict[str, Any] = {
    "resourceslices": [{"apiVersion": "resource.k8s.io/v1beta1", **SLICE}],
    "deviceclasses": [CLASS],
    "resourceclaims": [
        {"apiVersion": "resource.k8s.io/v1beta1", "metadata": {"name": "own", "namespace": "default"}, "spec": CLAIM}
    ],
    "resourceclaimtemplates": [
        {
            "apiVersion": "resource.k8s.io/v1beta1",
            "metadata": {"name": "t", "namespace": "default"},
            "spec": {"spec": CLAIM},
        }
    ],
}
EXACTLY = model.ResourceClaimSpec(model.DeviceClaim([model.DeviceRequest("gpu", model.ExactDeviceRequest("gpu"))]))


def test_a_case_has_slices_classes_and_claims_of_any_version() -> None:
    cluster = load_cluster(CASE)

    (found,) = cluster.store(RESOURCE_SLICES)
    assert found.spec.devices[0].attributes["model"].string == "h"
    assert [each.metadata.name for each in cluster.store(DEVICE_CLASSES)] == ["gpu"]
    (claim,) = cluster.store(RESOURCE_CLAIMS)
    assert claim.spec == EXACTLY


def test_the_pod_of_a_case_gets_the_claims_of_its_templates_unless_it_has_them() -> None:
    cluster = load_cluster(CASE)
    entries = [model.PodResourceClaim(name, resource_claim_template_name="t") for name in ("one", "two")]
    pod = make_pod("p", resource_claims=[*entries, model.PodResourceClaim("no", resource_claim_template_name="none")])
    pod.status.resource_claim_statuses = [model.PodResourceClaimStatus("two", "own")]

    make_claims(cluster, pod)

    assert {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses} == {
        "two": "own",
        "one": "p-one",
    }
    made = cluster.store(RESOURCE_CLAIMS).get("p-one", "default")
    assert made is not None and made.spec == EXACTLY and made.metadata.owner_references[0].uid == pod.metadata.uid


def test_the_gpu_claims_of_a_case_are_read() -> None:
    claim = {"metadata": {"name": "pair", "namespace": "default"}, "spec": {"devices": {"count": 2}}}
    report = {"metadata": {"name": "a"}}

    cluster = load_cluster({"gpuclaims": [claim], "gpunodestatuses": [report]})

    found = cluster.store(GPU_CLAIMS).get("pair", "default")
    assert found is not None and found.spec.devices.count == 2
    assert cluster.store(GPU_NODE_STATUSES).get("a") is not None


@pytest.mark.parametrize(
    ("name", "meant"), [("node", "nodes"), ("Nodes", "nodes"), ("pvc", "pvcs"), ("service", "services")]
)
def test_a_list_with_a_misspelt_name_is_told(name: str, meant: str) -> None:
    with pytest.raises(InvalidObject, match=rf"^{name}: is not known; did you mean {meant}\?$"):
        check_names({"pod": {}, name: []})


def test_a_case_may_have_fields_that_nobody_reads() -> None:
    check_names({"pod": {}, "nodes": [], "pvcs": [], "description": "", "expected": {}})
