"""The picture of the front page shows what the scheduler has done with the workloads of the example."""

from __future__ import annotations

import pytest

from gangline.state.requests import compute
from gangline.wire.custom_resources import ALLOCATED, GPU
from gangline_docs.drawing import GANGS
from gangline_docs.topology_picture import LEAF, SPINE, WORKLOAD, Placed, draw, place


@pytest.fixture(scope="module")
def placed() -> Placed:
    return place()


def test_every_pod_of_the_example_has_a_place(placed: Placed) -> None:
    assert len(placed.nodes) == 32
    assert [pod.metadata.name for pod in placed.pods if not pod.spec.node_name] == []


def test_every_device_that_is_taken_has_the_colour_of_its_workload(placed: Placed) -> None:
    picture = draw(placed, "title")

    wanted = sum(compute(pod.spec).real[GPU] for pod in placed.pods)
    workloads = {(pod.metadata.labels or {})[WORKLOAD] for pod in placed.pods}
    cells = sum(picture.count(f'fill="{colour}"') for colour in GANGS)
    assert cells == wanted + len(workloads)
    assert sum(len((pod.metadata.annotations or {})[ALLOCATED].split(",")) for pod in placed.pods) == wanted


def test_every_leaf_and_workload_is_named(placed: Placed) -> None:
    picture = draw(placed, "title")

    assert all(f">leaf-{number}<" in picture for number in range(8))
    assert all(f">{(pod.metadata.labels or {})[WORKLOAD]}: " in picture for pod in placed.pods)


def test_the_largest_job_has_one_spine_and_the_next_a_complete_leaf(placed: Placed) -> None:
    labels = {node.metadata.name: node.metadata.labels or {} for node in placed.nodes}

    def domains(workload: str, label: str) -> set[str]:
        mine = (pod for pod in placed.pods if (pod.metadata.labels or {})[WORKLOAD] == workload)
        return {labels[pod.spec.node_name][label] for pod in mine}

    assert len(domains("pretrain", SPINE)) == len(domains("finetune", LEAF)) == 1
