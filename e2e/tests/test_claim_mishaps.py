"""Claims when drivers and administrators do what nobody expects: pods end as with kube-scheduler, for true reasons.

One control plane serves all tests of this file: kube-scheduler takes its turn first, then Gangline.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gangline.failpoints import VARIABLE
from gangline_e2e import processes
from gangline_e2e.api import Api
from gangline_e2e.claims import attaching, changing, misoffering
from gangline_e2e.claims.attaching import ATTACHED, FAILED, attachable, words
from gangline_e2e.claims.building import (
    API,
    Created,
    Decided,
    Story,
    claim,
    class_,
    device,
    devices,
    exactly,
    node,
    offer,
    pod,
    template,
)
from gangline_e2e.claims.grouping import group, member
from gangline_e2e.claims.judging import devices_of
from gangline_e2e.claims.starting import USER, start_kube_scheduler
from gangline_e2e.claims.telling import Outcome, prepare, tell
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import Manifest, Manifests, is_bound, is_named, is_unschedulable

GATES = ("DRADeviceTaintRules", "DRAListTypeAttributes", "DRAWorkloadResourceClaims")
GATE = "--feature-gates=" + ",".join(f"{gate}=true" for gate in (*GATES, "GenericWorkload", "GangScheduling"))
SERVED = "--runtime-config=resource.k8s.io/v1beta2=true,scheduling.k8s.io/v1alpha2=true"
TOGETHER = (*attaching.MISHAPS, *changing.STORIES, *misoffering.STORIES)
ALONE = (*changing.ALONE, *misoffering.ALONE)
STORIES: Mapping[str, Story] = {story.name: story for story in (*TOGETHER, *ALONE)}
SETTLED_S = 60.0
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces"
READING: Manifests = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reads-rules"},
        "rules": [
            {"apiGroups": [of], "resources": kinds, "verbs": ["list", "watch"]}
            for of, kinds in (
                ("resource.k8s.io", ["devicetaintrules"]),
                ("apps", ["deployments"]),
                ("batch", ["jobs", "cronjobs"]),
            )
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reads-rules"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-rules"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    },
]
Outcomes = Mapping[str, Outcome]
StartGangline = Callable[..., Gangline]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def plane(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the controllers of claims, devices and PodGroups; nobody has to run the pods."""
    options = Options(
        controller_manager=True, kwok=False, apiserver_args=(GATE, SERVED), controller_manager_args=(GATE,)
    )
    with ControlPlane(tmp_path_factory.mktemp("mishaps") / "plane", options) as plane:
        yield plane


@pytest.fixture(scope="module")
def theirs(plane: ControlPlane) -> Outcomes:
    """All stories with kube-scheduler."""
    with ExitStack() as stack:

        def start() -> None:
            stack.callback(processes.stop, [start_kube_scheduler(plane, GATE)], 10.0)

        return asyncio.run(_told(plane, start))


@pytest.fixture(scope="module")
def ours(plane: ControlPlane, theirs: Outcomes) -> Iterator[Outcomes]:
    """All stories with Gangline, after kube-scheduler has ended."""
    scheduler = Gangline(plane.kubeconfig_for(USER), plane.folder / "gangline", _config("default-scheduler"))
    with ExitStack() as stack:
        stack.callback(scheduler.stop)
        outcomes = asyncio.run(_told(plane, scheduler.start))
        assert scheduler.alive()
    assert "Traceback" not in scheduler.logs()
    yield outcomes


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """A client of the control plane with a namespace of its own."""
    async with isolated(plane) as api:
        yield api


@pytest.mark.parametrize("name", STORIES)
def test_a_mishap_ends_with_kube_scheduler_as_told(theirs: Outcomes, name: str) -> None:
    story, outcome = STORIES[name], theirs[name]

    assert "a step is refused" not in outcome.decided
    said = {pod: iter(decisions) for pod, decisions in outcome.decided.items()}
    for step in story.steps:
        if isinstance(step, Created | Decided) and (step.at or step.refused):
            of = step.name if isinstance(step, Decided) else step.manifest["metadata"]["name"]
            found = next(said[of.removeprefix("@")])
            assert found == step.at or (step.refused and step.refused.replace("@", "") in found)
    assert {claim: outcome.devices(claim) for claim in story.devices} == story.devices


@pytest.mark.parametrize("name", STORIES)
def test_a_mishap_ends_as_with_kube_scheduler(ours: Outcomes, theirs: Outcomes, name: str) -> None:
    mine, other = ours[name], theirs[name]
    if name in changing.TOLD_OTHERWISE:
        assert {pod: found[-1] for pod, found in mine.decided.items()} == {
            pod: found[-1] for pod, found in other.decided.items()
        }
    else:
        assert mine.decided == other.decided
    assert mine.claims == other.claims
    assert mine.mapped == other.mapped


# Gangline alone: its process is killed, and its reasons are asked for


async def test_a_device_that_is_attached_while_no_scheduler_runs_stays_with_its_claim(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    story = _story("kept", [node(), offer([attachable()]), class_(), claim("one", exactly())])
    await api.create_many(story.there)
    scheduler = start_gangline(plane.kubeconfig, _config("one"))
    await api.create_many(_pods(story, pod("p", "one"), pod("q", "one")))
    (before,) = await _having(api, "gpu-0")
    scheduler.kill()
    await _say(api, before, ATTACHED)

    scheduler.start()
    await api.wait_for(api.pods, is_bound, 2, SETTLED_S)

    (after,) = await api.list(_claims(api))
    assert after["status"]["allocation"] == before["status"]["allocation"]
    assert len(after["status"]["reservedFor"]) == 2


async def test_a_device_that_fails_while_no_scheduler_runs_is_given_back(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    story = _story("failed", [node(), node("b"), offer([attachable()]), class_(), claim("one", exactly())])
    await api.create_many(story.there)
    scheduler = start_gangline(plane.kubeconfig, _config("one"))
    await api.create_many(_pods(story, pod("p", "one"), pod("q", "one")))
    (before,) = await _having(api, "gpu-0")
    scheduler.kill()
    await _say(api, before, FAILED)
    await api.delete(f"/apis/{API}/resourceslices/failed--a")  # else the claim may get the device again
    await api.create(story.told(offer(devices("gpu-1"), at="b")))

    scheduler.start()
    bound = await api.wait_for(api.pods, is_bound, 2, SETTLED_S)

    assert {each["spec"]["nodeName"] for each in bound} == {"failed--b"}
    assert [devices_of(each)[0][2] for each in await api.list(_claims(api))] == ["gpu-1"]


async def test_the_time_for_a_device_goes_on_after_a_kill_and_then_the_pod_goes_elsewhere(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    story = _story("late", [node(), node("b"), offer([attachable()]), class_(), claim("one", exactly())])
    await api.create_many(story.there)
    scheduler = start_gangline(plane.kubeconfig, _config("one", bindingTimeout="3s"))
    await api.create_many(_pods(story, pod("p", "one")))
    await _having(api, "gpu-0")
    scheduler.kill()
    await api.delete(f"/apis/{API}/resourceslices/late--a")  # else the claim may get the device again
    await api.create(story.told(offer(devices("gpu-1"), at="b")))

    scheduler.start()
    (bound,) = await api.wait_for(api.pods, is_bound, 1, SETTLED_S)

    assert bound["spec"]["nodeName"] == "late--b"


async def test_a_pod_whose_node_goes_while_its_device_is_attached_gets_another(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    story = _story("gone", [node(), node("b"), offer([attachable()]), class_(), claim("one", exactly())])
    await api.create_many(story.there)
    start_gangline(plane.kubeconfig, _config("one"))
    await api.create_many(_pods(story, pod("p", "one")))
    await _having(api, "gpu-0")
    await api.create(story.told(offer(devices("gpu-1"), at="b")))
    await api.delete("/api/v1/nodes/gone--a")

    (bound,) = await api.wait_for(api.pods, is_bound, 1, SETTLED_S)

    assert bound["spec"]["nodeName"] == "gone--b"
    assert [devices_of(each)[0][2] for each in await api.list(_claims(api))] == ["gpu-1"]


async def test_a_gang_is_bound_only_when_the_devices_of_all_members_are_attached(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    offered = [offer([attachable(f"gpu-{at}")], at=at) for at in "ab"]
    there = [node(), node("b"), *offered, class_(), template("own", exactly()), group(least=2)]
    story = _story("gang", there)
    await api.create_many(story.there)
    start_gangline(plane.kubeconfig, _config("one"))
    await api.create_many(_pods(story, *(member(name, templates=["own"]) for name in "pq")))
    (good, bad) = await api.wait_for(_claims(api), _has_devices, 2, SETTLED_S)

    await _say(api, good, ATTACHED)
    await _say(api, bad, FAILED)

    async def was_given_back() -> bool:
        now = await api.get(f"{_claims(api)}/{bad['metadata']['name']}")
        return bool(now.get("status", {}).get("allocation") != bad["status"]["allocation"])

    await api.until(was_given_back, "the claim whose device failed has given it back", SETTLED_S)
    assert not [each for each in await api.list(api.pods) if is_bound(each)]

    async def are_bound() -> bool:
        for each in await api.list(_claims(api)):
            if _has_devices(each) and not each["status"].get("devices"):
                await _say(api, each, ATTACHED)
        return len([each for each in await api.list(api.pods) if is_bound(each)]) == 2

    await api.until(are_bound, "both members are bound", SETTLED_S)
    assert sorted(devices_of(each)[0][2] for each in await api.list(_claims(api))) == ["gpu-a", "gpu-b"]


async def test_a_claim_that_a_dead_scheduler_wrote_for_a_group_serves_the_group_made_anew(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    """The scheduler dies when the claim has its device; meanwhile the group and its pods are deleted and made anew."""
    there = [node(), node("b"), offer(devices("gpu-0")), class_(), claim("one", exactly()), group("one", least=2)]
    story = _story("anew", there)
    await api.create_many(story.there)
    scheduler = start_gangline(plane.kubeconfig, _config("one"), env={VARIABLE: "claim.after-status=exit"})
    await api.create_many(_pods(story, member("p", "one"), member("q", "one")))
    assert await asyncio.to_thread(scheduler.process.wait, SETTLED_S)
    (before,) = await _having(api, "gpu-0")
    assert not [each for each in await api.list(api.pods) if is_bound(each)]

    where = f"{GROUPS}/{api.namespace}/podgroups"
    await api.delete_many([f"{where}/anew--g", f"{api.pods}/anew--p", f"{api.pods}/anew--q"])
    await api.until(lambda: _none(api, where), "the group is gone", SETTLED_S)
    new = await api.create(story.told(group("one", least=2)))
    await api.create_many(_pods(story, member("r", "one"), member("s", "one")))
    scheduler.env = {}
    scheduler.start()
    bound = await api.wait_for(api.pods, is_bound, 2, SETTLED_S)

    async def is_reserved_for_the_new_group() -> bool:
        (now,) = await api.list(_claims(api))
        return [each["uid"] for each in now["status"]["reservedFor"]] == [new["metadata"]["uid"]]

    await api.until(is_reserved_for_the_new_group, "the claim is reserved for the new group alone", SETTLED_S)
    assert {each["spec"]["nodeName"] for each in bound} == {"anew--a"}
    assert [each["uid"] for each in before["status"]["reservedFor"]] != [new["metadata"]["uid"]]


async def test_the_reason_on_a_pod_is_what_explain_says(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    """A pool that contradicts itself is the reason on its node alone, and other pods go on."""
    twice = [offer([device("gpu-0")], name=name, slices=2) for name in ("s", "t")]
    claims = [claim(name, exactly()) for name in ("one", "two")]
    story = _story("told", [node(), node("b"), *twice, offer(devices("gpu-1"), at="b"), class_(), *claims])
    await api.create_many(story.there)
    scheduler = start_gangline(plane.kubeconfig, _config("one"))
    await api.create_many(_pods(story, pod("p", "one")))
    await api.wait_for(api.pods, is_bound, 1, SETTLED_S)
    await api.create_many(_pods(story, pod("q", "two")))
    await api.wait_for(api.pods, lambda each: is_named(each, "told--q") and is_unschedulable(each), 1, SETTLED_S)

    now = await api.get(f"{api.pods}/told--q")
    (said,) = (each["message"] for each in now["status"]["conditions"] if each["type"] == "PodScheduled")
    assert "1 cannot allocate all claims, 1 invalid resource pools were encountered" in said
    explained = await _explained(plane, api, "told--q", scheduler.config_file)
    rows = {row.split()[0]: row for row in explained.splitlines() if row.strip()}
    assert "invalid resource pools were encountered" in rows["told--a"]
    assert "cannot allocate all claims" in rows["told--b"]


# What the tests share


async def _told(plane: ControlPlane, start: Callable[[], object]) -> Outcomes:
    async with isolated(plane) as api:
        await api.create_many(READING)
        await prepare(api, TOGETHER)
        await asyncio.to_thread(start)
        outcomes = await tell(api, TOGETHER)
        for story in ALONE:
            await prepare(api, [story])
            outcomes |= await tell(api, [story])
        return outcomes


def _config(name: str, **args: Any) -> Manifest:
    gates = {"featureGates": dict.fromkeys(GATES, True), **args}
    return configuration(profile(name, enabled=[{"name": "GangPermit"}], args={"DynamicResources": gates}))


def _story(name: str, there: Manifests) -> Story:
    """A story whose objects have the names of this story already."""
    return Story(name, Story(name, [], []).told(there), [])


def _pods(story: Story, *steps: Created) -> Manifests:
    """The pods of these steps, for the scheduler `one`."""
    made: Manifests = story.told([each.manifest for each in steps])
    for each in made:
        each["spec"]["schedulerName"] = "one"
    return made


def _claims(api: Api) -> str:
    return f"/apis/{API}/namespaces/{api.namespace}/resourceclaims"


def _has_devices(each: Manifest) -> bool:
    return bool(devices_of(each))


async def _having(api: Api, device: str) -> Manifests:
    """The claim that has this device, as soon as one has."""
    return await api.wait_for(
        _claims(api), lambda each: device in [name for *_, name in devices_of(each)], 1, SETTLED_S
    )


async def _say(api: Api, claim: Manifest, condition: str) -> None:
    """The driver says something of the device of a claim."""
    ((driver, pool, name),) = devices_of(claim)
    await api.merge(f"{_claims(api)}/{claim['metadata']['name']}/status", words(driver, pool, name, condition))


async def _none(api: Api, collection: str) -> bool:
    return not await api.list(collection)


async def _explained(plane: ControlPlane, api: Api, pod: str, config: Path) -> str:
    """What `gangline explain` prints about a pod."""
    words = ["explain", f"{api.namespace}/{pod}", "--kubeconfig", str(plane.kubeconfig), "--config", str(config)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gangline", *words, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()
