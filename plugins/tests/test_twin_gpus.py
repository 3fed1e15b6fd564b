"""A GPU with two masters is given out once, whichever side gives it out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangline import PodInfo, custom_resources, model, resources
from gangline.simulate import ClaimController, Kubelet, SimulatedCluster, running
from gangline.testing import Cache, FakeHandle, cluster, make_node, make_pod
from gangline_plugins.dynamic_resources import DynamicResources
from gangline_plugins.dynamic_resources.arguments import DynamicResourcesArgs
from gangline_plugins.dynamic_resources.ledger import ledger
from gangline_plugins.gpu.claim import GpuClaim, GpuClaimArgs
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.named_hardware import devices

DRIVER = "gpu.nvidia.com"
Notes = Mapping[str, str] | None
GPUS = 4
NODES = "ab"
HARDWARE = {
    node: [msgspec.structs.replace(each, uuid=f"GPU-{node}{each.id}") for each in devices("pcie-bridged-4")]
    for node in NODES
}


def offered(node: str, *more: model.Device) -> model.ResourceSlice:
    """A slice with all GPUs of a node, and more devices."""
    own = [model.Device(f"gpu-{each.id}", attributes=_named("uuid", each.uuid)) for each in HARDWARE[node]]
    spec = model.ResourceSliceSpec(DRIVER, model.ResourcePool(node, 1, 1), node, devices=[*own, *more])
    return model.ResourceSlice(model.ObjectMeta(f"slice-{node}"), spec)


def _named(*pairs: str) -> dict[str, model.DeviceAttribute]:
    return {name: model.DeviceAttribute(string=uuid) for name, uuid in zip(pairs[::2], pairs[1::2], strict=True)}


class World:
    """Two nodes whose GPUs are reported and offered."""

    def __init__(self, *more: model.Device, instances: tuple[custom_resources.MigDevice, ...] = ()) -> None:
        self.cache: Cache = cluster([make_node(node, gpus=0) for node in NODES])
        self.handle = FakeHandle(self.cache)
        self.cache.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu")))
        for node in NODES:
            hardware = list(HARDWARE[node])
            if instances and node == "a":
                hardware[0] = msgspec.structs.replace(hardware[0], mig_devices=list(instances))
            self.report(node, hardware)
            self.cache.store(resources.RESOURCE_SLICES).upsert(offered(node, *(more if node == "a" else ())))
        GpuClaim(GpuClaimArgs(), self.handle)
        DynamicResources(DynamicResourcesArgs(), self.handle)
        self.table, self.ledger = device_table(self.cache), ledger(self.handle)

    def report(self, node: str, hardware: list[custom_resources.GpuDevice]) -> None:
        status = custom_resources.GpuNodeStatusStatus(total=len(hardware), devices=hardware)
        made = custom_resources.GpuNodeStatus(model.ObjectMeta(node), custom_resources.GpuNodeStatusSpec(node), status)
        self.cache.store(resources.GPU_NODE_STATUSES).upsert(made)

    def by_gpu_claim(self, name: str, **of_devices: Any) -> PodInfo:
        """A pod with a GpuClaim of its own."""
        spec = custom_resources.GpuClaimSpec(devices=custom_resources.ClaimDevices(**of_devices))
        made = custom_resources.GpuClaim(model.ObjectMeta(name, "default"), spec)
        self.cache.store(resources.GPU_CLAIMS).upsert(made)
        return self.cache.record(make_pod(name, annotations={custom_resources.CLAIM: name}))

    def by_resource_claim(self, name: str, count: int, expression: str = "true") -> PodInfo:
        """A pod with a ResourceClaim of its own."""
        selector = model.DeviceSelector(model.CelDeviceSelector(expression))
        exactly = model.ExactDeviceRequest("gpu", [selector], allocation_mode="ExactCount", count=count)
        spec = model.ResourceClaimSpec(model.DeviceClaim([model.DeviceRequest("gpu", exactly)]))
        self.cache.store(resources.RESOURCE_CLAIMS).upsert(
            model.ResourceClaim(model.ObjectMeta(name, "default", f"uid-{name}"), spec)
        )
        return self.cache.record(make_pod(name, resource_claims=[model.PodResourceClaim("gpu", name)]))

    def had(self, name: str) -> list[str]:
        """The devices of a ResourceClaim."""
        found = self.ledger.allocation(f"uid-{name}")
        return [] if found is None else [each.device for each in found.devices.results]

    def gpus(self, pod: PodInfo) -> tuple[int, ...]:
        found = self.table.allocation(pod.uid)
        return () if found is None else found.ids

    def room(self, count: int, expression: str = "true") -> list[bool]:
        """By node: whether it has so many devices for a ResourceClaim."""
        pod = self.by_resource_claim("question", count, expression)
        claims = self.ledger.claims.of(pod)
        codes = self.ledger.devices.codes(self.ledger.devices.asked(claims), self.cache.nodes.view())
        return [code == 0 for code in codes[: len(NODES)].tolist()]

    def busy(self) -> list[int]:
        """By node: the mask of the GPUs in use, as GpuClaims see them."""
        return [int(each) for each in self.table.columns.busy[: len(NODES)]]

    def facts(self) -> object:
        claims = {
            each.metadata.name: self.had(each.metadata.name) for each in self.cache.store(resources.RESOURCE_CLAIMS)
        }
        return self.busy(), [self.room(count) for count in range(1, GPUS + 1)], claims


names = st.sampled_from("pqrstu")
steps = st.one_of(
    st.tuples(st.just("gpu"), names, st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("claim"), names, st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("remove"), names, st.just(0), st.just(0)),
    st.tuples(
        st.sampled_from(["begin", "end", "commit", "report", "slice"]), st.just("p"), st.integers(0, 1), st.just(0)
    ),
)


class Played:
    """Plays steps in a world and in a plain model: which pod has how many GPUs of which node."""

    def __init__(self) -> None:
        self.world = World()
        self.pods: dict[str, PodInfo] = {}
        self.counts: dict[str, int] = {}
        """How many GPUs each pod asks for."""
        self.had: dict[str, tuple[int, int]] = {}
        """By pod on a node: row and number of GPUs."""
        self.blocks: list[tuple[Any, dict[str, tuple[int, int]], object, dict[str, tuple[int, ...]]]] = []

    def step(self, kind: str, name: str, row: int, count: int) -> None:
        cache = self.world.cache
        if kind == "begin":
            self.blocks.append((cache.transaction(), dict(self.had), self.world.facts(), self.gpus()))
            self.blocks[-1][0].__enter__()
        elif kind == "end":
            self.end()
        elif kind == "commit" and self.blocks:
            block = self.blocks.pop()[0]
            block.commit()
            block.__exit__(None, None, None)
        elif kind in ("report", "slice"):
            if not self.blocks and kind == "slice":
                store = cache.store(resources.RESOURCE_SLICES)
                each = store.get(f"slice-{NODES[row]}")
                assert each is not None
                store.remove("", f"slice-{NODES[row]}")
                store.upsert(each)
            elif not self.blocks:
                self.world.report(NODES[row], [])
                self.world.report(NODES[row], HARDWARE[NODES[row]])
        elif self.blocks:
            self.move(kind, name, row, count)

    def move(self, kind: str, name: str, row: int, count: int) -> None:
        transaction = self.blocks[-1][0]
        if kind == "remove":
            if self.had.pop(name, None) is not None:
                transaction.unplace(self.pods[name])
            return
        if name not in self.pods:
            made = self.world.by_gpu_claim(name, count=count) if kind == "gpu" else None
            self.pods[name] = made or self.world.by_resource_claim(name, count)
            self.counts[name] = count
        if name not in self.had and self.free(row) >= self.counts[name]:
            transaction.place(self.pods[name], row)
            self.had[name] = row, self.counts[name]

    def end(self) -> None:
        if self.blocks:
            block, had, facts, gpus = self.blocks.pop()
            block.__exit__(None, None, None)
            self.had = had
            claims = {name for name in had}
            assert self.gpus() == {name: gpus.get(name, ()) for name in self.pods}
            after = self.world.facts()
            assert after[:2] == facts[:2]  # type: ignore[index]
            assert all(self.world.had(name) == facts[2].get(name, []) for name in claims)  # type: ignore[index]

    def gpus(self) -> dict[str, tuple[int, ...]]:
        return {name: self.world.gpus(pod) for name, pod in self.pods.items()}

    def free(self, row: int) -> int:
        return GPUS - sum(count for at, count in self.had.values() if at == row)

    def check(self) -> None:
        world = self.world
        for row, node in enumerate(NODES):
            mine = [name for name, (at, _) in self.had.items() if at == row]
            given = [f"gpu-{id}" for name in mine for id in world.gpus(self.pods[name])]
            given += [device for name in mine for device in world.had(name)]
            assert len(given) == len(set(given)) == GPUS - self.free(row), node
            assert world.busy()[row] == sum(1 << int(each.removeprefix("gpu-")) for each in given)
        for count in range(1, GPUS + 1):
            assert world.room(count) == [self.free(row) >= count for row in range(len(NODES))]


@given(st.lists(steps, max_size=25))
@example(
    [
        ("claim", "s", 0, 1),
        ("end", "p", 0, 0),
        ("gpu", "r", 1, 1),
        ("begin", "p", 0, 0),
        ("gpu", "s", 1, 1),
        ("remove", "r", 0, 0),
        ("remove", "s", 0, 0),
    ]
)  # put back first, `s` took the GPU that `r` has
@example(
    [
        ("gpu", "q", 0, 1),
        ("gpu", "r", 0, 1),
        ("begin", "p", 0, 0),
        ("remove", "q", 0, 0),
        ("remove", "r", 0, 0),
        ("gpu", "r", 1, 1),
    ]
)  # after it was on another node, `r` took the GPU that `q` has
def test_both_sides_see_what_the_other_has(history: list[tuple[str, str, int, int]]) -> None:
    played = Played()
    for each in history:
        if not played.blocks and each[0] in ("gpu", "claim", "remove"):
            played.step("begin", "p", 0, 0)
        played.step(*each)
        played.check()
    while played.blocks:
        played.end()
        played.check()


PARTS = [
    model.Device("own-part", attributes=_named("uuid", "MIG-1", "parentUUID", "GPU-a0")),
    model.Device("other-part", attributes=_named("uuid", "MIG-2", f"{DRIVER}/parentUUID", "GPU-a0")),
    model.Device("late-part", attributes=_named("uuid", "MIG-9", "parentUUID", "GPU-a0")),
]
INSTANCES = (custom_resources.MigDevice("MIG-1", "1g.10gb"), custom_resources.MigDevice("MIG-2", "1g.10gb"))


def test_an_instance_that_a_pod_has_closes_its_device_and_its_gpu_and_no_other_instance() -> None:
    world = World(*PARTS, instances=INSTANCES)
    pod = world.by_gpu_claim("p", count=1, exclusivity="MIG", mig_profile="1g.10gb")

    with world.cache.transaction() as transaction:
        transaction.place(pod, 0)
        found = world.table.allocation(pod.uid)
        assert found is not None
        open_ = {"MIG-1": "other-part", "MIG-2": "own-part"}[found.uuids[0]]
        assert world.room(GPUS) == [True, True]  # three GPUs, and the other part
        assert world.room(GPUS + 1)[0] is False
        other = world.by_resource_claim("q", GPUS)
        transaction.place(other, 0)
        assert set(world.had("q")) == {"gpu-1", "gpu-2", "gpu-3", open_}

    assert world.room(GPUS + len(PARTS))[0] is True


@pytest.mark.parametrize(
    ("device", "left"), [("own-part", 1), ("late-part", 0), ("gpu-0", 0)], ids=["named", "not named", "whole"]
)
def test_a_part_that_a_claim_has_leaves_the_instances_that_it_does_not_overlap(device: str, left: int) -> None:
    world = World(*PARTS, instances=INSTANCES)
    uuid = {each.name: each.attributes["uuid"].string for each in (*PARTS, *offered("a").spec.devices)}[device]
    pod = world.by_resource_claim("p", 1, f'device.attributes["{DRIVER}"].uuid == "{uuid}"')

    with world.cache.transaction() as transaction:
        transaction.place(pod, 0)
        assert world.had("p") == [device]
        assert int(world.table.columns.free_instances["1g.10gb"][0]) == left

    assert int(world.table.columns.free_instances["1g.10gb"][0]) == len(INSTANCES)


def test_what_is_given_stays_with_one_side_when_reports_and_slices_come_late() -> None:
    world = World()
    slices = world.cache.store(resources.RESOURCE_SLICES)
    reports = world.cache.store(resources.GPU_NODE_STATUSES)
    with world.cache.transaction() as transaction:
        transaction.place(world.by_gpu_claim("p", count=2), 0)
        transaction.place(world.by_resource_claim("q", 1), 0)
        busy = world.busy()[0]
        assert busy.bit_count() == 3

        slices.remove("", "slice-a")
        assert world.busy()[0].bit_count() == 2
        slices.upsert(offered("a"))
        assert world.busy()[0] == busy
        reports.remove("", "a")
        assert world.room(3)[0] is True
        world.report("a", HARDWARE["a"])
        assert world.busy()[0] == busy
        assert world.room(2)[0] is False


def assert_given_out_once(world: World) -> None:
    """A GPU that a claim gets on the first node is in use there for GpuClaims."""
    with world.cache.transaction() as transaction:
        transaction.place(world.by_resource_claim("q", 1), 0)

        assert world.had("q") and world.busy()[0].bit_count() == 1


def test_a_device_that_moves_to_another_slice_before_its_old_slice_goes_is_given_out_once() -> None:
    world = World()
    slices = world.cache.store(resources.RESOURCE_SLICES)
    renamed = offered("a")
    renamed.metadata.name = "slice-a-new"
    slices.upsert(renamed)
    slices.remove("", "slice-a")

    assert_given_out_once(world)


def test_a_report_that_names_the_gpus_of_another_node_hides_no_claim_from_that_node() -> None:
    world = World()
    world.report("b", HARDWARE["a"])

    assert_given_out_once(world)


def test_a_report_that_names_the_gpus_of_another_node_closes_none_of_them_to_claims() -> None:
    world = World()
    world.report("b", HARDWARE["a"])

    with world.cache.transaction() as transaction:
        transaction.place(world.by_gpu_claim("p", count=GPUS), 1)

        assert world.room(GPUS) == [True, True]


def test_rows_with_two_masters_are_known() -> None:
    world = World()
    twins = world.ledger.twins
    assert twins is not None

    assert twins.are_on([0, 1]) == [True, True]
    world.cache.store(resources.RESOURCE_SLICES).remove("", "slice-a")
    assert twins.are_on([0, 1]) == [False, True]
    world.cache.store(resources.GPU_NODE_STATUSES).remove("", "b")
    assert not twins.are_some


CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: GpuClaim}, {name: GangPermit}]}}
"""


class Story:
    """Nodes whose GPUs have two masters, on a simulated cluster."""

    def __init__(self) -> None:
        self.simulated = SimulatedCluster()
        self.simulated.create(resources.DEVICE_CLASSES, model.DeviceClass(model.ObjectMeta("gpu")))
        for node in NODES:
            self.simulated.create(resources.NODES, make_node(node, gpus=0))
            self.simulated.create(resources.RESOURCE_SLICES, offered(node))
            status = custom_resources.GpuNodeStatusStatus(total=GPUS, devices=HARDWARE[node])
            self.simulated.create(
                resources.GPU_NODE_STATUSES,
                custom_resources.GpuNodeStatus(
                    model.ObjectMeta(node), custom_resources.GpuNodeStatusSpec(node), status
                ),
            )

    def by_gpu_claim(self, name: str, count: int, annotations: Notes = None, **more: Any) -> None:
        spec = custom_resources.GpuClaimSpec(devices=custom_resources.ClaimDevices(count=count))
        self.simulated.create(resources.GPU_CLAIMS, custom_resources.GpuClaim(model.ObjectMeta(name, "default"), spec))
        self.simulated.create(
            resources.PODS, make_pod(name, annotations={custom_resources.CLAIM: name, **(annotations or {})}, **more)
        )

    def by_resource_claim(
        self, name: str, count: int, annotations: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        exactly = model.ExactDeviceRequest("gpu", allocation_mode="ExactCount", count=count)
        spec = model.ResourceClaimSpec(model.DeviceClaim([model.DeviceRequest("gpu", exactly)]))
        self.simulated.create(resources.RESOURCE_CLAIMS, model.ResourceClaim(model.ObjectMeta(name, "default"), spec))
        entry = model.PodResourceClaim("gpu", name)
        self.simulated.create(resources.PODS, make_pod(name, resource_claims=[entry], annotations=annotations, **more))

    def play(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            server = self.simulated.server
            async with (
                running(ClaimController(server).run(), Kubelet(server, self.simulated.clock).run()),
                self.simulated.scheduling(CONFIG, plugins=[GpuClaim, DynamicResources]),
            ):
                await story()

        self.simulated.play(whole)

    async def bound(self, *pods: str) -> None:
        await self.simulated.until(lambda: set(pods) <= self.simulated.bound().keys())

    async def waits(self, pod: str) -> None:
        await self.simulated.until(lambda: bool(self.simulated.message(pod)))


@pytest.mark.parametrize("first", ["gpu", "claim"])
def test_a_pod_waits_for_the_gpus_of_the_other_side_and_is_woken_when_they_are_free(first: str) -> None:
    world = Story()
    one, other = (world.by_gpu_claim, world.by_resource_claim)[:: 1 if first == "gpu" else -1]

    async def story() -> None:
        one("p", GPUS)
        one("q", GPUS)
        await world.bound("p", "q")
        other("late", 2)
        await world.waits("late")
        world.simulated.server.delete(resources.PODS, "p", namespace="default")
        await world.bound("late")

    world.play(story)


@pytest.mark.parametrize("first", ["gpu", "claim"])
def test_pods_of_the_other_side_are_preempted(first: str) -> None:
    world = Story()
    one, other = (world.by_gpu_claim, world.by_resource_claim)[:: 1 if first == "gpu" else -1]

    async def story() -> None:
        one("p", GPUS)
        one("q", GPUS)
        await world.bound("p", "q")
        other("urgent", 2, priority=1000)
        await world.bound("urgent")
        assert len(world.simulated.bound().keys() & {"p", "q"}) == 1

    world.play(story)


@pytest.mark.parametrize("first", ["gpu", "claim"])
def test_a_gang_takes_only_gpus_that_the_other_side_has_left(first: str) -> None:
    world = Story()
    one, other = (world.by_gpu_claim, world.by_resource_claim)[:: 1 if first == "gpu" else -1]

    async def story() -> None:
        one("p", 2)
        one("q", 1)
        await world.bound("p", "q")
        for number in range(3):
            other(f"m{number}", 1, annotations=gang(3))
        await world.bound("m0", "m1", "m2")
        for number in range(3):
            other(f"n{number}", 1, annotations=gang(3, "late"))
        await world.waits("n0")
        assert not world.simulated.bound("n")

    world.play(story)


def gang(size: int, name: str = "gang") -> dict[str, str]:
    """The annotations of the pods of a gang."""
    prefix = "gang.scheduling.koordinator.sh"
    return {f"{prefix}/name": name, f"{prefix}/min-available": str(size)}
