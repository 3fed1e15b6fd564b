"""What a pod with a map sees."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline_webhook.mapping import visible_devices
from gangline_webhook.pods import CUDA_VISIBLE_DEVICES, Pod, from_annotation, literal

from .reviews import pod

LABEL = "batch.kubernetes.io/job-completion-index"


def mapped(text: str, **metadata: Any) -> Pod:
    return msgspec.convert(pod(annotations={"gpu-scheduling-map": text}, **metadata), Pod)


@pytest.mark.parametrize(("index", "devices"), [(0, "0,1"), (1, "2"), (2, "0,1,2"), (3, "3"), (4, "3")])
def test_each_pod_of_the_canonical_map_sees_its_devices(index: int, devices: str) -> None:
    canonical = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3"

    assert visible_devices(mapped(canonical, name=f"check-{index}")) == (literal(CUDA_VISIBLE_DEVICES, devices), [])


def test_a_pod_without_a_name_takes_the_index_of_its_label() -> None:
    variable, warnings = visible_devices(mapped("4=a:2", name="", generateName="job-4-", labels={LABEL: "4"}))

    assert (variable, warnings) == (literal(CUDA_VISIBLE_DEVICES, "2"), [])


def test_a_pod_whose_index_is_not_known_yet_reads_what_the_scheduler_sets() -> None:
    variable, warnings = visible_devices(mapped("4=a:2", name="", generateName="web-5d4f-"))

    assert variable == from_annotation(CUDA_VISIBLE_DEVICES, "gpu.scheduling/allocated")
    assert warnings == []


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("web-7", "gpu-scheduling-map: there is no line for pod index 7"),
        ("web", "gpu-scheduling-map: the name 'web' and the labels hold no pod index"),
    ],
)
def test_a_pod_that_the_map_does_not_place_gets_nothing_but_a_warning(name: str, warning: str) -> None:
    assert visible_devices(mapped("0=a:0", name=name)) == (None, [warning])


def test_bad_lines_are_warned_about_and_the_others_count() -> None:
    variable, warnings = visible_devices(mapped("x=a:0\n0=a:5"))

    assert variable == literal(CUDA_VISIBLE_DEVICES, "5")
    assert warnings == ["gpu-scheduling-map: line 1, 'x=a:0': the index 'x' is not an integer"]


def test_many_bad_lines_are_summed_up() -> None:
    _, warnings = visible_devices(mapped("0=a:5\n" + "bad\n" * 100))

    assert len(warnings) == 6
    assert warnings[-1] == "gpu-scheduling-map: 95 more lines cannot be used"
