"""`gangline simulate` with a cluster: the difference in each form, live and from a file, and bad input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gangline import main
from gangline.commands.snapshot import write

from .cluster_over_http import ClusterOverHttp
from .test_cluster_errors import of
from .test_snapshot import in_use, taken

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: new, namespace: team}
spec:
  parallelism: 3
  template:
    spec:
      schedulerName: gpu-scheduler
      containers: [{name: main, resources: {limits: {nvidia.com/gpu: 8}}}]
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    file = tmp_path / "new.yaml"
    file.write_text(JOB)
    return str(file)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A snapshot."""
    file = tmp_path / "cluster.gz"
    write(file, taken(in_use()))
    return str(file)


def rows(text: str) -> dict[str, list[str]]:
    """The numbers before, after, and the change, by the name of the row."""
    return {" ".join(words[:-3]): words[-3:] for words in map(str.split, text.splitlines())}


async def test_the_difference_that_a_manifest_makes_on_the_cluster(lab: ClusterOverHttp, job: str) -> None:
    lab.add_nodes("a", "b")

    text = await lab.said("simulate", "--from-cluster", job, "--profile", "gpu-scheduler")

    assert rows(text)["GPUs in use"] == ["0", "16", "+16"] and rows(text)["nodes"] == ["2", "2", "-"]
    assert rows(text)["pods that wait"] == ["0", "1", "+1"]
    lines = [line.split(maxsplit=4) for line in text.splitlines() if line.startswith("team/new-")]
    assert sorted(line[3] for line in lines) == ["a", "b", "waits"]
    assert lines[0][3] == "waits" and "Insufficient nvidia.com/gpu" in lines[0][4]
    assert "make a difference to 3 pods within 60 s" in text
    assert await lab.said("status", "-A", "-o", "name") == ""


async def test_the_difference_in_other_forms(lab: ClusterOverHttp, job: str) -> None:
    lab.add_nodes("a")
    lab.add_pod("big", gpus=9)
    words = ("simulate", "--from-cluster", job, "--add-nodes", "2", "like", "a")

    found = json.loads(await lab.said(*words, "-o", "json"))
    wide = await lab.said(*words, "-o", "wide")
    names = await lab.said(*words, "-o", "name")

    assert found["before"]["gpus"]["total"] == 8 and found["after"]["gpus"]["total"] == 24
    assert {each["after"] for each in found["pods"]} == {"a", "a-new-1", "a-new-2"}
    assert "Insufficient" in found["waiting"][0]["before"] and found["source"] == f"context lab ({lab.url})"
    assert yaml.safe_load(await lab.said(*words, "-o", "yaml")).keys() == found.keys()
    assert "WAITS IN BOTH" in wide and "default/big" in wide
    assert len(names.splitlines()) == 3 and names.startswith("pod/new-")


def test_a_drain_on_a_snapshot(file: str) -> None:
    result = CliRunner().invoke(
        main.cli, ["simulate", "--snapshot", file, "--drain", "node/l1-n0"], catch_exceptions=False
    )

    assert result.exit_code == 0
    assert "default/web  0     l1-n0   -      is gone: no controller makes it anew" in result.stdout
    assert "make a difference to 1 pod within 60 s" in result.stdout


async def test_an_empty_cluster_is_pointed_out(lab: ClusterOverHttp, job: str) -> None:
    result = await lab.run("simulate", "--from-cluster", job)

    assert result.exit_code == 0 and f"context lab ({lab.url}): the cluster has no nodes" in result.stderr


@pytest.mark.parametrize("option", [["--drain", "x"], ["--add-nodes", "1", "like", "x"]], ids=["drain", "new nodes"])
async def test_a_node_that_is_not_there(lab: ClusterOverHttp, option: list[str]) -> None:
    lab.add_nodes("a")

    code, said = await of(lab, "simulate", "--from-cluster", *option)

    assert code == 1 and said.startswith(f"gangline: {option[0]}: x: there is no such node; the nodes are ")


async def test_a_cluster_that_does_not_answer(lab: ClusterOverHttp) -> None:
    lab.write_kubeconfig(server="http://127.0.0.1:9")

    code, said = await of(lab, "simulate", "--from-cluster", "--drain", "a")

    assert code == 4 and "no API server answers: Connection refused" in said


async def test_a_snapshot_of_another_version(lab: ClusterOverHttp, tmp_path: Path) -> None:
    other = tmp_path / "other.gz"
    other.write_bytes(gzip.compress(b'{"apiVersion": "gangline.dev/v9", "kind": "ClusterSnapshot"}'))

    code, said = await of(lab, "simulate", "--snapshot", str(other), "--drain", "a")

    assert code == 1 and "is a ClusterSnapshot of gangline.dev/v9, and this program reads a ClusterSnapshot of" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "name manifests, or a cluster with --from-cluster or --snapshot"),
        (["--drain", "a"], "--drain and --add-nodes need a cluster"),
        (["--from-cluster"], "name a change: manifests, --drain, --add-nodes, --profile or --config"),
        (["--from-cluster", "--snapshot", "f"], "name either --from-cluster or --snapshot"),
        (["--from-cluster", "--ui"], "are for a simulation of manifests alone"),
        (["--from-cluster", "--add-nodes", "0", "like", "a"], "0 is not in the range"),
        (["--from-cluster", "--add-nodes", "1", "as", "a"], "is not 'like'"),
        (["--from-cluster", *["--add-nodes", "10000", "like", "a"] * 2], "at most 10000 nodes in all"),
    ],
    ids=["nothing", "no cluster", "no change", "two clusters", "a film", "no nodes", "not like", "too many"],
)
def test_wrong_usage_is_told_and_ends_with_2(words: list[str], why: str) -> None:
    result = CliRunner().invoke(main.cli, ["simulate", *words])

    assert result.exit_code == 2 and why in " ".join(result.stderr.replace("│", " ").split())
