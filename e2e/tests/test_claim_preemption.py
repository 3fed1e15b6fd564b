"""Pods and gangs of high priority get the devices of others, once these are gone and the controller has freed them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from gangline_e2e.api import Api
from gangline_e2e.claims.building import API, Story, claim, class_, devices, exactly, node, offer, pod, template
from gangline_e2e.claims.judging import devices_of, disagreements
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import Manifest, Manifests, is_bound, is_named, is_unschedulable, priority_class

CONTROLLERS = "kube-controller-manager"
CONFIG = configuration(profile("one", enabled=[{"name": "GangPermit"}, {"name": "GangPreemption"}]))
GANG = {"gang.scheduling.koordinator.sh/name": "high", "gang.scheduling.koordinator.sh/min-available": "2"}
PRIORITIES = {"low": 1, "middle": 500, "high": 1000}
WAIT_S = 60.0

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]


@pytest.fixture(scope="module")
def plane(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the controllers of claims; pods end as soon as they are deleted."""
    options = Options(controller_manager=True, kwok=False)
    with ControlPlane(tmp_path_factory.mktemp("preemption") / "plane", options) as plane:
        yield plane


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """A client of that control plane with a namespace of its own."""
    async with isolated(plane) as api:
        yield api


async def test_a_pod_gets_the_devices_of_pods_of_lower_priority(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    story = await _begin(api, "single", template("one", exactly()), template("two", exactly(count=2)))
    start_gangline(plane.kubeconfig, CONFIG)
    await api.create_many(_pods(story, api, [f"low-{number}" for number in range(4)], templates=["one"]))
    await api.wait_for(api.pods, is_bound, 4, WAIT_S)

    await api.create_many(_pods(story, api, ["high"], templates=["two"], priority="high"))
    await _bound(api, story, "high")

    assert len(await _left(api, story, "low")) == 2
    await _settled(api, 4)


async def test_a_gang_gets_the_devices_of_pods_of_lower_priority(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    story = await _begin(api, "gang", template("one", exactly()), template("two", exactly(count=2)), nodes=2)
    start_gangline(plane.kubeconfig, CONFIG)
    await api.create_many(_pods(story, api, [f"low-{number}" for number in range(7)], templates=["one"]))
    await api.create_many(_pods(story, api, ["same"], templates=["one"], priority="high"))
    await api.wait_for(api.pods, is_bound, 8, WAIT_S)

    members = _pods(story, api, ["high-0", "high-1"], templates=["two"], priority="high")
    for member in members:
        member["metadata"]["annotations"] = dict(GANG)
    await api.create_many(members)
    await _bound(api, story, "high-0", "high-1")

    assert len(await _left(api, story, "low")) == 3
    assert len(await _left(api, story, "same")) == 1
    await _settled(api, 8)


async def test_a_shared_claim_is_freed_with_its_last_consumer_and_nobody_takes_its_device_meanwhile(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    """The controllers sleep for a while, so the devices of the victims come free late."""
    names = [claim(name, exactly()) for name in ("shared", "mine", "other", "later")]
    story = await _begin(api, "shared", *names, of=2)
    start_gangline(plane.kubeconfig, CONFIG)
    await api.create_many(_pods(story, api, ["low-0", "low-1"], "shared"))
    await api.create_many(_pods(story, api, ["middle"], "other", priority="middle"))
    await api.wait_for(api.pods, is_bound, 3, WAIT_S)

    async with _asleep(plane):
        await api.create_many(_pods(story, api, ["high"], "mine", priority="high"))
        await api.until(lambda: _are_gone(api, story, "low"), "both consumers of the shared claim are gone", WAIT_S)
        await api.create_many(_pods(story, api, ["later"], "later", priority="middle"))
        await api.wait_for(api.pods, lambda each: is_named(each, "shared--later") and is_unschedulable(each), 1, WAIT_S)
        assert not await _left(api, story, "high")
        assert await _left(api, story, "middle")
    await _bound(api, story, "high")

    assert await _left(api, story, "middle")
    assert not await _left(api, story, "later")
    await _settled(api, 2)


# What is there


async def _begin(api: Api, name: str, *there: Manifest, nodes: int = 1, of: int = 4) -> Story:
    """Nodes with so many devices each, classes of priority, templates and claims."""
    story = Story(name, [], [])
    made: Manifests = [class_(), *there]
    for number in range(nodes):
        made += [node(f"n{number}"), offer(devices(*(f"gpu-{each}" for each in range(of))), at=f"n{number}")]
    await api.create_many(story.told(each) for each in made)
    await api.create_many(priority_class(f"{each}-{api.namespace}", value) for each, value in PRIORITIES.items())
    return story


def _pods(
    story: Story, api: Api, names: list[str], *claims: str, templates: Sequence[str] = (), priority: str = "low"
) -> Manifests:
    more = {"schedulerName": "one", "priorityClassName": f"{priority}-{api.namespace}"}
    return [story.told(pod(name, *claims, templates=templates, **more).manifest) for name in names]


# What has become of it


async def _are_gone(api: Api, story: Story, name: str) -> bool:
    return not await _left(api, story, name, lambda each: True)


async def _left(api: Api, story: Story, name: str, is_there: Callable[[Manifest], bool] = is_bound) -> Manifests:
    """The pods whose names begin so."""
    prefix = story.told(f"@{name}")
    return [each for each in await api.list(api.pods) if each["metadata"]["name"].startswith(prefix) and is_there(each)]


async def _bound(api: Api, story: Story, *names: str) -> None:
    wanted = {story.told(f"@{name}") for name in names}
    await api.wait_for(
        api.pods, lambda each: each["metadata"]["name"] in wanted and is_bound(each), len(wanted), WAIT_S
    )


async def _settled(api: Api, number: int) -> None:
    """Claims and pods say the same, and so many devices are in use."""
    claims = f"/apis/{API}/namespaces/{api.namespace}/resourceclaims"

    async def is_settled() -> bool:
        found = await api.list(claims)
        in_use = sum(len(devices_of(each)) for each in found)
        return in_use == number and not disagreements(await api.list(api.pods), found)

    await api.until(is_settled, f"{number} devices are in use", WAIT_S)


@asynccontextmanager
async def _asleep(plane: ControlPlane) -> AsyncIterator[None]:
    """The controllers do nothing in this block."""
    process = plane.processes[CONTROLLERS]
    process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)
