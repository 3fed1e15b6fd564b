"""`gangline whatif --drain`: each pod of the nodes has another node, would wait, or is gone, and nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gangline import config, main, model
from gangline.commands.draining import Drain, drain
from gangline.commands.judging import judge
from gangline.commands.running import Judges
from gangline.commands.snapshot import take, write
from gangline.errors import ConfigError
from gangline.kube.resources import NODES, PODS
from gangline.simulate import SimulatedClient
from gangline.testing import make_pod
from gangline.testing.gang_stories import PROFILE, GangCluster
from gangline.testing.gangs import GROUP

from ..invoking import invoked

LOADED = config.load(PROFILE, "test")
GANGS = Judges(LOADED, "test")


def running(name: str, node: str, gpus: int = 8, kind: str = "ReplicaSet", **more: object) -> model.Pod:
    pod = make_pod(name, gpus=gpus, node=node, scheduler_name="gangs", **more)  # type: ignore[arg-type]  # keywords of make_pod
    pod.metadata.owner_references = [model.OwnerReference(kind, name, name, "apps/v1", controller=True)] if kind else []
    return pod


def busy(*numbers: int) -> list[model.Pod]:
    """Pods that fill a node each; the priority is the number of the node."""
    return [running(f"busy-{n}", f"l0-n{n}", 8, priority=n) for n in numbers]


def drained(cluster: GangCluster, *nodes: str) -> Drain:
    async def story() -> Drain:
        judged = await judge(SimulatedClient(cluster.server), LOADED, cluster.clock)
        before = {uid: pod.row for uid, pod in judged.cluster.pods.items()}
        found = drain(judged, nodes)
        assert {uid: pod.row for uid, pod in judged.cluster.pods.items()} == before
        return found

    return cluster.play(story)


def test_the_pods_of_a_node_go_elsewhere_where_there_is_room() -> None:
    cluster = GangCluster(leaves=1)
    cluster.create(PODS, running("a", "l0-n0", 4), running("b", "l0-n0", 4), *busy(1, 2))

    found = drained(cluster, "l0-n0")

    assert [(move.pod, move.source, move.destination) for move in found.moves] == [
        ("default/a", "l0-n0", "l0-n3"),
        ("default/b", "l0-n0", "l0-n3"),
    ]
    assert (found.gpus_moved, found.gpus_lost) == (8, 0)


def test_the_higher_priority_gets_the_room_and_the_other_pod_would_wait() -> None:
    cluster = GangCluster(leaves=1)
    cluster.create(PODS, *busy(0, 1, 2))

    found = drained(cluster, "l0-n0", "l0-n1")

    assert [(move.pod, move.destination) for move in found.moves] == [("default/busy-1", "l0-n3")]
    assert [(loss.pod, loss.gpus, loss.why) for loss in found.losses] == [
        ("default/busy-0", 8, "would wait: no other node has room")
    ]


def test_pods_that_nobody_makes_anew_are_gone_and_those_of_daemon_sets_stay() -> None:
    cluster = GangCluster()
    other = running("other", "l0-n0", 1)
    other.spec.scheduler_name = "somebody-else"
    cluster.create(PODS, running("d", "l0-n0", 0, "DaemonSet"), running("alone", "l0-n0", 1, ""), other)

    found = drained(cluster, "l0-n0")

    assert not found.moves
    assert {loss.pod: loss.why for loss in found.losses} == {
        "default/alone": "would be gone: no controller makes it anew",
        "default/other": "would be placed by another scheduler: somebody-else",
    }


def test_the_members_of_a_gang_stay_in_the_leaf_of_the_others() -> None:
    cluster = GangCluster()
    cluster.add_group("train", 3)
    more = {"labels": {GROUP: "train"}, "annotations": {"gangline.dev/topology-required": "leaf"}}
    cluster.create(PODS, *(running(f"train-{n}", f"l0-n{n}", 8, "Job", **more) for n in range(3)))

    one, two = drained(cluster, "l0-n0"), drained(cluster, "l0-n0", "l0-n1")

    assert [(move.pod, move.destination) for move in one.moves] == [("default/train-0", "l0-n3")]
    assert not two.moves and len(two.losses) == 2 and two.gpus_lost == 16


@pytest.mark.parametrize(
    ("taken", "why"),
    [
        ((), "beside the other pods of its gang; the gang as a whole would have room elsewhere"),
        (("l1-n0", "l1-n1", "l1-n2"), "beside the other pods of its gang"),
    ],
    ids=["room for the whole", "none"],
)
def test_a_gang_that_keeps_members_is_told_whether_another_leaf_has_room_for_all(
    taken: tuple[str, ...], why: str
) -> None:
    cluster = GangCluster()
    cluster.add_group("train", 3)
    more = {"labels": {GROUP: "train"}, "annotations": {"gangline.dev/topology-required": "leaf"}}
    cluster.create(PODS, *(running(f"train-{n}", f"l0-n{n}", 8, "Job", **more) for n in range(3)))
    cluster.create(PODS, running("beside", "l0-n3"), *(running(f"on-{node}", node) for node in taken))

    (loss,) = drained(cluster, "l0-n0").losses

    assert loss.why == f"would wait: no other node has room {why}"


def test_a_node_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="--drain: l9-n9: there is no such node; the nodes are l0-n0, "):
        drained(GangCluster(), "l0-n0", "l9-n9")


def test_the_command_drains_in_a_snapshot(tmp_path: Path) -> None:
    cluster, file = GangCluster(), tmp_path / "cluster.gz"
    cluster.create(PODS, running("a", "l0-n0", 8), running("alone", "l0-n0", 0, ""))
    write(file, cluster.play(lambda: take(SimulatedClient(cluster.server), GANGS, cluster.clock)))

    said = invoked("whatif", "--drain", "l0-n0", "--snapshot", file)

    assert "drained l0-n0: 1 pod with 8 GPUs would start anew on other nodes, and 1 pod with 0 GPUs would" in said
    assert '"gpusMoved": 8' in invoked("whatif", "--drain", "node/l0-n0", "--snapshot", file, "-o", "json")
    assert not cluster.get(NODES, "l0-n0").spec.unschedulable


@pytest.mark.parametrize("words", [(), ("--gang", "1x1", "--drain", "a"), ("--level", "leaf", "--drain", "a")])
def test_a_gang_and_a_drain_exclude_each_other(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(main.cli, ["whatif", *words])

    assert ended.exit_code == 2 and ("--gang" in ended.output or "--level" in ended.output)
