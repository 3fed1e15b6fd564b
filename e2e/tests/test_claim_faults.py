"""Claims when something goes wrong: no device goes to two pods, none is lost, and a gang gets all devices or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count

import pytest

from gangline.failpoints import VARIABLE
from gangline_e2e.api import Api
from gangline_e2e.claims.building import API, Story, class_, devices, exactly, node, offer, pod, template
from gangline_e2e.claims.judging import devices_of, disagreements, unfinished
from gangline_e2e.errors import Refused, WaitedTooLong
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import Manifest, Manifests, is_bound

NODES, DEVICES = 5, 8
PODS = 60
SETTLED_S = 60.0
DEATHS = ("claim.before-status=exit@2", "claim.after-status=exit@9", "claim.before-status=exit@5")
"""Where the scheduler dies, one time after the other."""
GANG = {"gang.scheduling.koordinator.sh/name": "a", "gang.scheduling.koordinator.sh/min-available": "8"}
POLICY = "claims-of-g3-stay-without-devices"
ADMISSION = "admissionregistration.k8s.io/v1"
POLICIES = f"/apis/{ADMISSION}/validatingadmissionpolicies"

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]


@pytest.fixture(scope="module")
def plane(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the controllers of claims; nobody runs the pods."""
    options = Options(controller_manager=True, kwok=False)
    with ControlPlane(tmp_path_factory.mktemp("faults") / "plane", options) as plane:
        yield plane


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """A client of that control plane with a namespace of its own."""
    async with isolated(plane) as api:
        yield api


@pytest.mark.parametrize("names", [("one", "two"), ("one", "one")], ids=["two names", "replicas"])
async def test_two_schedulers_give_no_device_to_two_pods_and_lose_none(
    names: tuple[str, str], plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    story = _story("twice" if len(set(names)) == 2 else "replicas")
    await api.create_many(story.there)
    for name in names:
        start_gangline(plane.kubeconfig, configuration(profile(name)))
    await api.create_many(_pods(story, PODS, names))
    await api.wait_for(api.pods, is_bound, NODES * DEVICES, SETTLED_S)
    await _settle(api)

    assert len([each for each in await api.list(api.pods) if is_bound(each)]) == NODES * DEVICES
    assert sum(len(devices_of(each)) for each in await _claims(api)) == NODES * DEVICES


async def test_a_scheduler_killed_while_it_writes_claims_loses_no_device(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    """Meanwhile the driver replaces its slices, and somebody changes the claims again and again."""
    story = _story("killed")
    await api.create_many(story.there)
    async with _running(_replace_slices(api, story)):
        scheduler = start_gangline(plane.kubeconfig, configuration(profile("one")), env={VARIABLE: DEATHS[0]})
        await api.create_many(_pods(story, PODS, ("one",)))
        async with _running(_annotate(api)):
            protected, allocated = list[str](), list[str]()
            for death in (*DEATHS[1:], ""):
                assert await asyncio.to_thread(scheduler.process.wait, SETTLED_S), scheduler.env
                early, late = unfinished(await _claims(api), await api.list(api.pods))
                protected, allocated = protected + early, allocated + late
                await _delete_users(api, late[::2])
                scheduler.env = {VARIABLE: death}
                scheduler.launch()
            for bound in (10, 25):
                await api.wait_for(api.pods, is_bound, bound, SETTLED_S)
                scheduler.kill()
                await _delete_users(api, unfinished(await _claims(api), await api.list(api.pods))[1][::2])
                scheduler.start()
            there = len(await api.list(api.pods))
            await api.wait_for(api.pods, is_bound, min(there, NODES * DEVICES), SETTLED_S)
    await _settle(api)

    assert protected, "no death came between a finalizer and the devices"
    assert allocated, "no death came between the devices and the binding"
    bound_pods = [each for each in await api.list(api.pods) if is_bound(each)]
    assert len(bound_pods) == min(there, NODES * DEVICES)


async def test_a_gang_gets_all_devices_or_none_when_the_claim_of_one_member_cannot_be_written(
    plane: ControlPlane, api: Api, start_gangline: StartGangline
) -> None:
    story = _story("gang", nodes=8, of=8)
    await api.create_many(story.there)
    members = _pods(story, 8, ("one",))
    for member in members:
        member["metadata"]["annotations"] = dict(GANG)
    async with _refused(api):
        start_gangline(plane.kubeconfig, configuration(profile("one", enabled=[{"name": "GangPermit"}])))
        await api.create_many(members)
        await api.wait_for(_claims_path(api), lambda each: bool(devices_of(each)), 1, SETTLED_S)  # for a moment
        await api.until(lambda: _none_has_devices(api), "no claim has devices any more", SETTLED_S)
        assert not [each for each in await api.list(api.pods) if is_bound(each)]
    await api.wait_for(api.pods, is_bound, 8, SETTLED_S)
    await _settle(api)

    assert sum(len(devices_of(each)) for each in await _claims(api)) == 64


# What is there


def _story(name: str, nodes: int = NODES, of: int = 1) -> Story:
    """Nodes with eight devices each, and a template for claims of so many."""
    story = Story(name, [], [])
    there: Manifests = [class_(), template("some", exactly(count=of))]
    for number in range(nodes):
        there += [node(f"n{number}"), offer(_devices(), at=f"n{number}")]
    return Story(name, story.told(there), [])


def _devices() -> Manifests:
    return devices(*(f"gpu-{number}" for number in range(DEVICES)))


def _pods(story: Story, number: int, schedulers: tuple[str, ...]) -> Manifests:
    return [
        story.told(pod(f"g{index}", templates=["some"], schedulerName=schedulers[index % len(schedulers)]).manifest)
        for index in range(number)
    ]


def _claims_path(api: Api) -> str:
    return f"/apis/{API}/namespaces/{api.namespace}/resourceclaims"


async def _claims(api: Api) -> Manifests:
    return await api.list(_claims_path(api))


async def _delete_users(api: Api, claims: list[str]) -> None:
    """Delete the pods that have these claims, while no scheduler runs."""
    owners = [
        owner["name"]
        for each in await _claims(api)
        if each["metadata"]["name"] in claims
        for owner in each["metadata"].get("ownerReferences", [])
    ]
    await api.delete_many(f"{api.pods}/{name}" for name in owners)


async def _settle(api: Api) -> None:
    """Wait until devices are as pods say, and fail with what is not."""

    async def is_settled() -> bool:
        return not disagreements(await api.list(api.pods), await _claims(api))

    with suppress(WaitedTooLong):
        await api.until(is_settled, "claims and pods say the same", SETTLED_S)
    assert disagreements(await api.list(api.pods), await _claims(api)) == []


async def _none_has_devices(api: Api) -> bool:
    """Whether no claim has devices."""
    return not any(devices_of(each) for each in await _claims(api))


# What happens meanwhile


@asynccontextmanager
async def _running(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()


async def _annotate(api: Api) -> None:
    """Change the annotations of all claims again and again, so that writes of others meet conflicts."""
    for turn in count():
        for claim in await _claims(api):
            path = f"/apis/{API}/namespaces/{api.namespace}/resourceclaims/{claim['metadata']['name']}"
            with suppress(Refused):  # it is gone
                await api.merge(path, {"metadata": {"annotations": {"example.com/turn": str(turn)}}})


async def _replace_slices(api: Api, story: Story) -> None:
    """Each driver replaces its slice by one of the next generation, with the same devices."""
    for generation in count(2):
        for number in range(NODES):
            new: Manifest = story.told(
                offer(
                    _devices(),
                    at=f"n{number}",
                    name=f"n{number}-{generation}",
                    pool=f"@n{number}",
                    generation=generation,
                )
            )
            await api.create(new)
            old = f"n{number}-{generation - 1}" if generation > 2 else f"n{number}"
            await api.delete(f"/apis/{API}/resourceslices/{story.told(f'@{old}')}")
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _refused(api: Api) -> AsyncIterator[None]:
    """Meanwhile the API server lets nobody allocate devices to the claims of the fourth pod."""
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"]}
    spec: Manifest = {
        "matchConstraints": {"resourceRules": [{**rule, "resources": ["resourceclaims/status"]}]},
        "validations": [{"expression": "!object.metadata.name.contains('--g3-')", "message": "not now"}],
    }
    await api.create(
        {"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": POLICY}, "spec": spec}
    )
    binding = {"policyName": POLICY, "validationActions": ["Deny"]}
    await api.create(
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": POLICY},
            "spec": binding,
        }
    )
    await api.create(
        {
            "apiVersion": API,
            "kind": "ResourceClaim",
            "metadata": {"name": "probe--g3-x"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "none"}}]}},
        }
    )
    path = f"/apis/{API}/namespaces/{api.namespace}/resourceclaims/probe--g3-x"

    async def is_in_force() -> bool:
        try:
            await api.merge(f"{path}/status", {"status": {"devices": []}})
        except Refused:
            return True
        return False

    await api.until(is_in_force, "the policy is in force")
    await api.delete(path)
    yield
    await api.delete(f"/apis/{ADMISSION}/validatingadmissionpolicybindings/{POLICY}")
    await api.delete(f"{POLICIES}/{POLICY}")
