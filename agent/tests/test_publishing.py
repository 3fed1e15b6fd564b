"""What is written to the API, and what happens when the API does not take it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gangline.errors import Conflict, Forbidden, GanglineError, InvalidObject, NotFound, Unavailable
from gangline.kube.resources import GPU_NODE_STATUSES, NODES
from gangline.model import Node
from gangline.wire.custom_resources import GpuDevice, GpuNodeStatusStatus
from gangline_agent.publishing import Publisher, Reporter, counted

from .stories import Applied, RecordingClient, add_node, play

ONE = GpuNodeStatusStatus(total=1, devices=[GpuDevice(id=0, uuid="GPU-1", health="Healthy")], heartbeat_time="t1")
NONE = GpuNodeStatusStatus(heartbeat_time="t2")
USERS = {"node": {0: ["pod-1", "pod-2"], 7: ["pod-3"]}}
LABELS = {"nvidia.com/gpu.present": "true"}


def nobody(node: str) -> dict[int, list[str]]:
    return {}


def finder(client: RecordingClient, name: str = "node") -> Callable[[], Awaitable[Node]]:
    async def find() -> Node:
        return await client.get(NODES, name)

    return find


def reporter(client: RecordingClient) -> Reporter:
    return Reporter(Publisher(client, nobody), "node", finder(client))


def test_the_object_then_its_status_then_the_labels_are_applied() -> None:
    uid = ""

    async def story(client: RecordingClient) -> None:
        nonlocal uid
        uid = (await add_node(client, "node")).metadata.uid
        agent = reporter(client)
        agent.report(ONE, LABELS)
        await agent.publish()

    owner = {"apiVersion": "v1", "kind": "Node", "name": "node"}
    devices = [{"id": 0, "uuid": "GPU-1", "health": "Healthy"}]
    applied = play(story).applied

    assert applied == [
        Applied(
            "gpunodestatuses",
            "node",
            "gpu-agent",
            None,
            {"metadata": {"ownerReferences": [owner | {"uid": uid}]}, "spec": {"nodeName": "node"}},
        ),
        Applied(
            "gpunodestatuses",
            "node",
            "gpu-agent-status",
            "status",
            {"status": {"total": 1, "healthy": 1, "used": 0, "free": 1, "devices": devices, "heartbeatTime": "t1"}},
        ),
        Applied("nodes", "node", "gpu-agent", None, {"metadata": {"uid": uid, "labels": LABELS}}),
    ]


def test_a_heartbeat_writes_the_status_alone() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        agent = reporter(client)
        for status in (ONE, ONE):
            agent.report(status, LABELS)
            await agent.publish()

    assert [each.subresource for each in play(story).applied[3:]] == ["status"]


def test_the_pods_on_a_device_are_told_with_it() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        publisher = Publisher(client, lambda node: USERS[node])
        await publisher.place(await client.get(NODES, "node"))
        await publisher.report("node", ONE)

    (device,) = play(story).applied[1].body["status"]["devices"]
    assert device["inUseBy"] == ["pod-1", "pod-2"]


def test_a_node_without_gpus_says_0() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        agent = reporter(client)
        agent.report(NONE, {})
        await agent.publish()

    assert play(story).applied[1].body == {
        "status": {"total": 0, "healthy": 0, "used": 0, "free": 0, "heartbeatTime": "t2"}
    }


def test_where_discovery_runs_labels_are_left_to_it() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node", {"nvidia.com/gfd.timestamp": "1767225600"})
        agent = reporter(client)
        agent.report(ONE, LABELS)
        await agent.publish()

    assert [each.plural for each in play(story).applied] == ["gpunodestatuses"] * 2


def test_labels_that_no_longer_hold_are_taken_away() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node", {"zone": "a"})
        agent = reporter(client)
        for status, wanted in ((ONE, LABELS), (NONE, {})):
            agent.report(status, wanted)
            await agent.publish()
        left = (await client.get(NODES, "node")).metadata.labels or {}
        assert left["zone"] == "a"
        assert "nvidia.com/gpu.present" not in left

    play(story)


def test_who_may_not_label_nodes_reports_all_the_same() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        client.failures = [("nodes", Forbidden(403, "Forbidden", "nodes is forbidden"))]
        agent = reporter(client)
        agent.report(ONE, LABELS)
        await agent.publish()
        assert (await client.get(GPU_NODE_STATUSES, "node")).status.total == 1

    play(story)


def test_it_says_what_it_waits_for_until_the_api_has_what_is_newest() -> None:
    said: list[str | None] = []

    async def story(client: RecordingClient) -> None:
        async def sleep(seconds: float) -> None:
            said.append(agent.waiting_for())

        await add_node(client, "node")
        client.failures = [("gpunodestatuses", Unavailable(503, "Unavailable", "not now"))]
        agent = Reporter(Publisher(client, nobody), "node", finder(client), sleep)
        said.append(agent.waiting_for())
        agent.report(ONE, LABELS)
        running = asyncio.create_task(agent.run())
        await client.labelled.wait()
        await client.list(NODES)  # the reporter goes on
        said.append(agent.waiting_for())
        running.cancel()

    play(story)

    assert said == ["nothing is published yet", "503 Unavailable: not now", None]


def test_an_object_that_was_deleted_is_made_again() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        agent = reporter(client)
        agent.report(ONE, LABELS)
        await agent.publish()
        await client.delete(GPU_NODE_STATUSES, "node")
        with pytest.raises(NotFound):
            await agent.publish()
        await agent.publish()
        assert (await client.get(GPU_NODE_STATUSES, "node")).status.devices == ONE.devices

    play(story)


@pytest.mark.parametrize(
    "failure",
    [
        Unavailable(0, "ConnectionFailed", "refused"),
        Forbidden(403, "Forbidden", "not yet"),
        InvalidObject("GpuNodeStatus", "[]", "Expected `object`, got `array`"),
    ],
    ids=["outage", "no rights yet", "no object"],
)
def test_it_goes_on_trying_and_then_writes_what_is_newest(failure: GanglineError) -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        client.failures = [("gpunodestatuses", failure)] * 3
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            agent.report(ONE, LABELS)
            await asyncio.sleep(seconds)

        agent = Reporter(Publisher(client, nobody), "node", finder(client), sleep=sleep)
        agent.report(NONE, {})
        running = asyncio.create_task(agent.run())
        await client.labelled.wait()
        running.cancel()
        assert len(waits) == 3
        assert max(waits) <= 30
        assert [each.body["status"]["total"] for each in client.applied if each.subresource] in ([1], [1, 1])

    play(story)


def test_only_the_object_with_its_uid_is_withdrawn() -> None:
    async def story(client: RecordingClient) -> None:
        publisher = Publisher(client, nobody)
        uid = await publisher.place(await add_node(client, "node"))
        with pytest.raises(Conflict):
            await publisher.withdraw("node", "another")
        await publisher.withdraw("node", uid)
        await publisher.withdraw("node", uid)
        assert (await client.list(GPU_NODE_STATUSES)).items == []

    play(story)


def test_the_columns_of_kubectl_are_counted() -> None:
    devices = [GpuDevice(id=id, health="Healthy", in_use_by=["uid"] if id < 2 else []) for id in range(3)]

    assert counted([*devices, GpuDevice(id=3, health="Unhealthy")]) == {"total": 4, "healthy": 3, "used": 2, "free": 1}
