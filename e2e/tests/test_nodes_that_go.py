"""A node is deleted while pods are being bound to it: they are not, their devices are unlocked, others are chosen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gangline_e2e.api import Api
from gangline_e2e.day import fabric
from gangline_e2e.day.fabric import Fabric
from gangline_e2e.devices import LEASES, MANAGED, devices_of, disagreements
from gangline_e2e.gang_crds import install_foreign
from gangline_e2e.gangs import LEAF, Rule, koordinator
from gangline_e2e.gpu_crds import NODE_STATUSES, install, node_status
from gangline_e2e.gpu_fleet import SCHEDULER, configuration
from gangline_e2e.harness import ControlPlane
from gangline_e2e.installing import installed
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest, Manifests, gpu_pod, is_bound

PLUGIN = Path(__file__).parents[1] / "hold_back_plugin"
FABRIC = Fabric(nodes=3, gpus=8, leaves=1, spines=1)
GONE = "that was chosen is no longer there"

pytestmark = pytest.mark.timeout(240)


class Story:
    """One scheduler whose bindings are held back, on nodes that come and go."""

    def __init__(self, api: Api, scheduler: Gangline, folder: Path) -> None:
        self.api = api
        self._scheduler = scheduler
        self._folder = folder

    async def held(self, *pods: str) -> None:
        """Wait until these pods are being bound."""
        await self._until(lambda: all((self._folder / pod).exists() for pod in pods), f"{pods} are being bound")

    def go(self) -> None:
        """Let all bindings go on."""
        (self._folder / "go").touch()

    async def knows_of(self, nodes: int) -> None:
        """Wait until the scheduler knows of so many nodes."""

        def known() -> bool:
            return self._scheduler.nodes() == nodes

        await self._until(known, f"the scheduler knows of {nodes} nodes")

    async def lose(self, number: int, left: int) -> None:
        """Delete a node, and wait until the scheduler knows."""
        await fabric.lose(self.api, FABRIC, number)
        await self.knows_of(left)

    async def told(self, pod: str) -> None:
        """Wait until an event says why a pod was not bound."""

        async def is_told() -> bool:
            events = await self.api.list(f"/apis/events.k8s.io/v1/namespaces/{self.api.namespace}/events")
            return any(each["regarding"]["name"] == pod and GONE in each.get("note", "") for each in events)

        await self.api.until(is_told, f"an event says why {pod} was not bound", 60)

    async def locks(self) -> Manifests:
        """The leases of devices."""
        return await self.api.list(LEASES.format(self.api.namespace), labelSelector=MANAGED)

    async def unlocked(self) -> None:
        """Wait until no device is locked."""

        async def none() -> bool:
            return not await self.locks()

        await self.api.until(none, "no device is locked", 60)

    async def bound(self, count: int) -> Manifests:
        """So many pods once they have nodes, and once leases and annotations say the same."""
        pods = await self.api.wait_for(self.api.pods, is_bound, count, timeout_s=60)

        async def agreed() -> bool:
            return not disagreements(pods, await self.locks())

        await self.api.until(agreed, "leases are as the pods say", 60)
        return pods

    async def waiting(self) -> Iterable[str]:
        """The names of the pods without a node."""
        return {pod["metadata"]["name"] for pod in await self.api.list(self.api.pods) if not is_bound(pod)}

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        async def asked() -> bool:
            return await asyncio.to_thread(holds)

        await self.api.until(asked, what, 60)


@pytest.fixture(scope="module")
def hold_back(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plugin that holds bindings back; only PYTHONPATH leads there."""
    return installed(PLUGIN, tmp_path_factory.mktemp("site"))


@pytest.fixture
async def story(
    request: pytest.FixtureRequest,
    empty: Api,
    own_control_plane: ControlPlane,
    start_gangline: Callable[..., Gangline],
    hold_back: Path,
    tmp_path: Path,
) -> AsyncIterator[Story]:
    """Bindings are held back before devices are locked, or after that unless a test says otherwise."""
    await install(empty)
    await install_foreign(empty)
    folder = tmp_path / "held"
    folder.mkdir()
    config = configuration(empty.namespace)
    profile = config["profiles"][0]
    plugins: list[dict[str, Any]] = profile["plugins"]["multiPoint"]["enabled"]
    plugins.insert(0 if getattr(request, "param", "") == "before" else len(plugins), {"name": "HoldBack"})
    profile["pluginConfig"].append({"name": "HoldBack", "args": {"folder": str(folder)}})
    scheduler = start_gangline(own_control_plane.kubeconfig, config, python_path=hold_back)
    yield Story(empty, scheduler, folder)
    await empty.delete_many(f"{NODE_STATUSES}/{FABRIC.name(number)}" for number in range(FABRIC.nodes))


@pytest.mark.parametrize(("story", "locks"), [("before", 0), ("after", 2)], indirect=["story"])
async def test_a_pod_is_not_bound_to_a_node_that_has_gone_and_its_devices_are_unlocked(
    story: Story, locks: int
) -> None:
    await fabric.build(story.api, FABRIC, [0])
    await story.api.create(gpu_pod("train", gpus=2, scheduler_name=SCHEDULER))
    await story.held("train")
    assert len(await story.locks()) == locks
    await story.lose(0, left=0)
    story.go()

    await story.told("train")
    await story.unlocked()
    assert await story.waiting() == {"train"}
    await fabric.build(story.api, FABRIC, [1])
    (pod,) = await story.bound(1)
    assert pod["spec"]["nodeName"] == FABRIC.name(1)


async def test_devices_are_chosen_anew_on_a_node_that_was_deleted_and_made_again(story: Story) -> None:
    name = FABRIC.name(0)
    await fabric.build(story.api, FABRIC, [0])
    await story.api.create(gpu_pod("train", gpus=2, scheduler_name=SCHEDULER))
    await story.held("train")
    chosen = {id for lease in await story.locks() for id in [int(lease["metadata"]["name"].rpartition("-")[2])]}
    await story.lose(0, left=0)
    report = FABRIC.report(0)
    for device in report["status"]["devices"]:
        device["uuid"] += "-of-another"
        device["health"] = "Unhealthy" if device["id"] in chosen else "Healthy"
    await story.api.create(node_status(name))
    await story.api.merge(f"{NODE_STATUSES}/{name}/status", report)
    await story.api.create(FABRIC.node(0))
    await story.knows_of(1)
    story.go()

    await story.told("train")
    (pod,) = await story.bound(1)
    ids = {id for _, id in devices_of(pod)}
    assert len(chosen) == 2 and len(ids) == 2 and not ids & chosen
    assert pod["metadata"]["annotations"]["gpu.scheduling/allocated-uuids"].count("-of-another") == 2


async def test_a_gang_is_not_bound_without_the_member_whose_node_has_gone(story: Story) -> None:
    await fabric.build(story.api, FABRIC, [0, 1])
    gang = koordinator("gang", 2, Rule(required=LEAF), 8)
    await _create(story.api, [*gang.objects, *gang.pods])
    names = [pod["metadata"]["name"] for pod in gang.pods]
    await story.held(*names)
    await story.lose(1, left=1)
    story.go()

    for name in names:
        await story.told(name)
    await story.unlocked()
    assert await story.waiting() == set(names)
    await fabric.build(story.api, FABRIC, [2])
    pods = await story.bound(2)
    assert {pod["spec"]["nodeName"] for pod in pods} == {FABRIC.name(0), FABRIC.name(2)}


async def _create(api: Api, manifests: Iterable[Manifest]) -> None:
    for manifest in manifests:
        await api.create(manifest)
