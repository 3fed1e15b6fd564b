"""Commands that judge a cluster say when the running scheduler keeps room that they do not count."""

from __future__ import annotations

from gangline import model
from gangline.commands.answering import answer
from gangline.commands.running import judges
from gangline.explain.targets import Target
from gangline.kube.resources import NODES, PODS
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.testing import make_node, make_pod

from .cluster_over_http import ClusterOverHttp

KEPT = "room is kept on 2 nodes (a, ...) with 16 GPUs since 2026-01-01T00:00:00Z, until 2026-01-01T04:00:00Z at most"


def test_room_that_the_running_scheduler_keeps_for_others_is_pointed_out() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a"), make_node("b"))
    first, second = (make_pod(name, gpus=16, scheduler_name="gpu-scheduler") for name in ("first", "p"))
    first.status.conditions = [model.PodCondition("PodScheduled", "False", message=KEPT)]
    cluster.create(PODS, first, second)

    def notes(name: str) -> tuple[str, ...]:
        about, client = Target("Pod", "default", name), SimulatedClient(cluster.server)
        return cluster.play(lambda: answer(client, about, judges((), None, None), cluster.clock)).notes

    why = "16 GPUs on 2 nodes until 2026-01-01T04:00:00Z at most: it is not counted here, so others may wait longer"
    assert notes("p") == (f"the scheduler keeps room for default/first, {why}",)
    assert notes("first") == ()


async def test_room_that_is_kept_for_a_gang_that_is_there_is_pointed_out(lab: ClusterOverHttp) -> None:
    pod = make_pod("first", gpus=16)
    pod.status.conditions = [model.PodCondition("PodScheduled", "False", message=KEPT)]
    lab.add(NODES, make_node("a"))
    lab.add(PODS, pod)

    result = await lab.run("whatif", "--gang", "1x8")

    assert result.exit_code == 0 and "would start on" in result.stdout
    assert result.stderr.startswith(
        "note: the scheduler keeps room for default/first, 16 GPUs on 2 nodes until 2026-01"
    )
