"""Gates hold pods back, priority decides who goes first, and the pods of other schedulers are left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound, kwok_node, priority_class

OURS = "gangline"
CONFIG = configuration(profile(OURS))

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]


async def test_a_gated_pod_waits_and_is_bound_soon_after_the_removal_of_the_gate(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create(kwok_node("roomy"))
    start_gangline(own_control_plane.kubeconfig, CONFIG)
    gates = {"schedulingGates": [{"name": "example.com/quota"}, {"name": "example.com/data"}]}
    await empty.create(gpu_pod("gated", scheduler_name=OURS, spec=gates))
    await _fence(empty, "fence-0")
    held = await empty.get(f"{empty.pods}/gated")
    await empty.merge(f"{empty.pods}/gated", {"spec": {"schedulingGates": [{"name": "example.com/data"}]}})
    await _fence(empty, "fence-1")
    still_held = await empty.get(f"{empty.pods}/gated")

    await empty.merge(f"{empty.pods}/gated", {"spec": {"schedulingGates": []}})
    await empty.wait_for(empty.pods, lambda pod: pod["metadata"]["name"] == "gated" and is_bound(pod), 1)

    assert not is_bound(held)
    assert not is_bound(still_held)
    (condition,) = held["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


async def test_pods_of_higher_priority_get_the_room_when_it_is_short(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    high = f"high-{empty.namespace}"
    await empty.create(priority_class(high, 1000, preempts=False))
    await empty.create(kwok_node("short", gpus=8))
    await empty.create_many(gpu_pod(f"low-{i}", scheduler_name=OURS) for i in range(16))
    wanted = {"priorityClassName": high}
    await empty.create_many(gpu_pod(f"high-{i}", scheduler_name=OURS, spec=wanted) for i in range(8))

    start_gangline(own_control_plane.kubeconfig, CONFIG)
    await empty.wait_for(empty.pods, _has_verdict, 24)
    bound = [pod for pod in await empty.list(empty.pods) if is_bound(pod)]

    assert {pod["metadata"]["name"] for pod in bound} == {f"high-{i}" for i in range(8)}


async def test_the_pods_of_another_scheduler_are_not_touched(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create(kwok_node("roomy"))
    created = await empty.create(gpu_pod("foreign", scheduler_name="somebody-else"))
    start_gangline(own_control_plane.kubeconfig, CONFIG)
    await _fence(empty, "fence")

    foreign = await empty.get(f"{empty.pods}/foreign")

    assert foreign["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    events = await empty.list(f"/apis/events.k8s.io/v1/namespaces/{empty.namespace}/events")
    assert {event["regarding"]["name"] for event in events} == {"fence"}


async def _fence(api: Api, name: str) -> None:
    """Wait until a pod that is created now is bound and its event is written: what came before has been seen."""
    await api.create(gpu_pod(name, scheduler_name=OURS))
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    await api.wait_for(path, lambda event: event["regarding"]["name"] == name and event["reason"] == "Scheduled", 1)


def _has_verdict(pod: Manifest) -> bool:
    """Whether a pod is bound, or was told that it does not fit."""
    conditions = pod["status"].get("conditions", [])
    return is_bound(pod) or any(each["type"] == "PodScheduled" for each in conditions)
