"""Objects that come while a simulation runs, and the series of what it looked like."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from gangline import main

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: a}
status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110", nvidia.com/gpu: "4"}}
"""


def pod(name: str, gpus: int, **annotations: str) -> str:
    said = msgspec.json.encode({f"gangline.dev/{key}-seconds": value for key, value in annotations.items()}).decode()
    return f"""\
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {said}}}
spec:
  schedulerName: gangline
  containers: [{{name: main, image: main:1, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"""


def simulated(folder: Path, *texts: str, options: tuple[str, ...] = ()) -> Result:
    file = folder / "cluster.yaml"
    file.write_text("".join(texts))
    return CliRunner().invoke(main.cli, ["simulate", str(file), *options])


def series(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = msgspec.json.decode(result.stdout)["series"]
    return found


def test_pods_come_wait_run_and_end_at_their_times(tmp_path: Path) -> None:
    pods = pod("first", 3, run="40"), pod("second", 2, arrive="15", run="100"), pod("third", 1, arrive="25")

    samples = series(simulated(tmp_path, NODE, *pods, options=("--duration", "61s", "--every", "10s", "-o", "json")))

    fields = ("seconds", "arrived", "queued", "running", "finished", "gpus_used")
    assert [tuple(each[field] for field in fields) for each in samples] == [
        (10, 1, 0, 1, 0, 3),
        (20, 2, 1, 1, 0, 3),  # two GPUs are more than the one that is free
        (30, 3, 1, 2, 0, 4),
        (40, 3, 1, 2, 0, 4),
        (50, 3, 0, 2, 1, 3),
        (60, 3, 0, 2, 1, 3),
    ]
    assert [each["utilization"] for each in samples] == [0.75, 0.75, 1.0, 1.0, 0.75, 0.75]
    assert samples[1]["success_rate"] == 0.5 and samples[-1]["success_rate"] == 1.0


def test_a_node_may_come_late_too(tmp_path: Path) -> None:
    late = NODE.replace("name: a", 'name: a, annotations: {gangline.dev/arrive-seconds: "12"}')

    samples = series(
        simulated(tmp_path, late, pod("p", 1), options=("--duration", "21s", "--every", "10s", "-o", "json"))
    )

    assert [(each["gpus"], each["queued"]) for each in samples] == [(0, 1), (4, 0)]


NOTHING: Mapping[str, str] = {}
LEVELS = ("topology.gangline.dev/spine", "topology.gangline.dev/leaf")


def leaf_node(name: str, spine: str, leaf: str) -> str:
    labels = msgspec.json.encode(dict(zip(LEVELS, (spine, leaf), strict=True))).decode()
    return "---\n" + NODE.replace("name: a", f"name: {name}, labels: {labels if leaf else {}}")


def member(gang: str, rank: int, node: str, annotations: Mapping[str, str]) -> str:
    """A pod of a gang that has its node already."""
    said = msgspec.json.encode(annotations).decode()
    labels = f"{{scheduling.x-k8s.io/pod-group: {gang}, batch.kubernetes.io/job-completion-index: '{rank}'}}"
    return f"""\
---
apiVersion: v1
kind: Pod
metadata: {{name: {gang}-{rank}, labels: {labels}, annotations: {said}}}
spec:
  schedulerName: gangline
  nodeName: {node}
  containers: [{{name: main, image: main:1, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"""


def gang(name: str, *nodes: str, needed: int = 0, annotations: Mapping[str, str] = NOTHING) -> str:
    """A gang with a member on each of these nodes."""
    group = f"""\
---
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {{name: {name}}}
spec: {{minMember: {needed or len(nodes)}}}
"""
    return group + "".join(member(name, rank, node, annotations) for rank, node in enumerate(nodes))


LEAVES = "".join(leaf_node(f"l{leaf}n{n}", f"spine-{leaf // 3}", f"leaf-{leaf}") for leaf in range(6) for n in range(2))
PREFERRED, REQUIRED = "gangline.dev/topology-preferred", "gangline.dev/topology-required"
DISTRIBUTED = {"topology.scheduler/placement-strategy": "distributed"}
KUEUE = "kueue.x-k8s.io/podset"
SLICED = {f"{KUEUE}-slice-size": "2", f"{KUEUE}-slice-required-topology": "leaf"}


@pytest.mark.parametrize(
    ("manifest", "accuracy"),
    [
        pytest.param(gang("g", "l0n0", "l0n1"), 1.0, id="one leaf"),
        pytest.param(gang("g", "l0n0", "l1n0"), 0.0, id="two leaves where one would do"),
        pytest.param(gang("g", "l0n0", "l0n1", "l1n0"), 1.0, id="two leaves side by side"),
        pytest.param(gang("g", "l0n0", "l0n1", "l2n0"), 0.0, id="a leaf between"),
        pytest.param(gang("g", "l0n0", "l0n0"), 1.0, id="one node"),
        pytest.param(gang("g", "l0n0", "x"), 0.0, id="a node in no leaf"),
        pytest.param(
            gang("g", "l0n0", "l2n0", annotations={PREFERRED: "spine"}), 1.0, id="in the level that it prefers"
        ),
        pytest.param(
            gang("g", "l2n0", "l3n0", annotations={PREFERRED: "spine"}), 0.0, id="not in the level that it prefers"
        ),
        pytest.param(
            gang("g", "l0n0", "l2n0", annotations={REQUIRED: "spine"}), 1.0, id="in the level that it requires"
        ),
        pytest.param(
            gang("g", "l0n0", "l1n0", annotations={REQUIRED: "spine", PREFERRED: "leaf"}), 0.0, id="not in both"
        ),
        pytest.param(gang("g", "l0n0", "l1n0", annotations=DISTRIBUTED), 1.0, id="distributed"),
        pytest.param(gang("g", "l0n0", "l0n1", "l4n0", "l4n1", annotations=SLICED), 1.0, id="every slice in a leaf"),
        pytest.param(gang("g", "l0n0", "l1n0", "l4n0", "l4n1", annotations=SLICED), 0.0, id="a slice in two leaves"),
        pytest.param(gang("g", "l0n0", "l1n0", needed=3), 1.0, id="one that is not complete"),
        pytest.param(gang("g", "l0n0", "l0n1") + gang("h", "l2n0", "l4n0"), 0.5, id="one of two"),
    ],
)
def test_accuracy_is_the_part_of_the_gangs_that_are_as_close_together_as_is_meant(
    tmp_path: Path, manifest: str, accuracy: float
) -> None:
    nodes = LEAVES + leaf_node("x", "", "")
    (one,) = series(simulated(tmp_path, nodes, manifest, options=("--duration", "11s", "--every", "10s", "-o", "json")))

    assert one["accuracy"] == accuracy


def test_where_nodes_are_in_no_leaves_there_is_nothing_to_judge(tmp_path: Path) -> None:
    nodes = "---\n" + NODE + "---\n" + NODE.replace("name: a", "name: b")
    options = ("--duration", "11s", "--every", "10s", "-o", "json")
    (one,) = series(simulated(tmp_path, nodes, gang("g", "a", "b"), options=options))

    assert one["accuracy"] == 1.0


def test_the_table_has_the_series_and_without_samples_there_is_none(tmp_path: Path) -> None:
    shown = simulated(tmp_path, NODE, pod("p", 4), options=("--duration", "35s", "--every", "10s"))

    assert (
        shown.exit_code == 0 and "GPUS IN USE" in shown.stdout and "ACCURACY" in shown.stdout and "100%" in shown.stdout
    )
    assert "GPUS IN USE" not in simulated(tmp_path, NODE, pod("p", 4)).stdout


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_time_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    result = simulated(tmp_path, NODE, pod("p", 1, arrive=text))

    assert result.exit_code != 0
    assert f'metadata.annotations[gangline.dev/arrive-seconds]: "{text}": not a number of seconds' in str(
        result.exception
    )


def test_what_makes_too_many_samples_is_refused(tmp_path: Path) -> None:
    result = simulated(tmp_path, NODE, options=("--duration", "24h", "--every", "1s"))

    assert result.exit_code == 2 and "--every 1s in 24h makes more than 10000 samples" in result.output


@pytest.mark.parametrize("options", [(), ("--every", "0s"), ("--every", "10s")])
def test_a_simulation_without_time_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    result = simulated(tmp_path, NODE, options=("--duration", "0s", *options))

    assert result.exit_code == 2 and "--duration '0s' leaves no time for a pod" in result.output


def test_an_object_that_comes_late_and_is_refused_ends_the_simulation_with_its_name(tmp_path: Path) -> None:
    odd = pod("odd", 1, arrive="5").replace("limits: {nvidia.com/gpu: 1}", "limits: {nvidia.com/gpu: 500m}")

    result = simulated(tmp_path, NODE, odd)

    assert result.exit_code != 0 and 'Pod "odd" is invalid' in str(result.exception)
