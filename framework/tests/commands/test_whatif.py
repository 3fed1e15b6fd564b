"""`gangline whatif`: a gang that does not exist is judged as one that waits."""

from __future__ import annotations

import io
from pathlib import Path
from urllib.parse import unquote

import click
import msgspec
import pytest
from rich.console import Console

from gangline import config
from gangline.commands.judging import judge
from gangline.commands.running import LABELS, Judges
from gangline.commands.supposing import SupposedGang, parse_gang
from gangline.commands.whatif import Supposition, ask, show
from gangline.errors import ConfigError
from gangline.kube.resources import PODS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.simulate import SimulatedClient
from gangline.testing.gang_stories import PROFILE, GangCluster

from .cluster_over_http import ClusterOverHttp

GANGS = Judges(config.load(PROFILE, "test"), "test")


def asked(cluster: GangCluster, gang: SupposedGang, by: Judges = GANGS) -> Supposition:
    judged = cluster.play(lambda: judge(SimulatedClient(cluster.server), by.configuration, cluster.clock))
    return ask(judged, gang, by, cluster.clock)


def words(found: Supposition) -> str:
    screen = Console(file=io.StringIO(), width=200)
    show(found, screen)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_a_gang_that_has_room_would_start_where_a_real_one_starts() -> None:
    cluster = GangCluster()

    found = asked(cluster, parse_gang("4x8", "leaf"))
    assert not cluster.list(PODS) and not cluster.list(SCHEDULER_PLUGINS_POD_GROUPS)
    cluster.add_gang("real", 4)

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound()) == 4)

    cluster.play(story)

    assert found.starts and found.placement == "leaf spine-0/leaf-0" and set(found.nodes.values()) == {1}
    assert set(found.nodes) == set(cluster.bound().values())
    assert "a gang of 4 pods with 8 GPUs each that requires one leaf would start on leaf" in words(found)


def test_several_pods_of_a_gang_may_go_to_one_node() -> None:
    found = asked(GangCluster(), parse_gang("8x2", "host"))

    assert not found.starts and "no host of 8 holds 8 pods" in found.message
    assert asked(GangCluster(), parse_gang("4x2", "host")).nodes == {"l0-n0": 4}


def test_a_gang_that_has_no_room_says_why_and_what_would_let_it_start() -> None:
    found = asked(GangCluster(), parse_gang("5x8", "leaf"))

    assert not found.starts and not found.nodes and found.message.startswith("no placement for 5 pods")
    text = words(found)
    assert "would wait, by the profile gangs of test:" in text
    assert "  1. Prefer the level leaf for the gang instead of requiring it." in text


def test_a_level_that_is_unknown_is_wrong_usage_and_the_levels_are_named() -> None:
    with pytest.raises(click.UsageError, match="'row' is no level of the topology; the levels are: spine, leaf, host"):
        asked(GangCluster(), parse_gang("2x8", "row"))


def test_a_level_may_be_named_by_its_label() -> None:
    assert asked(GangCluster(), parse_gang("4x2", "kubernetes.io/hostname")).nodes == {"l0-n0": 4}


async def test_a_cluster_without_nodes_has_no_level_that_could_be_misspelt(lab: ClusterOverHttp) -> None:
    result = await lab.run("whatif", "--gang", "2x8", "--level", "leaf")

    assert result.exit_code == 0 and "would wait" in result.stdout
    assert result.stderr.startswith(f"context lab ({lab.url}): the cluster has no nodes; ")
    assert "tried" not in result.stdout


async def test_the_command_ends_with_the_code_of_wrong_usage(lab: ClusterOverHttp) -> None:
    lab.add_nodes("a", labels={"topology.gangline.dev/leaf": "one"})

    for words in (("whatif", "--gang", "2x1"), ("defrag", "plan", "--free-leaves", "1")):
        result = await lab.run(*words, "--level", "lef")

        assert result.exit_code == 2 and result.stdout == ""
        assert result.stderr.splitlines()[-1] == (
            "Error: --level: 'lef' is no level of the topology; the levels are: leaf, host"
        )


@pytest.mark.parametrize("words", [("whatif", "--gang", "1x1"), ("snapshot", "save")], ids=" ".join)
async def test_the_scheduler_is_not_asked_where_the_judge_is_named(
    lab: ClusterOverHttp, words: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "gangs.yaml"
    file.write_text(PROFILE)
    lab.add_nodes("a")
    target = (str(tmp_path / "kept.gz"),) if words[0] == "snapshot" else ()

    for named in (("--profile", "gpu-scheduler"), ("--config", str(file))):
        asked = len(lab.asked)
        await lab.said(*words, *target, *named, "--scheduler", "http://127.0.0.1:9")  # where nobody answers
        await lab.said(*words, *target, *named)

        assert not any(LABELS in unquote(path) for path in lab.asked[asked:])


def test_a_profile_without_gangs_is_refused() -> None:
    alone = config.load("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n", "test")

    with pytest.raises(ConfigError, match="no profile places the pods of a gang together"):
        asked(GangCluster(), parse_gang("2x8"), Judges(alone, "test"))


def test_the_answer_is_json_too() -> None:
    found = msgspec.json.decode(msgspec.json.encode(asked(GangCluster(), parse_gang("1x1"))))

    assert found["gang"] == "a gang of 1 pod with 1 GPU" and found["starts"] and found["remedies"]["remedies"] == []


@pytest.mark.parametrize(
    "text", ["", "8", "0x8", "8x0", "-1x8", "10001x8", "8x1025", "8x8x8", "٣x8", "9" * 1000 + "x1"]
)
def test_what_is_no_gang_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected MEMBERSxGPUS"):
        parse_gang(text)


async def test_a_snapshot_without_nodes_is_pointed_out_as_a_snapshot(lab: ClusterOverHttp, tmp_path: Path) -> None:
    file = str(tmp_path / "cluster.gz")
    assert (await lab.run("snapshot", "save", file)).exit_code == 0

    for words in (("whatif", "--gang", "2x8"), ("simulate", "--profile", "default")):
        result = await lab.run(*words, "--snapshot", file)

        assert result.exit_code == 0
        assert result.stderr == (
            f"{file}: the snapshot has no nodes; take one of a cluster that has with `gangline snapshot save`\n"
        )
