"""What a pod with a claim requests, so that quotas count its GPUs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.wire.custom_resources import GpuClaim
from gangline_webhook.injecting import Options, mutate
from gangline_webhook.pods import Pod
from gangline_webhook.requesting import MODES, Mode
from gangline_webhook.reviewing import Verdict

from .reviews import Document, container, patched, pod

GPU = "nvidia.com/gpu"
CLAIMED = {"gpu.scheduling/claim": "four"}


def claim(**devices: Any) -> GpuClaim:
    return msgspec.convert({"metadata": {"name": "four"}, "spec": {"devices": {"count": 4, **devices}}}, GpuClaim)


def decide(document: Document, mode: Mode = "add", **devices: Any) -> Verdict:
    options = Options(frozenset({"gpu-scheduler"}), claim_requests=mode)
    return mutate(msgspec.convert(document, Pod), claim(**devices), options)


def resources(document: Document, place: int = 0) -> Any:
    return document["spec"]["containers"][place].get("resources")


def asking(**amounts: Any) -> Document:
    return container(resources={kind: {GPU: amount} for kind, amount in amounts.items()})


FOUR = {"limits": {GPU: "4"}, "requests": {GPU: "4"}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, FOUR, id="nothing"),
        pytest.param({"resources": {}}, FOUR, id="empty resources"),
        pytest.param({"resources": {"limits": None, "requests": {}}}, FOUR, id="empty lists"),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}},
            {"limits": {GPU: "4"}, "requests": {"cpu": "1", GPU: "4"}},
            id="other requests",
        ),
        pytest.param({"resources": {"limits": {GPU: "0"}}}, FOUR, id="none"),
    ],
)
def test_a_pod_with_a_claim_gets_the_request_that_goes_with_it(before: Document, after: Document) -> None:
    document = pod(container(**before), container("side"), annotations=CLAIMED)

    result = patched(document, decide(document).patch)

    assert resources(result) == after and resources(result, 1) is None
    assert patched(result, decide(result).patch) == result, "once is enough"


@pytest.mark.parametrize(
    "has", [asking(limits="4"), asking(requests=4), asking(limits="4", requests="4"), asking(limits="4000m")]
)
def test_a_pod_that_requests_what_its_claim_gives_is_left_alone(has: Document) -> None:
    document = pod(has, annotations=CLAIMED)

    verdict = decide(document)

    assert verdict.allowed and resources(patched(document, verdict.patch)) == has["resources"]


def test_requests_of_several_containers_count_together() -> None:
    document = pod(asking(limits="1"), asking(limits="3"), annotations=CLAIMED)

    assert decide(document).allowed


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("has", ["1", "3", "5", "1k"])
def test_a_pod_whose_request_disagrees_with_its_claim_is_refused(has: str, mode: Mode) -> None:
    verdict = decide(pod(asking(limits=has), annotations=CLAIMED), mode)

    assert not verdict.allowed and "GpuClaim four gives the pod 4 GPUs" in verdict.message


def test_a_pod_without_a_request_is_refused_where_that_is_asked_for() -> None:
    verdict = decide(pod(annotations=CLAIMED), "require")

    assert verdict.message == "pod train-0: GpuClaim four gives the pod 4 GPUs: it has to request nvidia.com/gpu: 4"


@pytest.mark.parametrize(
    ("mode", "devices"),
    [
        pytest.param("ignore", {}, id="not wanted"),
        pytest.param("require", {"exclusivity": "Shared", "fraction": 0.5}, id="shares"),
        pytest.param("add", {"exclusivity": "MIG", "migProfile": "1g.10gb"}, id="instances"),
    ],
)
def test_nothing_is_added_where_no_resource_means_the_claim(mode: Mode, devices: dict[str, Any]) -> None:
    document = pod(annotations=CLAIMED)

    verdict = decide(document, mode, **devices)

    assert verdict.allowed and resources(patched(document, verdict.patch)) is None


@pytest.mark.parametrize("amount", ["many", "9" * 5000, "1e400", ""])
def test_an_amount_that_is_no_number_is_left_to_the_api_server(amount: str) -> None:
    document = pod(asking(limits=amount), annotations=CLAIMED)

    assert resources(patched(document, decide(document).patch)) == {"limits": {GPU: amount}}


def test_sidecars_count_together_with_what_runs_beside_them() -> None:
    sidecar = asking(limits="2") | {"name": "sidecar", "restartPolicy": "Always"}
    setup = asking(limits="2") | {"name": "setup"}

    assert decide(pod(asking(limits="2"), init=[sidecar, setup], annotations=CLAIMED)).allowed
    assert not decide(pod(asking(limits="4"), init=[sidecar], annotations=CLAIMED)).allowed


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("resource", "amount", "devices", "message"),
    [
        (GPU, "1", {"exclusivity": "Shared"}, "gives the pod shares of GPUs, and it requests nvidia.com/gpu besides"),
        (f"{GPU}.shared", "1", {"exclusivity": "Shared"}, "gives the pod shares of GPUs, and it requests"),
        (f"{GPU}.shared", "4", {}, "gives the pod whole GPUs, and it requests pieces of GPUs besides"),
        ("nvidia.com/mig-1g.10gb", "4", {}, "gives the pod whole GPUs, and it requests pieces of GPUs besides"),
        (
            "nvidia.com/mig-1g.10gb",
            "1",
            {"exclusivity": "MIG", "migProfile": "1g.10gb"},
            "gives the pod 4 MIG instances, and its requests for GPUs are 1",
        ),
    ],
)
def test_what_a_claim_and_a_request_would_both_count_is_refused(
    mode: Mode, resource: str, amount: str, devices: dict[str, Any], message: str
) -> None:
    document = pod(container(resources={"limits": {resource: amount}}), annotations=CLAIMED)

    verdict = decide(document, mode, **devices)

    assert not verdict.allowed
    assert message in verdict.message


@pytest.mark.parametrize("resource", [GPU, "nvidia.com/mig-1g.10gb"])
def test_instances_may_be_requested_by_their_own_name_or_as_gpus(resource: str) -> None:
    document = pod(container(resources={"limits": {resource: "4"}}), annotations=CLAIMED)

    assert decide(document, exclusivity="MIG", migProfile="1g.10gb").allowed


def test_of_several_containers_it_is_told_which_got_the_request() -> None:
    assert decide(pod(container(), container("side"), annotations=CLAIMED)).warnings == (
        "nvidia.com/gpu: 4 was added to container main for GpuClaim four; if another one is meant, write it there",
    )
