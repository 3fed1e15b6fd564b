"""A snapshot answers as the cluster did; it holds no secrets; a file that cannot be used is named with the reason."""

from __future__ import annotations

import gzip
import json
import stat
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest

from gangline import config, main
from gangline.api.plugin import Clock
from gangline.clock import rfc3339
from gangline.commands.judging import judge
from gangline.commands.running import Judges
from gangline.commands.snapshot import read, take, write
from gangline.commands.supposing import SupposedGang, parse_gang
from gangline.commands.whatif import Supposition, ask
from gangline.errors import ConfigError, GanglineError
from gangline.explain.snapshots import RecordedClient, Snapshot, SnapshotClock, decode, encode
from gangline.kube.interface import Client
from gangline.kube.resources import NODES, PODS
from gangline.simulate import SimulatedClient
from gangline.testing.gang_stories import PROFILE, GangCluster

from ..invoking import invoked
from .cluster_over_http import ClusterOverHttp
from .terminal import Terminal

GANGS = Judges(config.load(PROFILE, "test"), "test")
SECRET = "hunter2"


def in_use() -> GangCluster:
    """A cluster with a gang on its first leaf, and a pod with secrets in all the places where there may be some."""
    cluster = GangCluster()
    cluster.add_gang("busy", 3)

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound()) == 3)

    cluster.play(story)
    container = {"name": "main", "image": "i", "env": [{"name": "TOKEN", "value": SECRET}], "args": [SECRET]}
    container |= {"command": [SECRET]}
    whole = json.dumps({"spec": {"containers": [container]}})
    metadata = {"name": "web", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": whole, "a": "b"}}
    spec = {"containers": [container], "nodeName": "l1-n0"}
    cluster.server.apply_manifest({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.server.apply_manifest(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": SECRET}}
    )
    return cluster


def taken(cluster: GangCluster) -> Snapshot:
    return cluster.play(lambda: take(SimulatedClient(cluster.server), GANGS, cluster.clock))


def asked(cluster: GangCluster, client: Client, gang: SupposedGang, clock: Clock) -> Supposition:
    judged = cluster.play(lambda: judge(client, GANGS.configuration, clock))
    return ask(judged, gang, GANGS, clock)


def test_a_snapshot_answers_as_the_cluster_did(tmp_path: Path) -> None:
    cluster, file = in_use(), tmp_path / "cluster.gz"
    write(file, taken(cluster))
    snapshot = read(file)

    for size, level in (("4x8", "leaf"), ("5x8", "leaf"), ("5x8", ""), ("1x4", "host")):
        gang = parse_gang(size, level)
        there = asked(cluster, SimulatedClient(cluster.server), gang, cluster.clock)
        here = asked(cluster, RecordedClient(snapshot, "f"), gang, SnapshotClock(snapshot.taken_at))
        assert msgspec.to_builtins(here) == msgspec.to_builtins(there)


def test_a_snapshot_has_no_secrets() -> None:
    text = gzip.decompress(encode(taken(in_use()))).decode()

    assert '"web"' in text and '"a":"b"' in text
    assert SECRET not in text and '"Secret"' not in text and "last-applied" not in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kapp.k14s.io/original", SECRET),
        ("objectset.rio.cattle.io/applied", SECRET),
        ("banzaicloud.com/last-applied", SECRET),
        ("example.com/manifest", json.dumps({"spec": {"containers": [{"args": [SECRET]}]}})),
        (
            "pod.beta.kubernetes.io/init-containers",
            json.dumps([{"env": [{"name": "TOKEN", "value": SECRET}]}], indent=1),
        ),
    ],
)
def test_a_snapshot_has_no_manifest_that_a_tool_keeps_in_an_annotation(key: str, value: str) -> None:
    cluster = GangCluster()
    metadata = {"name": "web", "annotations": {key: value, "tags": '{"env":"lab"}'}}
    cluster.server.apply_manifest(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )

    text = gzip.decompress(encode(taken(cluster))).decode()

    assert SECRET not in text and r'"tags":"{\"env\":\"lab\"}"' in text


def test_a_snapshot_says_when_it_was_taken_and_by_which_profiles() -> None:
    cluster = in_use()
    snapshot = taken(cluster)

    assert rfc3339(snapshot.taken_at) == rfc3339(cluster.clock.now())
    assert [each.scheduler_name for each in config.load(snapshot.configuration, "f").profiles] == ["gangs"]


def test_the_file_is_for_its_owner_and_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "cluster.gz"
    snapshot = taken(in_use())

    assert write(file, snapshot) == write(file, snapshot) == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


async def test_objects_of_a_snapshot_can_be_got_by_name() -> None:
    snapshot = Snapshot(0.0, "", "", {}, [])
    with pytest.raises(GanglineError, match="is not in the snapshot"):
        await RecordedClient(snapshot, "f").get(NODES, "a")
    listed = msgspec.json.decode(b'[{"resource":"v1/pods","items":[{"metadata":{"name":"p","namespace":"d"}}]}]')
    snapshot = msgspec.convert({**msgspec.to_builtins(snapshot), "lists": listed}, Snapshot)

    assert (await RecordedClient(snapshot, "f").get(PODS, "p", namespace="d")).metadata.name == "p"


# Files that cannot be used


def zipped(**fields: object) -> bytes:
    return gzip.compress(json.dumps(fields).encode())


GOOD = {"apiVersion": "gangline.dev/v1alpha1", "kind": "ClusterSnapshot"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no snapshot, or is damaged"),
        (b"apiVersion: v1\n", "is no snapshot, or is damaged"),
        (gzip.compress(b"x" * 100)[:-20], "is no snapshot, or is damaged"),
        (gzip.compress(b"\xff\xfe"), "is no snapshot, or is damaged"),
        (gzip.compress(b"[" * 100_000), "is no snapshot, or is damaged"),
        (zipped(**{**GOOD, "apiVersion": "gangline.dev/v9"}), "is a ClusterSnapshot of gangline.dev/v9, and this"),
        (zipped(apiVersion="v1", kind="List"), "is a List of v1, and this program reads a ClusterSnapshot of"),
        (zipped(), "has no apiVersion or no kind, and this program reads a ClusterSnapshot of"),
        (zipped(**GOOD), "is no snapshot, or is damaged: Object missing required field `takenAt`"),
    ],
    ids=[
        "empty",
        "not compressed",
        "cut off",
        "not text",
        "deep",
        "another version",
        "another kind",
        "no head",
        "not whole",
    ],
)
def test_a_file_that_is_no_snapshot_is_named_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decode(data, "cluster.gz")

    assert str(caught.value).startswith("cluster.gz") and why in str(caught.value)


def test_objects_that_do_not_fit_are_named(tmp_path: Path) -> None:
    snapshot = taken(in_use())
    next(each for each in snapshot.lists if each.resource == "v1/nodes").items[0]["spec"] = 7
    file = tmp_path / "cluster.gz"
    write(file, snapshot)

    with pytest.raises(ConfigError, match=r"cluster\.gz: nodes: Expected `object`, got `int`") as caught:
        invoked("whatif", "--gang", "1x1", "--snapshot", file)

    assert caught.value.exit_code == 1


def test_a_time_that_cannot_be_read_is_no_time(tmp_path: Path) -> None:
    cluster, file = in_use(), tmp_path / "cluster.gz"
    cluster.add_gang("train", 5)
    snapshot = taken(cluster)
    for listed in snapshot.lists:
        for each in listed.items if listed.resource == "v1/pods" else ():
            each["metadata"]["creationTimestamp"] = "yesterday"
    write(file, snapshot)

    assert "no placement for 5 pods" in invoked("explain", "train-0", "--snapshot", file)


@pytest.mark.parametrize("where", ["nowhere/cluster.gz"])
def test_a_file_that_is_not_there_or_cannot_be_written_is_named(tmp_path: Path, where: str) -> None:
    file = tmp_path / where

    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        read(file)
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        write(file, Snapshot(0.0, "", "", {}, []))


def test_the_command_asks_a_snapshot_with_its_own_profiles(tmp_path: Path) -> None:
    file = tmp_path / "cluster.gz"
    write(file, taken(in_use()))

    said = " ".join(invoked("whatif", "--gang", "4x8", "--level", "leaf", "--snapshot", file).split())

    assert "would start on leaf" in said and f"by the profile gangs of {file}, from test" in said


def test_explain_asks_a_snapshot_too(tmp_path: Path) -> None:
    cluster, file = in_use(), tmp_path / "cluster.gz"
    cluster.add_gang("train", 5)
    write(file, taken(cluster))

    waiting = invoked("explain", "train-0", "--snapshot", file)
    placed = invoked("explain", "default/busy-0", "--snapshot", file)

    assert "no placement for 5 pods" in waiting and "1. Prefer the level leaf" in waiting
    assert "default/busy-0 is on l" in placed and "why is not known" in placed
    with pytest.raises(ConfigError, match="there is no such pod"):
        invoked("explain", "nobody", "--snapshot", file)


def test_a_pod_of_another_namespace_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cluster.gz"
    write(file, taken(in_use()))

    with pytest.raises(ConfigError, match=r"pod team/busy-0: there is no such pod; there is default/busy-0$"):
        invoked("explain", "busy-0", "-n", "team", "--snapshot", file)


# Standard input and output


async def test_a_dash_is_standard_output_and_only_the_snapshot_is_written_there(
    lab: ClusterOverHttp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    lab.add_nodes("n1")

    saved = await lab.run("snapshot", "save", "-", "--profile", "gpu-scheduler")

    assert saved.exit_code == 0, saved.output
    assert any(listed.items for listed in decode(saved.stdout_bytes, "-").lists if listed.resource == "v1/nodes")
    assert saved.stderr.startswith("standard output: 5 objects, ")
    assert not (tmp_path / "-").exists()


def test_a_snapshot_is_not_written_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())

    with pytest.raises(click.UsageError, match="a snapshot is no text for a terminal: name a file, or redirect"):
        main.cli(["snapshot", "save", "-"], standalone_mode=False)


def test_a_dash_is_standard_input_where_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "cluster.gz"
    write(file, taken(in_use()))
    words = [sys.executable, "-m", "gangline", "whatif", "--gang", "4x8", "--snapshot", "-"]

    with file.open("rb") as snapshot:
        done = subprocess.run(words, stdin=snapshot, capture_output=True, text=True, check=True, timeout=120)

    assert "would start on" in done.stdout
