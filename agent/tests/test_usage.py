"""Which pods have which devices is read from their annotations."""

from __future__ import annotations

import asyncio

from gangline.kube.resources import GPU_NODE_STATUSES, PODS
from gangline.model import ObjectMeta, Pod, PodSpec, PodStatus
from gangline.wire.custom_resources import ALLOCATED
from gangline_agent import templates
from gangline_agent.simulate import Simulation
from gangline_agent.usage import Usage

from .stories import RecordingClient, add_node, cluster, eventually, play


def pod(name: str, allocated: str | None, node: str = "a", phase: str = "Running") -> Pod:
    annotations = {} if allocated is None else {ALLOCATED: allocated}
    metadata = ObjectMeta(name=name, namespace="team", uid=f"uid-{name}", annotations=annotations)
    return Pod(metadata, PodSpec(node_name=node), PodStatus(phase=phase))


def usage(*pods: Pod) -> Usage:
    made = Usage(cluster())
    for each in pods:
        made.upsert(each)
    return made


def test_every_device_has_the_uids_of_its_pods() -> None:
    seen = usage(pod("y", "3"), pod("x", "0, 3"), pod("elsewhere", "0", "b"), pod("plain", None))

    assert seen.of("a") == {0: ["uid-x"], 3: ["uid-x", "uid-y"]}
    assert seen.of("c") == {}


def test_a_pod_that_ends_or_goes_has_nothing() -> None:
    seen = usage(pod("x", "0"), pod("y", "1"), pod("z", "2"))

    seen.upsert(pod("x", "0", phase="Succeeded"))
    seen.remove("team", "y", "uid-y")
    assert seen.of("a") == {2: ["uid-z"]}


def test_what_is_no_id_is_left_out() -> None:
    assert usage(pod("x", "GPU-1,one,2,-3,")).of("a") == {2: ["uid-x"]}


def test_a_simulated_node_tells_who_is_on_its_devices_with_the_next_heartbeat() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "a", {"gpus": ""})
        simulation = Simulation(client, templates.read("pcie-4"), 2.0, label_selector="gpus")
        running = asyncio.create_task(simulation.run())
        await client.create(PODS, pod("x", "1,2"))
        await eventually(lambda: ["uid-x"] in users(client))
        running.cancel()
        await asyncio.wait((running,))

    last = users(play(story))
    assert len(last) == 4
    assert last[0] == last[3] == []
    assert len(last[1]) == len(last[2]) == 1


def users(client: RecordingClient) -> list[list[str]]:
    """Of each device as it was reported last."""
    reports = [each for each in client.applied if each.plural == GPU_NODE_STATUSES.plural and each.subresource]
    return [device.get("inUseBy", []) for device in reports[-1].body["status"]["devices"]] if reports else []


def test_an_annotation_that_holds_no_ids_is_nobodys() -> None:
    seen = usage(pod("x", "9" * 5000), pod("y", "²,-1,x,1"))

    assert seen.of("a") == {1: ["uid-y"]}
