"""A pod that fits nowhere is told so in upstream's words, and placed soon after the cluster changes in its favour."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import Manifest, Manifests, gpu_pod, is_bound, is_named, kwok_node

NODES = "/api/v1/nodes"
OURS, UPSTREAM = "gangline", "default-scheduler"
DEDICATED = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}

pytestmark = pytest.mark.timeout(240)  # what is not woken is tried again after 300 s


@pytest.fixture(scope="module")
def running(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gangline]:
    """A scheduler with one default profile, for all tests of this module."""
    folder = tmp_path_factory.mktemp("gangline")
    with Gangline(own_control_plane.kubeconfig, folder, configuration(profile(OURS))) as scheduler:
        pid = scheduler.process.pid
        yield scheduler
        assert scheduler.alive()
        assert scheduler.process.pid == pid
    assert "Traceback" not in scheduler.logs()


@pytest.fixture(scope="module")
def upstream(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """kube-scheduler on the same cluster, for the pods that name no scheduler, with the plugins that Gangline has."""
    config = configuration({"plugins": {"multiPoint": {"disabled": [{"name": "DynamicResources"}]}}})
    config["clientConnection"] = {"kubeconfig": str(own_control_plane.kubeconfig)}
    file = tmp_path_factory.mktemp("upstream") / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    own_control_plane.start_scheduler([f"--config={file}"])
    yield own_control_plane
    own_control_plane.kill("kube-scheduler")


async def test_an_unschedulable_pod_is_told_why_by_event_and_condition(empty: Api, running: Gangline) -> None:
    await _create_nodes_for_nobody(empty)
    await _known(empty, 3, OURS)
    pod = await empty.create(gpu_pod("big", scheduler_name=OURS, gpus=8))

    event, condition = await _said(empty, "big")

    assert event["note"] == (
        "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. "
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )
    assert (event["type"], event["action"], event["reportingController"]) == ("Warning", "Scheduling", OURS)
    assert event["regarding"]["uid"] == pod["metadata"]["uid"]
    assert condition["message"] == event["note"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"gpus": 8}, id="devices"),
        pytest.param({"gpus": 9}, id="larger than any node"),
        pytest.param({"gpus": 0, "cpu": "200", "memory": "2Ti"}, id="several resources"),
        pytest.param({"gpus": 1, "spec": {"nodeSelector": {"zone": "none"}}}, id="node selector"),
        pytest.param({"gpus": 0, "spec": {"nodeSelector": {"kubernetes.io/hostname": "tainted"}}}, id="taint"),
    ],
)
async def test_events_and_conditions_say_what_kube_scheduler_says(
    empty: Api, running: Gangline, upstream: ControlPlane, pod: dict[str, Any]
) -> None:
    await _create_nodes_for_nobody(empty)
    await _known(empty, 3, OURS, UPSTREAM)
    await empty.create_many(gpu_pod(name, scheduler_name=name, **pod) for name in (OURS, UPSTREAM))

    (our_event, our_condition), (event, condition) = await _said(empty, OURS), await _said(empty, UPSTREAM)

    for field in ("note", "type", "action", "reason"):
        assert our_event.get(field) == event.get(field)
    assert our_event["regarding"].keys() >= {"kind", "namespace", "name", "uid", "apiVersion"}
    for field in ("status", "reason", "message"):
        assert our_condition.get(field) == condition.get(field)


async def test_without_any_node_the_words_are_those_of_kube_scheduler(
    empty: Api, running: Gangline, upstream: ControlPlane
) -> None:
    await _known(empty, 0, OURS, UPSTREAM)
    await empty.create_many(gpu_pod(name, scheduler_name=name) for name in (OURS, UPSTREAM))

    (ours, _), (theirs, _) = await _said(empty, OURS), await _said(empty, UPSTREAM)

    assert ours["note"] == theirs["note"]


async def test_a_bound_pod_gets_an_event_that_names_its_node(
    empty: Api, running: Gangline, upstream: ControlPlane
) -> None:
    await empty.create(kwok_node("roomy"))
    await empty.create_many(gpu_pod(name, scheduler_name=name) for name in (OURS, UPSTREAM))
    await empty.wait_for(empty.pods, is_bound, 2)

    (ours,), (theirs,) = [await _events(empty, name, "Scheduled") for name in (OURS, UPSTREAM)]

    assert ours["note"] == f"Successfully assigned {empty.namespace}/{OURS} to roomy"
    for field in ("type", "action", "reason"):
        assert ours[field] == theirs[field]
    assert ours["reportingController"] == OURS


async def test_what_a_simulation_says_of_a_new_node_comes_true(
    empty: Api, running: Gangline, own_control_plane: ControlPlane
) -> None:
    await empty.create(kwok_node("full"))
    await empty.create(gpu_pod("first", scheduler_name=OURS, gpus=8))
    await empty.wait_for(empty.pods, is_bound, 1)
    await empty.create(gpu_pod("big", scheduler_name=OURS, gpus=8))
    await _said(empty, "big")

    words = ("simulate", "--from-cluster", "--add-nodes", "1", "like", "full", "-o", "json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gangline", *words, "--kubeconfig", str(own_control_plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    said = json.loads(out)
    assert not (await empty.list(NODES))[1:]
    await empty.create(kwok_node("full-new-1"))
    (bound,) = await empty.wait_for(empty.pods, lambda pod: is_bound(pod) and is_named(pod, "big"), 1)

    assert [(each["pod"], each["before"], each["after"]) for each in said["pods"]] == [
        (f"{empty.namespace}/big", "", bound["spec"]["nodeName"])
    ]
    assert "Insufficient nvidia.com/gpu" in said["waiting"][0]["before"]
    assert (said["before"]["gpus"]["used"], said["after"]["gpus"]["used"]) == (8, 16)


async def _add_node(api: Api) -> None:
    await api.create(kwok_node("new"))


async def _delete_blocking_pod(api: Api) -> None:
    await api.delete(f"{api.pods}/blocking", at_once=True)


async def _remove_taint(api: Api) -> None:
    await api.merge(f"{NODES}/tainted", {"spec": {"taints": None}})


async def _uncordon(api: Api) -> None:
    await api.merge(f"{NODES}/cordoned", {"spec": {"unschedulable": None}})


async def _add_label(api: Api) -> None:
    await api.merge(f"{NODES}/other", {"metadata": {"labels": {"zone": "a"}}})


async def _grow_node(api: Api) -> None:
    grown = {"nvidia.com/gpu": "16"}
    await api.merge(f"{NODES}/full/status", {"status": {"capacity": grown, "allocatable": grown}})


@pytest.mark.parametrize(
    ("change", "node"),
    [
        pytest.param(_add_node, "new", id="node added"),
        pytest.param(_delete_blocking_pod, "full", id="blocking pod deleted"),
        pytest.param(_remove_taint, "tainted", id="taint removed"),
        pytest.param(_uncordon, "cordoned", id="uncordoned"),
        pytest.param(_add_label, "other", id="label added"),
        pytest.param(_grow_node, "full", id="node grown"),
    ],
)
async def test_a_waiting_pod_is_bound_soon_after_what_helps_it(
    empty: Api, running: Gangline, change: Callable[[Api], Awaitable[None]], node: str
) -> None:
    await empty.create_many(_full_nodes(labelled=change is not _add_label))
    await empty.create(gpu_pod("blocking", gpus=8, scheduler_name="nobody"))
    await empty.bind("blocking", "full")
    selector = {"nodeSelector": {"zone": "a"}} if change is _add_label else {}
    await empty.create(gpu_pod("waiting", scheduler_name=OURS, spec=selector, gpus=8))
    await _said(empty, "waiting")

    await change(empty)
    (pod,) = await empty.wait_for(empty.pods, lambda pod: is_named(pod, "waiting") and is_bound(pod), 1)

    assert pod["spec"]["nodeName"] == node


async def _known(api: Api, nodes: int, *schedulers: str) -> None:
    """Wait until schedulers know of so many nodes: they may hear of a pod sooner than of a node that is older. Pods
    that fit on no node ask them, one after the other.
    """
    answer = f"0/{nodes} nodes" if nodes else "no nodes available"
    for scheduler in schedulers:
        names = (f"asks-{scheduler}-{number}" for number in itertools.count())
        await api.until(partial(_answers, api, names, scheduler, answer), f"{scheduler} knows of {nodes} nodes")


async def _answers(api: Api, names: Iterator[str], scheduler: str, answer: str) -> bool:
    """Whether a scheduler says this of another pod that fits on no node."""
    name = next(names)
    await api.create(gpu_pod(name, scheduler_name=scheduler, gpus=99))
    event, _ = await _said(api, name)
    await api.delete(f"{api.pods}/{name}", at_once=True)
    return bool(event["note"].startswith(answer))


async def _create_nodes_for_nobody(api: Api) -> None:
    """Three nodes that each refuse a pod with 8 GPUs for a reason of its own."""
    cordoned = kwok_node("cordoned")
    cordoned["spec"]["unschedulable"] = True
    await api.create_many([cordoned, kwok_node("tainted", taints=[DEDICATED]), kwok_node("full")])
    await api.create(gpu_pod("blocking", gpus=8, scheduler_name="nobody"))
    await api.bind("blocking", "full")


def _full_nodes(labelled: bool) -> Iterator[Manifest]:
    """A node that a pod will fill, and three that a pod with 8 GPUs may not use; one lacks a label if so wanted."""
    yield kwok_node("full")
    yield kwok_node("tainted", taints=[DEDICATED])
    cordoned = kwok_node("cordoned")
    cordoned["spec"]["unschedulable"] = True
    yield cordoned
    yield kwok_node("other", gpus=0 if labelled else 8)


async def _said(api: Api, name: str) -> tuple[Manifest, Manifest]:
    """The FailedScheduling event and the PodScheduled condition of a pod, as soon as there are both."""
    events = await _events(api, name, "FailedScheduling")
    (pod,) = await api.wait_for(api.pods, lambda pod: is_named(pod, name) and _scheduled(pod) is not None, 1)
    condition = _scheduled(pod)
    assert condition is not None
    return events[0], condition


async def _events(api: Api, name: str, reason: str) -> Manifests:
    """The events of events.k8s.io about a pod with a reason, as soon as there is one."""
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"

    def about(event: Manifest) -> bool:
        return event["reason"] == reason and event["regarding"]["name"] == name

    return await api.wait_for(path, about, 1)


def _scheduled(pod: Manifest) -> Manifest | None:
    conditions: Manifests = pod["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled"), None)
