"""How containers learn of their GPUs, by who enforces what they see; and warnings to those that choose themselves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.wire.custom_resources import GpuClaim
from gangline_webhook.enforcing import ENFORCEMENTS, Enforcement
from gangline_webhook.injecting import Options, mutate
from gangline_webhook.pods import Pod
from gangline_webhook.requesting import Mode
from gangline_webhook.reviewing import Verdict

from .reviews import CUDA, NVIDIA, ORDER, Document, container, env, field_ref, patched, pod

GPU = "nvidia.com/gpu"
CLAIMED = {"gpu.scheduling/claim": "two"}
MAP = {"gpu-scheduling-map": "0=node1:2,3"}
UUIDS = "gpu.scheduling/allocated-uuids"
BY_UUID = [field_ref(NVIDIA, UUIDS), field_ref(CUDA, UUIDS)]
BY_ID = [field_ref(CUDA), ORDER]


def decide(
    document: Document, found: GpuClaim | None = None, enforcement: Enforcement = "device-plugin", mode: Mode = "add"
) -> Verdict:
    return mutate(msgspec.convert(document, Pod), found, Options(frozenset({"gpu-scheduler"}), enforcement, mode))


def told(document: Document, *args: Any, name: str = "main", **options: Any) -> Any:
    return env(patched(document, decide(document, *args, **options).patch), name)


def claim(**devices: Any) -> GpuClaim:
    return msgspec.convert({"metadata": {"name": "two"}, "spec": {"devices": {"count": 2, **devices}}}, GpuClaim)


def asking(number: str | int, name: str = "main", resource: str = GPU, **fields: Any) -> Document:
    return container(name, resources={"limits": {resource: number}}, **fields)


def first(ids: str) -> list[Document]:
    return [{"name": CUDA, "value": ids}, ORDER]


# A device plugin


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod(asking("2"), annotations=CLAIMED), id="a request"),
        pytest.param(pod(annotations=CLAIMED), id="a request that is added"),
        pytest.param(pod(asking("2", env=[{"name": CUDA, "value": "6,7"}]), annotations=CLAIMED), id="a wrong value"),
    ],
)
def test_a_container_that_requests_gpus_is_told_the_first_ids_as_a_device_plugin_counts(document: Document) -> None:
    assert told(document, claim()) == first("0,1")


def test_a_request_tells_as_much_while_the_claim_is_not_known() -> None:
    assert told(pod(asking("2"), annotations=CLAIMED)) == first("0,1")


def test_each_container_is_told_of_its_own_gpus_and_those_without_a_request_of_none() -> None:
    document = pod(asking("1"), asking("1", "second"), container("side"), init=[container("x")], annotations=CLAIMED)

    assert [told(document, claim(), name=name) for name in ("main", "second", "side", "x")] == [
        first("0"),
        first("0"),
        None,
        None,
    ]


def test_instances_that_a_device_plugin_gives_are_counted_from_0_too() -> None:
    instances = claim(exclusivity="MIG", migProfile="1g.10gb")

    assert told(pod(asking("2", resource="nvidia.com/mig-1g.10gb"), annotations=CLAIMED), instances) == first("0,1")


def test_a_claim_without_requests_is_told_by_ids_of_the_node_in_the_order_of_the_bus() -> None:
    assert told(pod(annotations=CLAIMED), claim(), mode="ignore") == BY_ID
    assert told(pod(annotations=CLAIMED), claim(exclusivity="Shared", fraction=0.5)) == BY_ID


def test_a_map_names_ids_of_the_node_but_not_to_a_container_with_a_request() -> None:
    assert told(pod(annotations=MAP)) == first("2,3")
    assert told(pod(asking("2"), annotations=MAP)) == first("0,1")


def test_a_pod_that_only_requests_gpus_is_left_to_the_device_plugin() -> None:
    assert decide(pod(asking("2"))) == Verdict()
    assert decide(pod(asking("2")), enforcement="environment") == Verdict()


@pytest.mark.parametrize("number", ["65", "9" * 30, "many", "0", -1])
def test_a_request_that_no_node_meets_is_told_nothing(number: str | int) -> None:
    assert told(pod(asking(number), asking("1", "side"), annotations=CLAIMED)) is None


# The runtime


def test_the_runtime_and_cuda_are_told_the_uuids_in_every_container() -> None:
    document = pod(container(env=[{"name": NVIDIA, "value": "all"}]), init=[container("setup")], annotations=CLAIMED)

    assert [told(document, claim(), "runtime", name=name) for name in ("main", "setup")] == [BY_UUID] * 2


@pytest.mark.parametrize("resource", [GPU, "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"])
def test_pods_that_only_request_gpus_obey_the_runtime_too(resource: str) -> None:
    document = pod(asking("2", resource=resource), container("side"))

    assert told(document, None, "runtime") == BY_UUID
    assert told(document, None, "runtime", name="side") is None


def test_pods_of_other_schedulers_are_left_alone() -> None:
    assert decide(pod(asking("2"), scheduler="default-scheduler"), None, "runtime") == Verdict()


# The environment


def test_cuda_alone_is_told_ids_of_the_node_also_where_gpus_are_requested() -> None:
    assert told(pod(asking("2"), annotations=CLAIMED), claim(), "environment") == BY_ID
    assert told(pod(asking("2"), annotations=MAP), None, "environment") == first("2,3")


@pytest.mark.parametrize("enforcement", ["device-plugin", "environment"])
def test_no_id_names_an_instance(enforcement: Enforcement) -> None:
    instances = claim(exclusivity="MIG", migProfile="1g.10gb")

    assert told(pod(annotations=CLAIMED), instances, enforcement) == [field_ref(CUDA, UUIDS)]


@pytest.mark.parametrize("enforcement", ENFORCEMENTS)
@pytest.mark.parametrize("annotations", [CLAIMED, MAP, {}], ids=["claim", "map", "request"])
def test_doing_it_again_changes_nothing(enforcement: Enforcement, annotations: dict[str, str]) -> None:
    document = pod(asking("2"), container("side"), annotations=annotations)

    once = patched(document, decide(document, claim(), enforcement).patch)

    assert decide(once, claim(), enforcement) == Verdict()


def test_another_order_of_devices_is_replaced_with_a_warning() -> None:
    document = pod(asking("2", env=[{"name": "CUDA_DEVICE_ORDER", "value": "FASTEST_FIRST"}]), annotations=CLAIMED)

    (warning,) = decide(document, claim()).warnings

    assert warning == "CUDA_DEVICE_ORDER is set by Gangline, the pod's own values were replaced: main 'FASTEST_FIRST'"


# Containers that choose themselves

ALL = [{"name": NVIDIA, "value": "all"}]
EVERY = "NVIDIA_VISIBLE_DEVICES=all shows the containers every GPU of the node, other pods' GPUs too; "
WITHOUT = "take it out of main: the pod is shown its GPUs without it"


@pytest.mark.parametrize(
    ("document", "found", "warning"),
    [
        pytest.param(
            pod(container(env=ALL)),
            None,
            f"{EVERY}take it out of main, and ask for nvidia.com/gpu or a GpuClaim",
            id="no GPU asked for",
        ),
        pytest.param(
            pod(container(), init=[container("setup", env=ALL)]),
            None,
            f"{EVERY}take it out of setup, and ask for nvidia.com/gpu or a GpuClaim",
            id="in an init container",
        ),
        pytest.param(pod(asking("1", env=ALL)), None, EVERY + WITHOUT, id="whole GPUs"),
        pytest.param(
            pod(asking("1", resource="nvidia.com/mig-1g.10gb", env=ALL)), None, EVERY + WITHOUT, id="a MIG instance"
        ),
        pytest.param(
            pod(asking("1", resource="nvidia.com/gpu.shared", env=ALL)), None, EVERY + WITHOUT, id="a shared GPU"
        ),
        pytest.param(pod(container(env=ALL), annotations=CLAIMED), claim(), EVERY + WITHOUT, id="a claim"),
        pytest.param(
            pod(container(env=ALL), annotations=CLAIMED),
            claim(exclusivity="Shared", fraction=0.5),
            f"{EVERY}CUDA_VISIBLE_DEVICES alone keeps main from the others",
            id="a shared claim",
        ),
        pytest.param(
            pod(asking("1", env=[{"name": NVIDIA, "value": "3"}])),
            None,
            f"NVIDIA_VISIBLE_DEVICES=3 shows the containers what it names, whatever is allocated; {WITHOUT}",
            id="another value",
        ),
        pytest.param(
            pod(asking("1", env=[field_ref(NVIDIA, "mine")])),
            None,
            f"NVIDIA_VISIBLE_DEVICES=valueFrom shows the containers what it names, whatever is allocated; {WITHOUT}",
            id="from elsewhere",
        ),
    ],
)
def test_a_container_that_tells_the_runtime_what_to_show_is_warned_of(
    document: Document, found: GpuClaim | None, warning: str
) -> None:
    assert decide(document, found).warnings == (warning,)


@pytest.mark.parametrize(
    ("document", "enforcement"),
    [
        pytest.param(pod(asking("1", env=[{"name": NVIDIA, "value": "void"}])), "device-plugin", id="void"),
        pytest.param(pod(asking("1", env=[{"name": NVIDIA, "value": "none"}])), "device-plugin", id="none"),
        pytest.param(pod(asking("1", env=[{"name": NVIDIA}])), "device-plugin", id="empty"),
        pytest.param(pod(container(env=ALL), annotations=MAP), "device-plugin", id="a map needs it"),
        pytest.param(pod(container(env=ALL), annotations=CLAIMED), "environment", id="ids need it"),
    ],
)
def test_what_shows_nothing_or_has_to_be_is_not_warned_of(document: Document, enforcement: Enforcement) -> None:
    assert decide(document, claim(), enforcement).warnings == ()


# What a pod may expect in vain


def test_a_claim_that_the_pods_scheduler_does_not_read_is_warned_of() -> None:
    document = pod(asking("2"), annotations=CLAIMED, scheduler="default-scheduler")

    assert decide(document, claim()).warnings == (
        "the scheduler default-scheduler reads no GpuClaim: set spec.schedulerName to gpu-scheduler",
    )


def test_gpus_of_amd_are_counted_and_not_chosen() -> None:
    document = pod(container(resources={"limits": {"amd.com/gpu": 2, GPU: 2}}), annotations=CLAIMED)

    assert decide(document, claim()).warnings == (
        "amd.com/gpu is counted, and which GPUs it is the device plugin chooses: a GpuClaim gives NVIDIA GPUs",
    )


def test_only_some_of_many_values_are_told() -> None:
    many = [asking("1", f"c{number}", env=[{"name": NVIDIA, "value": str(number)}]) for number in range(100)]

    assert len(decide(pod(*many)).warnings) == 5
