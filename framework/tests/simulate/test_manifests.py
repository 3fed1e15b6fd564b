"""Manifests: what they become, and what is said about those that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gangline.errors import ConfigError
from gangline.kube.resources import (
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
)
from gangline.simulate import InMemoryServer
from gangline.simulate.folders import sort_out

from .stories import pod

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: main}]}
"""


def write(folder: Path, text: str, name: str = "all.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def workload(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main"}]}}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    spec = {"template": template, **spec}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "team"}, "spec": spec}


def pods(server: InMemoryServer) -> list[dict[str, Any]]:
    return [each.data for each in server.list(PODS)]


def test_folders_and_documents_are_all_loaded(server: InMemoryServer, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    write(tmp_path, f"---\n{POD}---\n# nothing\n---\n{POD.replace('name: a', 'name: b, namespace: team')}")
    write(tmp_path / "inner", POD.replace("name: a", "name: c, creationTimestamp: null"), "c.yml")
    write(tmp_path, "not a manifest: [", "notes.txt")

    assert server.load([tmp_path]) == []

    assert [each["metadata"]["name"] for each in pods(server)] == ["a", "c", "b"]
    assert server.get(NAMESPACES, "team").data["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}


def test_fields_that_the_scheduler_does_not_read_are_kept(server: InMemoryServer) -> None:
    server.apply_manifest(pod("a", dnsPolicy="None", containers=[{"name": "main", "command": ["sleep"]}]))

    spec = server.get(PODS, "a").data["spec"]
    assert (spec["dnsPolicy"], spec["containers"][0]["command"]) == ("None", ["sleep"])


def test_what_others_refer_to_comes_first_and_lists_are_taken_apart(server: InMemoryServer, tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {priorityClassName: high}}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 9}
"""
    server.load([write(tmp_path, text)])

    assert pods(server)[0]["spec"]["priority"] == 9


def test_applying_again_changes_the_object(server: InMemoryServer) -> None:
    server.apply_manifest(pod("a"))
    uid = pods(server)[0]["metadata"]["uid"]

    server.apply_manifest({**pod("a"), "metadata": {"name": "a", "labels": {"x": "1"}}})

    (after,) = pods(server)
    assert (after["metadata"]["uid"], after["metadata"]["labels"]) == (uid, {"x": "1"})


def test_a_node_gets_what_its_kubelet_would_register(server: InMemoryServer) -> None:
    server.apply_manifest(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": 4}}}
    )

    status = server.get(NODES, "n").data["status"]
    assert status["allocatable"] == status["capacity"] == {"cpu": 4, "pods": "110"}


def test_unknown_kinds_are_kept_with_one_warning_each(server: InMemoryServer, tmp_path: Path) -> None:
    one = "apiVersion: example.com/v1\nkind: Policy\nmetadata: {name: NAME}\nspec: {a: 1}\n"
    path = write(tmp_path, f"{one.replace('NAME', 'x')}---\n{one.replace('NAME', 'y')}")

    assert server.load([path]) == ["example.com/v1 Policy: stored, but nothing in the simulation reads it"]
    assert server.served("example.com", "v1") == {"policies"}


@pytest.mark.parametrize(
    ("version", "kind", "meant"),
    [
        pytest.param("v1", "pod", "v1 Pod", id="case"),
        pytest.param("v1", "POD", "v1 Pod", id="capitals"),
        pytest.param("batch/v1", "Jobs", "batch/v1 Job", id="plural"),
        pytest.param("v1", "Deployment", "apps/v1 Deployment", id="version"),
    ],
)
def test_a_misspelt_kind_is_told(server: InMemoryServer, tmp_path: Path, version: str, kind: str, meant: str) -> None:
    text = f"{{apiVersion: {version}, kind: {kind}, metadata: {{name: a}}, spec: {{containers: [{{name: main}}]}}}}"

    with pytest.raises(ConfigError) as caught:
        server.load([write(tmp_path, text)])

    assert str(caught.value).endswith(f"document 1: kind: {version} has no kind {kind!r}; did you mean {meant}?")


def test_a_workload_whose_pods_nobody_makes_is_kept_with_a_warning(server: InMemoryServer, tmp_path: Path) -> None:
    path = write(tmp_path, "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: js}\nspec: {}\n")

    assert server.load([path]) == [
        "jobset.x-k8s.io/v1alpha2 JobSet: stored, but nothing in the simulation makes pods of it"
    ]


def test_a_definition_says_how_its_kind_is_served(server: InMemoryServer, tmp_path: Path) -> None:
    text = """\
apiVersion: example.com/v1
kind: Chassis
metadata: {name: c}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: chassis.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: chassis, kind: Chassis}
  versions: [{name: v1, served: true}]
"""
    server.load([write(tmp_path, text)])

    assert server.served("example.com", "v1") == {"chassis"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod", "document 1: apiVersion: required field is missing"),
        ("apiVersion: v1\nkind: Pod", "document 1: metadata.name: required field is missing"),
        ("- a", "document 1: expected a mapping, got a list"),
        (f"{POD}---\na: 1\na: 2", 'document 2: 7:1: not valid YAML: key "a" is there twice'),
        (f"{POD}---\na: [", "document 2: 6:5: not valid YAML"),
        pytest.param(f"{POD}---\na: " + "[" * 1_000_000, "document 2: nested too deeply", id="deep"),
        pytest.param(f"{POD}---\na: &a [*a]", "document 2: nested too deeply", id="within itself"),
        pytest.param(f"{POD}---\na: " + "9" * 5000, "document 2: not valid YAML", id="a long number"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, 1: x}\nspec: {a", "document 1: 4:9: not valid YAML"),
        (POD.replace("[{name: main}]", "[{name: 5}]"), "document 1: spec.containers[0].name: expected a string, got 5"),
        (
            POD.replace("[{name: main}]", "[{resources: {limits: {cpu: 4 cores}}}]"),
            'document 1: spec.containers[0].resources.limits[cpu]: "4 cores": not a quantity',
        ),
        (
            POD.replace("name: a", "name: a, annotations: {gangline.dev/run-seconds: soon}"),
            'document 1: metadata.annotations[gangline.dev/run-seconds]: "soon": not a number of seconds',
        ),
        (
            POD.replace("spec: {", "spec: {priorityClassName: high, "),
            'document 1: pods "a" is forbidden: no PriorityClass with name high was found',
        ),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 2}",
            "document 1: spec.template: required field is missing",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {priority: high}}}",
            'document 1: spec.template.spec.priority: expected an integer, got "high"',
        ),
        (
            "apiVersion: v1\nkind: PodList\nitems: [{apiVersion: v1, kind: Pod, metadata: 3}]",
            "document 1: items[0]: metadata: expected a mapping, got 3",
        ),
    ],
    ids=lambda value: value.split(": ", 1)[1][:40] if value.startswith("document") else "",
)
def test_an_error_names_file_document_and_path(server: InMemoryServer, tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)

    with pytest.raises(ConfigError) as caught:
        server.load([path])

    assert str(caught.value).startswith(f"{path}: {message}")


def test_paths_that_hold_nothing_are_errors(server: InMemoryServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing.yaml: cannot be read: No such file or directory"):
        server.load([tmp_path / "missing.yaml"])
    with pytest.raises(ConfigError, match=r"the folder holds no file that ends in .yaml, .yml, .json"):
        server.load([tmp_path])


def test_an_indexed_job_becomes_pods_with_their_index(server: InMemoryServer) -> None:
    server.apply_manifest(workload("Job", "train", parallelism=3, completions=4, completionMode="Indexed"))

    job = server.get(JOBS, "train", namespace="team").data
    first, *_ = made = pods(server)
    metadata = first["metadata"]
    index = "batch.kubernetes.io/job-completion-index"
    assert [each["metadata"]["annotations"][index] for each in made] == ["0", "1", "2"]
    assert metadata["name"].startswith("train-0-")
    assert first["spec"]["hostname"] == "train-0"
    assert {key: metadata["labels"][key] for key in ("app", "job-name", "batch.kubernetes.io/job-name", index)} == {
        "app": "train",
        "job-name": "train",
        "batch.kubernetes.io/job-name": "train",
        index: "0",
    }
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
        "Job",
        "train",
        job["metadata"]["uid"],
        True,
    )
    assert metadata["namespace"] == "team"


def test_a_suspended_job_has_no_pods(server: InMemoryServer) -> None:
    server.apply_manifest(workload("Job", "train", parallelism=3, suspend=True))

    assert pods(server) == []


def test_a_deployment_becomes_a_replica_set_and_its_pods(server: InMemoryServer) -> None:
    server.apply_manifest(workload("Deployment", "web", replicas=3, selector={"matchLabels": {"app": "web"}}))

    (replica_set,) = (each.data for each in server.list(REPLICA_SETS))
    mark = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"web-{mark}"
    assert replica_set["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    assert replica_set["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": mark}
    made = pods(server)
    assert len({each["metadata"]["name"] for each in made}) == 3
    assert all(each["metadata"]["name"].startswith(f"web-{mark}-") for each in made)
    assert {each["metadata"]["ownerReferences"][0]["name"] for each in made} == {f"web-{mark}"}
    assert made[0]["metadata"]["labels"] == {"app": "web", "pod-template-hash": mark}


def test_a_stateful_set_becomes_numbered_pods_and_grows(server: InMemoryServer) -> None:
    server.apply_manifest(workload("StatefulSet", "db", replicas=1))
    server.apply_manifest(workload("StatefulSet", "db", replicas=3))

    made = pods(server)
    assert [each["metadata"]["name"] for each in made] == ["db-0", "db-1", "db-2"]
    assert [each["metadata"]["labels"]["apps.kubernetes.io/pod-index"] for each in made] == ["0", "1", "2"]


def test_slices_and_claims_of_an_older_version_are_those_of_the_newest(server: InMemoryServer, tmp_path: Path) -> None:
    text = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceSlice
metadata: {name: a}
spec:
  driver: gpu.example.com
  nodeName: a
  pool: {name: a, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, basic: {attributes: {model: {string: h}}}}]
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: gpu, deviceClassName: gpu}]}}}
"""
    write(tmp_path, text)

    assert server.load([tmp_path]) == []

    (found,) = server.list(RESOURCE_SLICES)
    assert found.data["apiVersion"] == "resource.k8s.io/v1"
    assert found.data["spec"]["devices"] == [{"name": "gpu-0", "attributes": {"model": {"string": "h"}}}]
    (template,) = server.list(RESOURCE_CLAIM_TEMPLATES)
    (request,) = template.data["spec"]["spec"]["devices"]["requests"]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert request == {"name": "gpu", "exactly": exactly}


def test_a_case_among_the_files_brings_its_devices(tmp_path: Path) -> None:
    write(tmp_path, "pod: {metadata: {name: p}}\ndeviceclasses: [{metadata: {name: gpu}}]\n")

    assert [each.data["kind"] for each in sort_out([tmp_path]).manifests] == ["Pod", "DeviceClass"]
