"""Commands that judge a cluster count the room that the running scheduler keeps, or say that they do not."""

from __future__ import annotations

import asyncio

import pytest

from gangline import config, model
from gangline.commands.answering import Answer, answer
from gangline.commands.judging import judge
from gangline.commands.keeping import keep_again
from gangline.commands.running import Judges, judges
from gangline.commands.supposing import SupposedGang
from gangline.commands.trying import try_changes
from gangline.commands.whatif import Supposition, ask
from gangline.explain.targets import Target
from gangline.kube.resources import NODES, PODS
from gangline.remedies import Remedies
from gangline.simulate import Kubelet, SimulatedClient, SimulatedCluster, running
from gangline.testing import make_node, make_pod
from gangline.testing.gang_stories import GangCluster, profile_with

from .cluster_over_http import ClusterOverHttp

KEPT = "room is kept on 2 nodes (a, ...) with 16 GPUs since 2026-01-01T00:00:00Z, until 2026-01-01T04:00:00Z at most"
RESERVING = config.load(profile_with("Reservation"), "test")


class ReservedCluster(GangCluster):
    """Four nodes of 8 GPUs: one has a pod that ends in an hour, and room is kept on all of them for the gang `big`. The
    pod `small` waits for 4 GPUs, and would still run when the gang is to start.
    """

    def __init__(self) -> None:
        super().__init__(leaves=1)
        long = make_pod("long", gpus=8, scheduler_name="gangs")
        long.spec.active_deadline_seconds = 3600
        self.create(PODS, long)
        self.play(self._story)

    async def _story(self) -> None:
        client, kubelet = SimulatedClient(self.server), Kubelet(self.server, self.clock)
        async with self.scheduling(profile_with("Reservation"), client), running(kubelet.run()):
            await self.until(lambda: bool(self.get(PODS, "long").status.start_time))
            self.add_gang("big", 4)
            await self.until(lambda: "room is kept on 4 nodes" in self.told("big-0"))
            self.create(PODS, make_pod("small", gpus=4, scheduler_name="gangs"))
            await self.until(lambda: "reserved for a waiting group" in self.told("small"))

    def told(self, name: str) -> str:
        return next((each.message for each in self.get(PODS, name).status.conditions if each.status == "False"), "")

    def explained(self, name: str) -> Answer:
        about, client = Target("Pod", "default", name), SimulatedClient(self.server)
        return self.play(lambda: answer(client, about, Judges(RESERVING, "test"), self.clock))

    def supposed(self, size: int, gpus: int) -> Supposition:
        async def found() -> Supposition:
            judged = await judge(SimulatedClient(self.server), RESERVING, self.clock)
            keep_again(judged)
            return ask(judged, SupposedGang(size, gpus, ""), Judges(RESERVING, "test"), self.clock)

        return self.play(found)

    def tried(self, name: str) -> Remedies | None:
        client, uid = SimulatedClient(self.server), self.get(PODS, name).metadata.uid
        return self.play(lambda: try_changes(client, RESERVING, uid, self.clock))


@pytest.fixture(scope="module")
def reserved() -> ReservedCluster:
    return ReservedCluster()


def test_a_pod_is_rejected_by_nodes_on_which_room_is_kept(reserved: ReservedCluster) -> None:
    found = reserved.explained("small")

    (note,) = found.notes
    assert note.startswith("the scheduler keeps room for gang default/big, 32 GPUs on 4 nodes until ")
    assert note.endswith(": the answer counts this room, as it would be planned now")
    assert found.report is not None and not found.report.best
    assert "node(s) were reserved for a waiting group" in found.report.message


def test_no_change_is_listed_that_does_not_help_while_room_is_kept(reserved: ReservedCluster) -> None:
    explained, tried = reserved.explained("small").remedies, reserved.tried("small")

    assert explained is not None and tried is not None
    assert explained.remedies == tried.remedies == ()
    assert explained.note == tried.note == ""


def test_the_gang_itself_may_use_its_room_and_hears_since_when_it_is_kept(reserved: ReservedCluster) -> None:
    reserved.play(lambda: asyncio.sleep(60.0))

    found = reserved.explained("big-0")

    assert found.notes == () and found.report is not None and found.report.best
    assert found.remedies is not None and found.remedies.remedies
    assert found.gang is not None and found.gang.message == reserved.told("big-0")


def test_a_gang_that_is_supposed_does_not_get_kept_room(reserved: ReservedCluster) -> None:
    found = reserved.supposed(2, 4)

    assert not found.starts and "reserved for a waiting group" in found.message


def test_room_that_no_plugin_here_would_keep_is_pointed_out() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a"), make_node("b"))
    first, second = (make_pod(name, gpus=16, scheduler_name="gpu-scheduler") for name in ("first", "p"))
    first.status.conditions = [model.PodCondition("PodScheduled", "False", message=KEPT)]
    cluster.create(PODS, first, second)

    def notes(name: str) -> tuple[str, ...]:
        about, client = Target("Pod", "default", name), SimulatedClient(cluster.server)
        return cluster.play(lambda: answer(client, about, judges((), None, None), cluster.clock)).notes

    why = "16 GPUs on 2 nodes until 2026-01-01T04:00:00Z at most: it is not counted here, so others may wait longer"
    assert notes("p") == (f"the scheduler keeps room for pod default/first, {why}",)
    assert notes("first") == ()


async def test_whatif_points_out_room_that_it_does_not_count(lab: ClusterOverHttp) -> None:
    pod = make_pod("first", gpus=16)
    pod.status.conditions = [model.PodCondition("PodScheduled", "False", message=KEPT)]
    lab.add(NODES, make_node("a"))
    lab.add(PODS, pod)

    result = await lab.run("whatif", "--gang", "1x8")

    assert result.exit_code == 0 and "would start on" in result.stdout
    assert result.stderr.startswith(
        "note: the scheduler keeps room for pod default/first, 16 GPUs on 2 nodes until 2026-01"
    )
