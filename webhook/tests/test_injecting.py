"""What a new pod gets: variables, and the loss of what it may not bring."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.wire.custom_resources import GpuClaim
from gangline_webhook.injecting import Options, mutate
from gangline_webhook.pods import Pod
from gangline_webhook.reviewing import Verdict

from .reviews import CUDA, ORDER, Document, container, env, field_ref, patched, pod

CLAIMED = {"gpu.scheduling/claim": "four"}
MAP = "gpu-scheduling-map"
UUIDS = "gpu.scheduling/allocated-uuids"
PLAIN = {"name": "A", "value": "1"}
OPTIONS = Options(frozenset({"gpu-scheduler"}))


def decide(document: Document, claim: GpuClaim | None = None, options: Options = OPTIONS) -> Verdict:
    return mutate(msgspec.convert(document, Pod), claim, options)


def mutated(document: Document, claim: GpuClaim | None = None, options: Options = OPTIONS) -> Document:
    return patched(document, decide(document, claim, options).patch)


def claim(**spec: Any) -> GpuClaim:
    return msgspec.convert({"metadata": {"name": "four"}, "spec": {"devices": {"count": 4}, **spec}}, GpuClaim)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, [field_ref(CUDA)], id="no list"),
        pytest.param([], [field_ref(CUDA)], id="an empty list"),
        pytest.param([PLAIN], [PLAIN, field_ref(CUDA)], id="other variables"),
        pytest.param([{"name": CUDA, "value": "7"}, PLAIN], [field_ref(CUDA), PLAIN], id="a value"),
        pytest.param([PLAIN, field_ref(CUDA, "mine")], [PLAIN, field_ref(CUDA)], id="a valueFrom"),
        pytest.param([{"name": CUDA}], [field_ref(CUDA)], id="no value"),
        pytest.param(
            [{"name": CUDA, "value": "7"}, PLAIN, {"name": CUDA, "value": "8"}, field_ref(CUDA)],
            [field_ref(CUDA), PLAIN],
            id="several times",
        ),
    ],
)
def test_a_claim_pod_reads_its_devices_from_the_annotation(before: Any, after: Any) -> None:
    assert env(mutated(pod(container(env=before), annotations=CLAIMED))) == [*after, ORDER]


def test_every_container_and_init_container_gets_the_variable() -> None:
    result = mutated(pod(container(), container("side"), init=[container("setup")], annotations=CLAIMED))

    assert [env(result, name) for name in ("main", "side", "setup")] == [[field_ref(CUDA), ORDER]] * 3


def test_what_the_user_set_is_replaced_with_one_warning_that_names_the_containers() -> None:
    document = pod(
        container(env=[{"name": CUDA, "value": "7"}]),
        container("side"),
        init=[container("setup", env=[field_ref(CUDA, "mine")])],
        annotations=CLAIMED,
    )

    (warning,) = decide(document).warnings

    assert CUDA in warning
    assert warning.endswith("were replaced: main '7', setup valueFrom")


def test_doing_it_again_changes_nothing_and_warns_of_nothing() -> None:
    once = mutated(pod(container(env=[PLAIN]), container("side"), annotations=CLAIMED), claim())

    assert decide(once, claim()) == Verdict()


def test_a_pod_that_has_nothing_to_do_with_gpus_is_left_alone() -> None:
    assert decide(pod(container(env=[{"name": CUDA, "value": "7"}]), annotations={"a": "b"})) == Verdict()
    assert decide(pod()) == Verdict()


def test_an_empty_claim_annotation_is_no_claim() -> None:
    assert decide(pod(annotations={"gpu.scheduling/claim": ""})) == Verdict()


def test_a_pod_whose_name_is_still_to_be_generated_gets_the_variable_too() -> None:
    document = pod(annotations=CLAIMED, name="", generateName="train-")

    assert env(mutated(document)) == [field_ref(CUDA), ORDER]


def test_a_pod_with_a_mig_claim_sees_its_instances_by_uuid() -> None:
    instances = claim(devices={"count": 2, "exclusivity": "MIG", "migProfile": "1g.10gb"})
    document = pod(container(env=[{"name": CUDA, "value": "7"}]), init=[container("setup")], annotations=CLAIMED)

    result = mutated(document, instances)

    assert [env(result, name) for name in ("main", "setup")] == [[field_ref(CUDA, UUIDS)]] * 2


@pytest.mark.parametrize("more", [{}, CLAIMED], ids=["without a claim", "with a claim"])
def test_a_forged_allocation_is_taken_away_and_told(more: dict[str, str]) -> None:
    forged = {"gpu.scheduling/allocated": "0,1", "gpu.scheduling/allocated-uuids": "GPU-1", "keep/~me": "x"}
    document = pod(annotations={**forged, **more})

    verdict = decide(document)

    assert patched(document, verdict.patch)["metadata"]["annotations"] == {"keep/~me": "x", **more}
    assert [warning.split()[2] for warning in verdict.warnings] == list(forged)[:2]


def test_a_forged_key_with_a_tilde_is_taken_away_too() -> None:
    document = pod(annotations={"gpu.scheduling/allocated~0": "0"})

    assert mutated(document)["metadata"]["annotations"] == {}


def test_a_map_pod_gets_its_devices_as_a_literal_in_every_container() -> None:
    document = pod(
        container(env=[field_ref(CUDA, "mine")]),
        init=[container("setup")],
        annotations={MAP: "0=node1:0,1\n1=node2:2"},
        name="web-1",
    )

    result = mutated(document)

    assert [env(result, name) for name in ("main", "setup")] == [[{"name": CUDA, "value": "2"}, ORDER]] * 2


def test_a_map_is_read_only_for_schedulers_that_are_served() -> None:
    document = pod(annotations={MAP: "0=node1:0,1"}, scheduler="other")

    assert decide(document) == Verdict()
    assert decide(document, options=Options(frozenset({"one", "other"}))).patch


def test_a_claim_counts_more_than_a_map_and_the_user_is_told() -> None:
    document = pod(annotations={MAP: "0=node1:0,1", **CLAIMED})

    assert env(mutated(document)) == [field_ref(CUDA), ORDER]
    assert decide(document).warnings == ("gpu-scheduling-map is not read: the pod has a claim",)


# The fabric

FABRIC = claim(network={"rdmaRequired": True, "preferredHcas": ["mlx5_0", "mlx5_1"]}, storage={"cuFile": "Required"})
VARIABLES = [
    {"name": "NCCL_IB_HCA", "value": "=mlx5_0,mlx5_1"},
    {"name": "NCCL_NET_GDR_LEVEL", "value": "PHB"},
    {"name": "CUFILE_ENV_PATH_JSON", "value": "/etc/cufile.json"},
    {"name": "CUFILE_ENV_PATH", "value": "/etc/cufile.json"},
]


TOLD = [{"name": CUDA, "value": "0,1,2,3"}, ORDER]
"""What a container is told to which a device plugin shows the claim's GPUs."""


def test_a_fabric_claim_brings_the_variables_of_nccl_and_cufile() -> None:
    assert env(mutated(pod(annotations=CLAIMED), FABRIC)) == [*TOLD, *VARIABLES]


def test_what_the_user_says_about_the_fabric_stays_without_a_warning() -> None:
    own = {"name": "NCCL_IB_HCA", "value": "^mlx5_9"}
    document = pod(container(env=[own]), annotations=CLAIMED)

    assert env(mutated(document, FABRIC)) == [own, *TOLD, *VARIABLES[1:]]
    assert decide(document, FABRIC).warnings == ()


@pytest.mark.parametrize(
    "spec",
    [{}, {"network": {"minPorts": 2}}, {"storage": {}}],
    ids=["no fabric", "ports only", "empty storage"],
)
def test_a_claim_that_names_no_adapters_and_no_cufile_brings_none(spec: Any) -> None:
    assert env(mutated(pod(annotations=CLAIMED), claim(**spec))) == TOLD
