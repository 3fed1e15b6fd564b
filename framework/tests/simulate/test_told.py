"""What events warn of is among the warnings of a simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gangline import main
from gangline.simulate import session

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: a, labels: {topology.gangline.dev/leaf: leaf-1}}
status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110", nvidia.com/gpu: "4"}}
---
"""
DOMAIN = """\
apiVersion: topology.scheduler/v1alpha1
kind: DomainConfig
metadata: {name: leaf-1}
spec: {type: leaf, maxLatency: 2}
"""
WITHOUT_GPUS = """\
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {topology.scheduler/gpu-count: "4"}}
spec: {schedulerName: topology-aware-scheduler, containers: [{name: main, image: main:1}]}
"""
TOO_LARGE = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {schedulerName: gangline, containers: [{name: main, image: main:1, resources: {limits: {nvidia.com/gpu: 8}}}]}
"""


def warnings(folder: Path, *texts: str) -> list[str]:
    file = folder / "cluster.yaml"
    file.write_text("".join(texts))
    result = CliRunner().invoke(main.cli, ["simulate", str(file), "-o", "json"], catch_exceptions=False)
    found: dict[str, Any] = msgspec.json.decode(result.stdout)
    lines: list[str] = found["warnings"]
    assert all(f"warning: {line}\n" in result.stderr for line in lines)
    return lines


@pytest.mark.parametrize(
    ("manifest", "beginning"),
    [
        pytest.param(
            DOMAIN, "DomainConfig default/leaf-1: NotUsed: it does not count in the namespace default", id="place"
        ),
        pytest.param(WITHOUT_GPUS, "Pod default/p: ", id="a number of GPUs for pods that ask for none"),
    ],
)
def test_what_is_not_obeyed_is_told(tmp_path: Path, manifest: str, beginning: str) -> None:
    (line,) = warnings(tmp_path, NODE, manifest)

    assert line.startswith(beginning)


def test_why_a_pod_waits_is_not_told_twice(tmp_path: Path) -> None:
    assert warnings(tmp_path, NODE, TOO_LARGE) == []


def test_of_many_warnings_the_first_are_told_and_the_number_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_MOST_TOLD", 2)
    domains = [DOMAIN.replace("leaf-1", f"leaf-{number}") + "---\n" for number in range(5)]

    lines = warnings(tmp_path, NODE, *domains)

    assert len(lines) == 3 and lines[-1] == "3 more events warn of something"
