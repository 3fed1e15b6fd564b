"""Objects that come while a simulation runs, and the series of what it looked like."""

from __future__ import annotations

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


def test_the_table_has_the_series_and_without_samples_there_is_none(tmp_path: Path) -> None:
    shown = simulated(tmp_path, NODE, pod("p", 4), options=("--duration", "35s", "--every", "10s"))

    assert shown.exit_code == 0 and "GPUS IN USE" in shown.stdout and "100%" in shown.stdout
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


def test_an_object_that_comes_late_and_is_refused_ends_the_simulation_with_its_name(tmp_path: Path) -> None:
    odd = pod("odd", 1, arrive="5").replace("limits: {nvidia.com/gpu: 1}", "limits: {nvidia.com/gpu: 500m}")

    result = simulated(tmp_path, NODE, odd)

    assert result.exit_code != 0 and 'Pod "odd" is invalid' in str(result.exception)
