"""`gangline simulate` takes every folder of examples for what is in it."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from gangline import main
from gangline.model import ResourceSlice
from gangline_agent import devices, slices, templates

EXAMPLES = Path(__file__).parents[1]
FOLDERS = sorted(
    path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name not in ("replay", "tests", "__pycache__")
)
PLACED = {
    "arrivals": 16,
    "demo": 47,
    "dra": 4,
    "dra-claim": 4,
    "explain": 2,
    "gpu-scheduler-check": 5,
    "leaf-spine": 4,
    "quickstart": 10,
    "topology": 20,
}
"""How many pods get a node, where there are nodes."""
CLAIMED = """
apiVersion: v1
kind: Pod
metadata: {name: p, uid: uid-p}
spec:
  nodeName: node-a1
  containers: [{name: c, image: pause}]
  resourceClaims: [{name: gpus, resourceClaimName: c}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 2}}]}}
status:
  allocation:
    devices:
      results:
        - {request: gpus, driver: gpu.gangline.dev, pool: node-a1, device: gpu-2}
        - {request: gpus, driver: gpu.gangline.dev, pool: node-a1, device: gpu-3}
  reservedFor: [{resource: pods, name: p, uid: uid-p}]
"""


def simulated(*words: str | Path) -> Result:
    result = CliRunner().invoke(main.cli, ["simulate", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_simulated(name: str) -> None:
    outcome = msgspec.json.decode(simulated(EXAMPLES / name, "-o", "json").stdout)

    placed = sum(len(node["pods"]) for node in outcome["nodes"])
    assert placed >= PLACED.get(name, 0)
    assert outcome["nodes"] or any("there are no nodes" in line for line in outcome["warnings"])
    assert all(pod["why"] for pod in outcome["pending"])


def test_the_series_of_arrivals_adds_up() -> None:
    words = ("--profile", "topology-aware-scheduler", "--duration", "6m", "--every", "2m", "-o", "json")
    outcome = msgspec.json.decode(simulated(EXAMPLES / "arrivals", *words).stdout)

    series = outcome["series"]
    assert [each["seconds"] for each in series] == [120, 240, 360]
    for each in series:
        assert each["queued"] + each["running"] + each["finished"] == each["arrived"]
        assert each["gpus"] == 512 and each["gpus_used"] == 4 * each["running"]
        assert each["utilization"] == each["gpus_used"] / 512
    assert [each["arrived"] for each in series] == sorted({each["arrived"] for each in series})


@pytest.mark.parametrize(
    ("options", "lowest", "highest"),
    [(("--profile", "topology-aware-scheduler"), 1.0, 1.0), (("--config", str(EXAMPLES / "any-leaf.yaml")), 0.6, 0.9)],
    ids=["rules for leaves", "any leaf"],
)
def test_rules_for_leaves_keep_every_job_of_arrivals_as_close_together_as_is_meant(
    options: tuple[str, ...], lowest: float, highest: float
) -> None:
    words = (*options, "--duration", "15m", "--every", "1m", "-o", "json")
    series = msgspec.json.decode(simulated(EXAMPLES / "arrivals", *words).stdout)["series"]

    assert lowest <= min(each["accuracy"] for each in series) <= highest


@pytest.mark.skipif(not entry_points(group="gangline.plugins", name="DynamicResources"), reason="no plugin for claims")
def test_a_gang_with_claims_takes_both_racks_and_leaves_an_unhealthy_gpu_alone() -> None:
    outcome = msgspec.json.decode(simulated(EXAMPLES / "dra", "-o", "json").stdout)

    claimed = {node["name"]: list(node["claimed"].values()) for node in outcome["nodes"]}
    three = [["gpu-0", "gpu-1", "gpu-2"]]
    assert claimed == {"node-a1": three, "node-a2": three, "node-b1": three, "node-b2": [["gpu-0", "gpu-1", "gpu-3"]]}
    ((name, why),) = [(pod["name"], pod["why"]) for pod in outcome["pending"]]
    assert name == "default/pair"
    assert "4 cannot allocate all claims" in why


@pytest.mark.skipif(not entry_points(group="gangline.plugins", name="DynamicResources"), reason="no plugin for claims")
def test_gpu_claims_with_a_device_class_are_carried_out_by_resource_claims() -> None:
    outcome = msgspec.json.decode(simulated(EXAMPLES / "dra-claim", "-o", "json").stdout)

    claimed = [devices for node in outcome["nodes"] for devices in node["claimed"].values()]
    assert sorted(claimed) == [["gpu-0", "gpu-1"], ["gpu-0", "gpu-1"], ["gpu-2", "gpu-3"], ["gpu-2", "gpu-3"]]
    ((name, why),) = [(pod["name"], pod["why"]) for pod in outcome["pending"]]
    assert name.startswith("default/serve-") and "2 cannot allocate all claims" in why


def test_the_slices_of_the_example_are_those_of_the_agent() -> None:
    file = EXAMPLES / "dra" / "nodes.yaml"
    documents = list(yaml.safe_load_all(file.read_text()))
    template = msgspec.structs.replace(templates.read("gb200"), unhealthy={"node-b2": {2: "XID 79"}})
    expected = []
    for node in (each["metadata"] for each in documents if each["kind"] == "Node"):
        offer = devices.of_reading(template.reading_of(node["name"], node["labels"]["nvidia.com/gpu.clique"]))
        expected += slices.of_generation(slices.wanted(node["name"], "", offer), 1)

    found = [msgspec.convert(each, ResourceSlice) for each in documents if each["kind"] == "ResourceSlice"]
    assert [(each.metadata.name, each.spec) for each in found] == [(each.metadata.name, each.spec) for each in expected]


def test_a_pod_is_shown_with_the_devices_of_its_claims(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(CLAIMED)

    assert "p (gpu-2, gpu-3)" in simulated(EXAMPLES / "dra" / "nodes.yaml", tmp_path).stdout


def test_decisions_on_gangs_are_counted_too() -> None:
    outcome = msgspec.json.decode(simulated(EXAMPLES / "leaf-spine", "-o", "json").stdout)

    assert outcome["decisions"] == 1


def test_profiles_in_a_folder_are_simulated_with() -> None:
    warnings = simulated(EXAMPLES / "topology").stderr

    assert "profile.yaml" in warnings and "its profiles are simulated: gpu-scheduler" in warnings


def test_profiles_that_are_named_come_before_those_in_a_folder() -> None:
    assert (
        "left out, other profiles were named" in simulated(EXAMPLES / "topology", "--profile", "gpu-scheduler").stderr
    )


def test_the_values_of_a_chart_are_taken_for_their_profiles() -> None:
    warnings = simulated(EXAMPLES / "leaf-spine", EXAMPLES.parent / "charts/gpu-scheduler/values.yaml").stderr

    assert "its profiles are simulated: gpu-scheduler, topology-aware-scheduler" in warnings


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ("profiles: [{}]", "gpu-scheduler"),
        ("scheduler: {name: mine}\nprofiles: [{}, {schedulerName: b}]", "b, mine"),
        ("scheduler: {name: b}\nprofiles: [{}, {schedulerName: b}]", "b"),
        ("scheduler: [b]\nprofiles: [{}]", "gpu-scheduler"),
    ],
)
def test_a_profile_without_a_name_is_called_as_the_chart_calls_it(tmp_path: Path, values: str, names: str) -> None:
    (tmp_path / "values.yaml").write_text(values)

    assert f"its profiles are simulated: {names}\n" in simulated(tmp_path).stderr


def test_charts_and_kustomizations_are_left_out_with_a_line() -> None:
    warnings = simulated(EXAMPLES / "gpu-scheduler-check").stderr

    assert "it is a Helm chart" in warnings and "it is a kustomization" in warnings


def test_a_case_stands_for_its_objects() -> None:
    outcome = msgspec.json.decode(simulated(EXAMPLES / "explain", "-o", "json").stdout)

    where = {pod: node["name"] for node in outcome["nodes"] for pod in node["pods"]}
    assert where == {"default/running": "a", "default/mine": "b"}


def test_what_is_no_object_is_left_out_with_a_line(tmp_path: Path) -> None:
    (tmp_path / "notes.yaml").write_text("just: some\nyaml: here\n")
    (tmp_path / "widget.yaml").write_text("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n")

    warnings = simulated(tmp_path).stderr

    assert "notes.yaml: document 1: left out, it is no Kubernetes object" in warnings
    assert "example.com/v1 Widget: stored, but nothing in the simulation reads it" in warnings


def test_half_an_object_is_still_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("kind: Pod\nmetadata: {name: p}\n")

    result = CliRunner().invoke(main.cli, ["simulate", str(tmp_path)])

    assert result.exit_code == 1 and "apiVersion: required field is missing" in str(result.exception)
