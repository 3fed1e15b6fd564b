"""A pod whose GpuClaim names a DeviceClass: it gets an entry for a ResourceClaim, and nothing that would count too."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.simulate.claim_entries import with_entry
from gangline.wire import claim_templates
from gangline.wire.custom_resources import GpuClaim
from gangline_webhook.enforcing import ENFORCEMENTS, Enforcement
from gangline_webhook.injecting import Options, mutate
from gangline_webhook.pods import Pod
from gangline_webhook.requesting import MODES, Mode
from gangline_webhook.reviewing import Verdict
from gangline_webhook.validating import validate_claim

from .reviews import NVIDIA, Document, container, patched, pod

CLAIMED = {"gpu.scheduling/claim": "pair"}
NAMED = {"claims": [{"name": "gpu-claim"}]}


def claim(device_class: str = "gpu.x", **more: Any) -> GpuClaim:
    spec = {"deviceClassName": device_class, "devices": {"count": 2}, **more}
    return msgspec.convert({"metadata": {"name": "pair"}, "spec": spec}, GpuClaim)


def decide(
    document: Document, mode: Mode = "add", enforcement: Enforcement = "device-plugin", of: GpuClaim | None = None
) -> Verdict:
    options = Options(frozenset({"gpu-scheduler"}), enforcement, mode)
    return mutate(msgspec.convert(document, Pod), of or claim(), options)


def entry() -> Document:
    return {"name": "gpu-claim", "resourceClaimTemplateName": claim_templates.template_name(claim())}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("enforcement", ENFORCEMENTS)
def test_a_pod_gets_an_entry_and_its_first_container_the_devices_and_nothing_else(
    mode: Mode, enforcement: Enforcement
) -> None:
    document = pod(container(), container("side"), annotations=CLAIMED)

    result = patched(document, decide(document, mode, enforcement).patch)

    assert result["spec"] == {
        "schedulerName": "gpu-scheduler",
        "containers": [container(resources=NAMED), container("side")],
        "resourceClaims": [entry()],
    }


DOCUMENTS = [
    pytest.param(pod(annotations=CLAIMED), id="plain"),
    pytest.param(pod(container(resources={}), annotations=CLAIMED), id="empty resources"),
    pytest.param(pod(container(resources={"requests": {"cpu": 1}, "claims": []}), annotations=CLAIMED), id="no claims"),
    pytest.param(pod(container(resources={"claims": [{"name": "nic"}]}), annotations=CLAIMED), id="another claim"),
    pytest.param(pod(container(), container("gpu", resources=NAMED), annotations=CLAIMED), id="second container"),
    pytest.param(pod(container(), init=[container("gpu", resources=NAMED)], annotations=CLAIMED), id="init container"),
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_second_review_changes_nothing_and_the_simulator_does_the_same(document: Document) -> None:
    document["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": "nic"}]

    result = patched(document, decide(document).patch)

    assert decide(result).allowed and patched(result, decide(result).patch) == result
    assert with_entry(document, msgspec.to_builtins(claim())) == result
    assert result["spec"]["resourceClaims"] == [{"name": "nic", "resourceClaimName": "nic"}, entry()]


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (pod(container(resources={"limits": {"nvidia.com/gpu": 2}}), annotations=CLAIMED), "both would count"),
        (pod(container(resources={"limits": {"nvidia.com/mig-1g.10gb": 1}}), annotations=CLAIMED), "both would count"),
    ],
)
def test_a_pod_that_requests_gpus_besides_is_refused(document: Document, told: str) -> None:
    verdict = decide(document)

    assert not verdict.allowed and told in verdict.message
    assert "GpuClaim pair gives the pod devices of DeviceClass gpu.x" in verdict.message


def test_an_entry_of_that_name_that_means_something_else_is_refused() -> None:
    document = pod(annotations=CLAIMED)
    document["spec"]["resourceClaims"] = [{"name": "gpu-claim", "resourceClaimTemplateName": "mine"}]

    verdict = decide(document)

    assert not verdict.allowed and "the name gpu-claim is kept for GpuClaim pair" in verdict.message


def test_a_claim_that_no_resource_claim_can_carry_out_refuses_its_pods() -> None:
    wrong = claim(devices={"count": 2, "policy": "spread"})

    verdict = decide(pod(annotations=CLAIMED), of=wrong)

    assert not verdict.allowed and "policy: spread cannot be carried out" in verdict.message


def test_a_container_that_is_shown_all_gpus_is_warned_of() -> None:
    document = pod(container(env=[{"name": NVIDIA, "value": "all"}]), annotations=CLAIMED)

    (warning,) = decide(document).warnings
    assert "take it out of main: the pod is shown its GPUs without it" in warning


def test_of_several_containers_the_first_gets_the_devices_and_the_user_is_told() -> None:
    document = pod(container(), container("side"), annotations=CLAIMED)

    (warning,) = decide(document).warnings
    assert warning.startswith("container main gets the devices of GpuClaim pair; others get them with resources.claims")


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        (claim(), claim("gpu.y"), False),
        (claim(), claim(""), False),
        (claim(""), claim(), False),
        (claim(), claim(devices={"count": 3}), True),
    ],
)
def test_the_class_of_a_claim_in_use_stays(old: GpuClaim, new: GpuClaim, allowed: bool) -> None:
    old = msgspec.structs.replace(old, status=msgspec.structs.replace(old.status, phase="Bound"))

    verdict = validate_claim(new, old)

    assert verdict.allowed == allowed
    assert allowed or "spec.deviceClassName: cannot change once a pod has devices" in verdict.message


def test_a_contradicting_claim_is_refused() -> None:
    verdict = validate_claim(claim(topology={"mode": "Required"}))

    assert not verdict.allowed and "Required needs topology.linkAttribute" in verdict.message
