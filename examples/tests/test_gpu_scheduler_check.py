"""The program of gpu-scheduler-check as a process, and its manifests on a cluster in memory."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import gangline_profiles
from gangline import scheduling_map
from gangline.simulate import simulate
from gangline.testing.configured import configuration

EXAMPLE = Path(__file__).parents[1] / "gpu-scheduler-check"
PROGRAM = EXAMPLE / "chart" / "check.py"
CANONICAL = {0: ("node1", "0,1"), 1: ("node2", "2"), 2: ("node3", "0,1,2"), 3: ("node4", "3"), 4: ("node4", "3")}
POD = {"POD_NAMESPACE": "tests", "POD_NAME": "check-3"}


@contextmanager
def running(environ: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The program, with this environment and no other; -I keeps it to the standard library."""
    command = [sys.executable, "-I", "-S", str(PROGRAM)]
    with subprocess.Popen(
        command, env=dict(environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(environ: Mapping[str, str]) -> str:
    with running(environ) as process:
        assert process.stdout is not None
        return process.stdout.readline()


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLE / "check.yaml").read_text()))


@pytest.mark.parametrize(
    ("devices", "shown"),
    [({"CUDA_VISIBLE_DEVICES": "0,1"}, "0,1"), ({}, "not-set"), ({"CUDA_VISIBLE_DEVICES": ""}, "empty")],
    ids=["set", "unset", "empty"],
)
def test_it_says_the_node_and_the_devices(devices: dict[str, str], shown: str) -> None:
    assert first_line({"NODE_NAME": "node1", **devices}) == f"Node: node1, CUDA_VISIBLE_DEVICES: {shown}\n"


def test_it_says_so_again_after_the_interval() -> None:
    with running({"NODE_NAME": "node1", "LOG_INTERVAL": "1"}) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        start = time.monotonic()
        second = process.stdout.readline()

        assert second == first and 0.9 < time.monotonic() - start < 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_at_once_and_without_a_word(number: signal.Signals) -> None:
    with running({"NODE_NAME": "node1", "LOG_INTERVAL": "86400"}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        out, error = process.communicate(timeout=10)

    assert (process.returncode, out, error) == (0, "", "")


@pytest.mark.parametrize("interval", ["0", "-1", "1.5", "ten", "", " 5", "٣"])
def test_an_interval_that_is_no_whole_number_of_seconds_is_refused_in_one_line(interval: str) -> None:
    with running({**POD, "LOG_INTERVAL": interval}) as process:
        out, error = process.communicate(timeout=10)

    assert (process.returncode, out, error.count("\n")) == (1, "", 1)
    assert error.startswith("tests/check-3: LOG_INTERVAL must be a whole number of seconds, at least 1, not ")


def test_the_manifest_has_the_canonical_map_and_five_pods() -> None:
    service, stateful_set = manifests()
    parsed = scheduling_map.parse(stateful_set["spec"]["template"]["metadata"]["annotations"]["gpu-scheduling-map"])

    assert {index: (entry.node, entry.devices) for index, entry in parsed.entries.items()} == CANONICAL
    assert not parsed.faults and stateful_set["spec"]["replicas"] == 5
    assert service["spec"]["clusterIP"] == "None"
    assert stateful_set["spec"]["serviceName"] == service["metadata"]["name"]


def test_the_values_of_the_chart_are_the_same_map() -> None:
    values = yaml.safe_load((EXAMPLE / "chart" / "values.yaml").read_text())
    entries = values["gpuScheduling"]["schedulingMap"]

    assert {each["podIndex"]: (each["nodeName"], each["gpuDevices"]) for each in entries} == CANONICAL


def test_every_pod_gets_the_node_that_the_map_names_by_label_or_by_name() -> None:
    profile = configuration(gangline_profiles.read("gpu-scheduler"))

    outcome = simulate([EXAMPLE / "nodes.yaml", EXAMPLE / "check.yaml"], profile, 60.0)

    name = "default/gpu-scheduler-check"
    assert {node.name: node.pods for node in outcome.nodes} == {
        "gpu-a": [f"{name}-0"],
        "gpu-b": [f"{name}-1"],
        "node3": [f"{name}-2"],
        "node4": [f"{name}-3", f"{name}-4"],
    }
