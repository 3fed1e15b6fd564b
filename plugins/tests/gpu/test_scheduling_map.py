"""GpuSchedulingMap: pods go where their map says, with the devices that it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gangline import ConfigError, PodInfo, custom_resources, model, resources
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, make_scheduler
from gangline.testing import FakeHandle, make_node, make_pod, make_runtime
from gangline.testing.configured import configuration
from gangline_plugins.gpu.claim import GpuClaim, GpuClaimArgs
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.leases.book import lease_book
from gangline_plugins.gpu.leases.holds import Hold, lease_of
from gangline_plugins.gpu.scheduling_map import GpuSchedulingMap, GpuSchedulingMapArgs
from gangline_plugins.gpu.wants import MapProfiles

from .gpu_cases import claim, gpu_cluster, report
from .lease_cases import LeaseCluster, plain


class Maps:
    """Two nodes of 8 GPUs, the second one also called `left`, and pods with maps."""

    def __init__(self) -> None:
        nodes = [make_node("node-0"), make_node("node-1", labels={custom_resources.NODE_ALIAS: "left"})]
        self.cache = gpu_cluster([report("node-0"), report("node-1")], nodes=nodes)
        self.allow("scheduling-map")
        self.handle = FakeHandle(self.cache)
        plugins = (GpuClaim, GpuSchedulingMap)
        self.runtime = make_runtime(
            self.cache,
            *plugins,
            args={"GpuClaim": GpuClaimArgs(), "GpuSchedulingMap": GpuSchedulingMapArgs()},
            handle=self.handle,
        )

    def allow(self, permissions: str, namespace: str = "default") -> None:
        """What a namespace lets its pods ask for."""
        meta = model.ObjectMeta(name=namespace, annotations={custom_resources.ALLOW: permissions})
        self.cache.store(resources.NAMESPACES).upsert(model.Namespace(meta))

    def feasible(self, pod: model.Pod) -> tuple[list[str], str]:
        """The nodes that are left, and why none is."""
        filtered = self.runtime.evaluator.filter(self.cache.record(pod))
        if not filtered.feasible.any():
            self.runtime.reject(self.runtime.evaluator.diagnose(filtered))
        names = [name for row, name in enumerate(self.cache.nodes.names) if name and filtered.feasible[row]]
        return names, filtered.status.message if filtered.status else ""

    def why_not(self, pod: model.Pod) -> str:
        """Why node-0 is not feasible."""
        diagnosis = self.runtime.evaluator.diagnose(self.runtime.evaluator.filter(self.cache.record(pod)))
        return "; ".join(reason for rejection in diagnosis.all_of(0) for reason in rejection[2])

    @property
    def notes(self) -> list[str]:
        """What events say."""
        return [event.note for event in self.handle.fake_recorder.events]


def mapped(text: str, name: str = "app-0", labels: Mapping[str, str] | None = None, **fields: Any) -> model.Pod:
    return make_pod(name, annotations={custom_resources.SCHEDULING_MAP: text}, labels=labels, **fields)


def test_pods_without_a_map_go_anywhere() -> None:
    assert Maps().feasible(make_pod("app-0"))[0] == ["node-0", "node-1"]


@pytest.mark.parametrize("name", ["node-1", "left"])
def test_a_node_is_named_by_its_name_or_its_label(name: str) -> None:
    assert Maps().feasible(mapped(f"0={name}:0"))[0] == ["node-1"]


def test_a_real_name_counts_before_a_label() -> None:
    maps = Maps()
    maps.cache.upsert_node(make_node("node-1", labels={custom_resources.NODE_ALIAS: "node-0"}))

    assert maps.feasible(mapped("0=node-0:0"))[0] == ["node-0"]


def test_a_label_that_is_taken_away_names_nothing() -> None:
    maps = Maps()
    maps.cache.upsert_node(make_node("node-1"))

    assert maps.feasible(mapped("0=left:0"))[0] == []


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(mapped("0=node-0:0", "app"), "the pod has no index: no index label, and its name", id="no index"),
        pytest.param(mapped("0=node-0:0", "app-3"), "there is no entry for index 3", id="no entry"),
        pytest.param(mapped(""), "there is no entry for index 0", id="empty"),
        pytest.param(mapped("0=node-9:0"), "there is no node node-9, by its name or its label", id="no node"),
    ],
)
def test_a_pod_that_the_map_leads_nowhere_is_not_scheduled_and_told_why(pod: model.Pod, why: str) -> None:
    maps = Maps()

    names, message = maps.feasible(pod)

    assert names == [] and f"gpu-scheduling-map: {why}" in message
    assert any(why in note for note in maps.notes)


def test_a_bad_line_is_reported_and_the_others_count() -> None:
    maps = Maps()

    names, _ = maps.feasible(mapped("x=node-0:0\n0=node-1:0\nnonsense"))

    assert names == ["node-1"]
    assert maps.notes == [
        "gpu-scheduling-map: skipped line 1, 'x=node-0:0': the index 'x' is not an integer; "
        "line 3, 'nonsense': there is no '=' after the index"
    ]


@pytest.mark.parametrize("label", [custom_resources.COMPLETION_INDEX, custom_resources.POD_INDEX])
def test_an_index_label_counts_before_the_name(label: str) -> None:
    pod = mapped("0=node-0:0\n1=node-1:0", "app-0", labels={label: "1"})

    assert Maps().feasible(pod)[0] == ["node-1"]


def test_devices_of_a_map_are_counted_until_the_last_pod_has_left() -> None:
    maps = Maps()
    table = device_table(maps.cache)
    pods = [maps.cache.record(mapped("0=node-0:3\n1=node-0:3", f"app-{index}")) for index in range(2)]
    for pod in pods:
        filtered = maps.runtime.evaluator.filter(pod)
        maps.cache.assume(pod, 0)
        assert maps.runtime.reserve(filtered.cycle, pod, "node-0").is_success
        assert filtered.cycle.annotations[custom_resources.ALLOCATED] == "3"
        assert filtered.cycle.annotations[custom_resources.ALLOCATED_UUIDS] == "".join(table.uuids(0, [3]))

    taken = [int(table.columns.busy[0])]
    for pod in pods:
        maps.cache.forget(pod)
        taken.append(int(table.columns.busy[0]))

    assert taken == [0b1000, 0b1000, 0]


def test_the_canonical_map_puts_five_pods_where_it_says() -> None:
    cluster = LeaseCluster(nodes=0)
    for number in range(1, 5):
        cluster.server.create(
            resources.NODES, plain(make_node(f"worker-{number}", labels={custom_resources.NODE_ALIAS: f"node{number}"}))
        )
    text = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n"
    names = [f"check-{index}" for index in range(5)]
    for name in names:
        cluster.add_pod(name, uses="", annotations={custom_resources.SCHEDULING_MAP: text})

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound(*names, seconds=5)

    cluster.play(story)

    pods = [cluster.pod(name) for name in names]
    assert [(pod.spec.node_name, (pod.metadata.annotations or {})[custom_resources.ALLOCATED]) for pod in pods] == [
        ("worker-1", "0,1"),
        ("worker-2", "2"),
        ("worker-3", "0,1,2"),
        ("worker-4", "3"),
        ("worker-4", "3"),
    ]


# What others have


def holds(maps: Maps, name: str, ids: str, namespace: str = "tenant", **fields: Any) -> PodInfo:
    """A pod of another tenant that is on node-0 with devices of its own."""
    pod = make_pod(name, namespace=namespace, node="node-0", **fields)
    pod.metadata.annotations = {**(pod.metadata.annotations or {}), custom_resources.ALLOCATED: ids}
    record = maps.cache.record(pod)
    maps.cache.upsert_pod(record)
    return record


TAKEN = "node(s) had GPUs of the scheduling map that other pods use"


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": 1},
        {"annotations": {custom_resources.CLAIM: "whole"}},
        {"annotations": {custom_resources.CLAIM: "half"}},
    ],
    ids=["request", "claim", "share"],
)
def test_a_map_does_not_take_what_another_tenant_has(fields: Mapping[str, Any]) -> None:
    maps = Maps()
    for each in (
        claim("whole", namespace="tenant", count=1),
        claim("half", namespace="tenant", count=1, exclusivity="Shared", fraction=0.5),
    ):
        maps.cache.store(resources.GPU_CLAIMS).upsert(each)
    holds(maps, "theirs", "3", **fields)

    assert maps.why_not(mapped("0=node-0:2,3")) == TAKEN
    assert maps.feasible(mapped("0=node-0:2"))[0] == ["node-0"]


def test_maps_share_within_their_namespace_only() -> None:
    maps = Maps()
    maps.allow("scheduling-map", "tenant")
    holds(maps, "app-0", "3", annotations={custom_resources.SCHEDULING_MAP: "0=node-0:3"})

    assert maps.feasible(mapped("1=node-0:3", "app-1", namespace="tenant"))[0] == ["node-0"]
    assert maps.feasible(mapped("1=node-0:3", "app-1"))[0] == []


def test_what_preemption_takes_away_a_map_may_take() -> None:
    maps = Maps()
    victim = holds(maps, "theirs", "3", gpus=1)

    with maps.cache.transaction() as tx:
        tx.unplace(victim)
        without = maps.feasible(mapped("0=node-0:3"))[0]

    assert without == ["node-0"] and maps.feasible(mapped("0=node-0:3"))[0] == []


def test_a_map_does_not_take_what_a_lease_locks_for_a_pod_that_is_not_known_here() -> None:
    maps = Maps()
    lease_book(maps.cache)
    hold = Hold(pod="default/app-9", by="other.1", ids=(3,))
    maps.cache.store(resources.LEASES).upsert(lease_of("gpu-node-0-3", "locks", "node-0", {"uid": hold}, ""))

    assert maps.feasible(mapped("0=node-0:3"))[0] == []


def test_a_device_that_went_to_another_after_the_filter_is_not_taken() -> None:
    maps = Maps()
    pod = maps.cache.record(mapped("0=node-0:3"))
    filtered = maps.runtime.evaluator.filter(pod)
    holds(maps, "theirs", "3", gpus=1)
    maps.cache.assume(pod, 0)

    status = maps.runtime.reserve(filtered.cycle, pod, "node-0")

    assert "others have got GPUs 3 of node node-0 meanwhile" in status.message


def test_a_node_without_the_device_is_not_feasible() -> None:
    maps = Maps()
    maps.cache.store(resources.GPU_NODE_STATUSES).upsert(report("node-0", "pcie-4"))

    assert maps.feasible(mapped("0=node-0:3"))[0] == ["node-0"]
    assert maps.why_not(mapped("0=node-0:4")) == "node(s) didn't have the GPUs of the scheduling map"


@pytest.mark.parametrize("devices", ["GPU-abc", "all", "16", "-1", "0,x", "9" * 5000, "\u0663"])
def test_what_is_no_device_id_is_refused(devices: str) -> None:
    names, message = Maps().feasible(mapped(f"0=node-0:{devices}"))

    assert names == [] and "are no device ids" in message


# Permission


def test_a_map_needs_the_permission_of_its_namespace() -> None:
    maps = Maps()
    maps.allow("min-runtime")

    seen = [maps.feasible(mapped("0=node-0:0")) for _ in range(3)]

    assert seen[0][0] == [] and 'does not list "scheduling-map"' in seen[0][1]
    assert len(maps.notes) == 1, "it is told once"
    maps.allow("scheduling-map")
    assert maps.feasible(mapped("0=node-0:0"))[0] == ["node-0"]


def test_a_pod_that_was_refused_is_tried_when_its_namespace_allows_it() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.allow("")
    cluster.add_pod("app-0", uses="", annotations={custom_resources.SCHEDULING_MAP: "0=node-0:3"})

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: "does not allow it" in cluster.message("app-0"))
            cluster.allow("scheduling-map")
            await cluster.until_bound("app-0", seconds=12)

    cluster.play(story)


def test_no_map_puts_a_pod_beside_one_that_has_its_device_for_itself() -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.add_claim(count=1)
    cluster.add_pod("theirs")

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until_bound("theirs")
            (device,) = (id for _, id in cluster.allocated())
            cluster.add_pod("app-0", uses="", annotations={custom_resources.SCHEDULING_MAP: f"0=node-0:{device}"})
            await cluster.until(lambda: "other pods use" in cluster.message("app-0"))
            cluster.set_phase("theirs", "Succeeded")
            await cluster.until_bound("app-0", seconds=30)

    cluster.play(story)


def test_maps_count_for_the_profiles_that_have_the_plugin_and_for_as_long_as_they_have_it() -> None:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    claims = "plugins: {multiPoint: {enabled: [{name: GpuClaim}]}}"
    maps = "plugins: {multiPoint: {enabled: [{name: GpuClaim}, {name: GpuSchedulingMap}]}}"
    free = "pluginConfig: [{name: GpuSchedulingMap, args: {requirePermission: false}}]"
    bad = "pluginConfig: [{name: GpuSchedulingMap, args: {requirePermission: maybe}}]"
    clock = VirtualClock()

    def profiles(one: str, two: str) -> str:
        return f"{head}- {{schedulerName: one, {one}}}\n- {{schedulerName: two, {two}}}\n"

    scheduler = make_scheduler(profiles(maps, claims), SimulatedClient(InMemoryServer(clock)), clock)
    table = device_table(scheduler.cache)
    pods = [scheduler.cache.record(mapped("0=a:0", gpus=1, scheduler_name=name)) for name in ("one", "two")]

    def seen() -> list[tuple[bool, bool]]:
        known = scheduler.cache.shared(MapProfiles)
        return [(table.wants.of(pod) is None, known.are_free(pod.scheduler_name)) for pod in pods]

    found = [seen()]
    scheduler.use(configuration(profiles(f"{maps}, {free}", claims)))
    found.append(seen())
    with pytest.raises(ConfigError):
        scheduler.use(configuration(profiles(f"{maps}", f"{maps}, {bad}")))
    found.append(seen())
    scheduler.use(configuration(profiles(claims, maps)))
    found.append(seen())

    no, yes, unasked = (False, False), (True, False), (True, True)
    assert found == [[yes, no], [unasked, no], [unasked, no], [no, yes]]
