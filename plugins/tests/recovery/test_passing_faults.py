"""Writes that fail for a while: the gang recovers all the same, in its room, and nothing is left undone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gangline import (
    Action,
    ApiError,
    CodeColumn,
    Conflict,
    EventHint,
    NodeView,
    PatchKind,
    PodInfo,
    Reason,
    TooManyRequests,
    Unavailable,
    codes,
    hookimpl,
    on,
    resources,
)
from gangline.testing.gang_stories import ONE_LEAF

from .recovery_cases import LossStory

SOON = 15.0
RESTART = {**ONE_LEAF, "gangline.dev/recovery": "restart"}
FAILURES = [
    Conflict(409, "Conflict", "the object has been modified"),
    TooManyRequests(429, "TooManyRequests", "later", 1.0),
    Unavailable(500, "InternalError", "no"),
    Unavailable(502, "BadGateway", "no"),
    Unavailable(503, "ServiceUnavailable", "no"),
    Unavailable(504, "GatewayTimeout", "no"),
    Unavailable(0, "ConnectionFailed", "connection reset by peer"),
]
Faults = Callable[[str, resources.Resource[Any], str], Exception | None]


class Outage:
    """For some seconds, from the first such write on, all writes of some verbs to pods fail."""

    def __init__(self, seconds: float, error: Exception, *verbs: str) -> None:
        self._seconds = seconds
        self._error = error
        self._verbs = verbs
        self._began: float | None = None

    def __call__(self, verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb not in self._verbs or resource is not resources.PODS or not name.startswith("train"):
            return None
        now = asyncio.get_running_loop().time()
        self._began = now if self._began is None else self._began
        return self._error if now < self._began + self._seconds else None


def _id(error: Exception) -> str:
    return str(error.args[0])


@pytest.mark.parametrize("error", FAILURES, ids=_id)
@pytest.mark.parametrize("verb", ["evict", "patch", "delete"])
def test_a_write_that_fails_for_seconds_ends_no_recovery_and_costs_it_no_room(verb: str, error: Exception) -> None:
    cluster = LossStory(faults=Outage(5.0, error, verb))

    async def story() -> None:
        cluster.add_job("train", 3, RESTART)
        await cluster.runs("train", 3)
        before, lost = cluster.uids("train"), cluster.node_of("train", 2)
        cluster.fail(lost)
        await cluster.told("room is kept on", SOON)
        cluster.add_pods_of_one_node("other", 8)
        await cluster.until(lambda: not before & cluster.uids("train") and len(cluster.bound("train")) == 3, 25.0)
        assert not cluster.told_as("GangRecoveryFailed") and len(cluster.leaves_of("train")) == 1

    cluster.play(story)


def test_members_whose_release_fails_are_released_as_soon_as_that_works() -> None:
    cluster = LossStory(
        leaves=1, releaseSeconds=600, roomSeconds=10, faults=Outage(60.0, Unavailable(503, "", "no"), "evict")
    )

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        before = cluster.uids("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.told("3 members are released", 630.0)
        await cluster.until(lambda: not before & cluster.uids("train"), 60.0 + 45.0)
        assert len(cluster.told_as("GangReleased")) == 3

    cluster.play(story)


def test_a_pod_whose_forced_deletion_fails_is_forced_once_more() -> None:
    forced: list[str] = []
    held, is_dead = "", False

    def refuse_once(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == "patch" and resource is resources.PODS and name == held and is_dead:
            forced.append(name)
            return ApiError(403, "Forbidden", "a webhook denies it") if len(forced) == 1 else None
        return None

    cluster = LossStory(faults=refuse_once)

    async def story() -> None:
        nonlocal held, is_dead
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        lost = cluster.node_of("train", 0)
        (held,) = [name for name, node in cluster.bound("train").items() if node == lost]
        cluster.hold(held, "batch.kubernetes.io/job-tracking")
        cluster.fail(lost)
        await cluster.until(
            lambda: cluster.get(resources.PODS, held, "default").metadata.deletion_timestamp is not None, SOON
        )
        is_dead = True
        cluster.lose(lost)
        await cluster.until(lambda: forced == [held, held], 45.0)
        assert cluster.get(resources.PODS, held, "default").status.phase == "Failed"

    cluster.play(story)


class Gate:
    """Lets no member of the gang onto a node for which a label of the node says so."""

    name = "Gate"
    reasons = (Reason("node(s) were closed"),)

    @hookimpl
    def events_to_register(self) -> list[EventHint]:
        return [on("nodes", Action.UPDATE)]

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        closed = nodes.label("closed").equals("yes")
        return codes(closed if pod.name.startswith("train") and not pod.is_anew else nodes.full(False)[nodes.index])


def set_gates(cluster: LossStory, closed: str, turn: str = "") -> None:
    """No member may come to any node from now on if `closed` is yes; each new turn has pods tried again."""
    for node in cluster.list_nodes():
        patch = {"metadata": {"labels": {"closed": closed, "turn": turn}}}
        cluster.server.patch(resources.NODES, node.metadata.name, patch, kind=PatchKind.MERGE)


def test_room_is_kept_although_attempts_fail_for_a_while() -> None:
    cluster = LossStory(more="Gate", plugins=[Gate])

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        before, (leaf,) = cluster.uids("train"), cluster.leaves_of("train")
        cluster.fail(cluster.node_of("train", 2))
        set_gates(cluster, "yes")
        await cluster.until(lambda: bool(cluster.told_as("GangRecovering")), SOON)
        await asyncio.sleep(1.0)
        set_gates(cluster, "yes", "again")
        await cluster.told("room is kept for the gang, and it is tried again", SOON)
        cluster.add_pods_of_one_node("other", 8)
        await asyncio.sleep(5.0)
        set_gates(cluster, "no")
        await cluster.until(lambda: len(before & cluster.uids("train")) == 2 and len(cluster.bound("train")) == 3, SOON)
        assert cluster.leaves_of("train") == {leaf}

    cluster.play(story)


def test_room_on_a_node_that_takes_no_more_pods_is_changed_for_other_room_at_once() -> None:
    cluster = LossStory(leaves=1)
    cluster.client = type(cluster.client)(cluster.server, latency={"delete": 4.0})

    async def story() -> None:
        cluster.add_job("train", 2)
        await cluster.runs("train", 2)
        lost = cluster.node_of("train", 1)
        cluster.fail(lost)
        await cluster.told("room is kept on", SOON)
        (note,) = set(cluster.told_as("GangRecovering"))
        kept = note.split("room is kept on ")[1].split(";")[0].split(",")[0]
        cluster.cordon(kept)
        await cluster.until(lambda: len(cluster.bound("train")) == 2 and lost not in cluster.nodes("train"), 8.0)
        assert kept not in cluster.nodes("train")

    cluster.play(story)


def test_a_gang_that_has_recovered_though_a_write_failed_has_no_second_outcome() -> None:
    lost = ""

    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return Unavailable(503, "", "no") if verb == "patch" and resource is resources.PODS and name == lost else None

    cluster = LossStory(roomSeconds=20, faults=refuse)

    async def story() -> None:
        nonlocal lost
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        node = cluster.node_of("train", 0)
        (lost,) = [name for name, where in cluster.bound("train").items() if where == node]
        cluster.fail(node)
        await cluster.told("room is kept on", SOON)
        cluster.delete_pod(lost)  # kube-controller-manager does so too, and the pod stays until its node answers
        await cluster.told("all lost members have nodes again, the others have run on, after", SOON)
        await asyncio.sleep(60.0)
        assert not cluster.told_as("GangRecoveryFailed") and len(cluster.bound("train")) == 3

    cluster.play(story)


@pytest.mark.parametrize(
    ("size", "annotations", "how"),
    [(4, ONE_LEAF, "the gang has moved as a whole"), (3, RESTART, "all members have restarted")],
    ids=["moved", "restarted"],
)
def test_the_event_says_how_a_gang_has_recovered(size: int, annotations: dict[str, str], how: str) -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.add_job("train", size, annotations)
        await cluster.runs("train", size)
        cluster.fail(cluster.node_of("train", 0))
        await cluster.told(f"all lost members have nodes again, {how}, after", SOON)

    cluster.play(story)
