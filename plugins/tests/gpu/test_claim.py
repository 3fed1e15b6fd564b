"""GpuClaim's life of a claim: reserving, what is written, what wakes a pod; and what NVLinkTopology prefers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from gangline import NotFound, custom_resources, resources
from gangline.model import Pod
from gangline.testing import Cache, FakeHandle, Runtime, make_node, make_pod, make_runtime, run_score
from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.claim import GpuClaim
from gangline_plugins.gpu.decision_metrics import _BUCKETS, DecisionMetrics
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.links import LinkClass
from gangline_plugins.gpu.named_hardware import devices
from gangline_plugins.gpu.nvlink_topology import NVLinkTopology
from gangline_plugins.gpu.wants import Want

from .gpu_cases import claim, claim_pod, gpu_cluster, report


class FakeClaims:
    """The part of an API client that patches claims: keeps the statuses that were written."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.missing = False

    async def patch(self, resource: Any, name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        if self.missing:
            raise NotFound(404, "NotFound", f"{name} is gone")
        assert (resource.plural, where) == ("gpuclaims", {"namespace": "default", "subresource": "status"})
        self.written.append({"name": name, **patch["status"]})
        return claim()


class Story:
    """One profile on one cluster, step by step."""

    def __init__(self, cache: Cache) -> None:
        self.cache, self.claims = cache, FakeClaims()
        self.handle = FakeHandle(cache, client=self.claims)
        self.runtime: Runtime = make_runtime(cache, GpuClaim, NVLinkTopology, handle=self.handle)

    def attempt(self, pod: Pod) -> tuple[Any, Any]:
        """Filter, choose, assume and reserve; the cycle and the record."""
        record = self.cache.record(pod)
        filtered = self.runtime.evaluator.filter(record)
        row = self.runtime.evaluator.choose(filtered)
        self.cache.assume(record, row)
        assert self.runtime.reserve(filtered.cycle, record, record.node_name).is_success
        return filtered.cycle, record

    async def background(self) -> None:
        while self.handle.background.spawned:
            await self.handle.background.spawned.pop(0)()


async def test_a_claim_goes_from_pending_to_reserved_to_bound() -> None:
    story = Story(gpu_cluster([report("a")], [claim(count=2)]))

    story.runtime.evaluator.filter(story.cache.record(claim_pod("p")))
    await story.background()
    cycle, record = story.attempt(claim_pod("p"))
    await story.background()
    await story.runtime.post_bind(cycle, record, "a")
    await story.background()
    place = {"nodeName": "a", "gpuIds": [0, 1], "allocated": "a:0,1"}
    nowhere = {"nodeName": "", "gpuIds": [], "allocated": ""}
    assert story.claims.written == [
        {"name": "claim", "phase": "Pending", **nowhere, "message": ""},
        {"name": "claim", "phase": "Reserved", **place, "message": ""},
        {"name": "claim", "phase": "Bound", **place, "message": ""},
    ]


async def test_a_claim_tells_of_the_devices_that_the_binding_wrote_whatever_became_of_the_table_meanwhile() -> None:
    story = Story(gpu_cluster([report("a")], [claim(count=2)]))

    cycle, record = story.attempt(claim_pod("p"))
    device_table(story.handle.state).assign(record, [4, 5])
    await story.runtime.post_bind(cycle, record, "a")
    await story.background()

    assert cycle.annotations[custom_resources.ALLOCATED] == "0,1"
    assert [(status["phase"], status["gpuIds"]) for status in story.claims.written] == [("Bound", [0, 1])]


async def test_what_is_overtaken_is_never_written() -> None:
    story = Story(gpu_cluster([report("a")], [claim(count=2)]))

    cycle, record = story.attempt(claim_pod("p"))
    await story.runtime.post_bind(cycle, record, "a")
    await story.background()
    assert [status["phase"] for status in story.claims.written] == ["Bound"]


async def test_a_reservation_that_is_given_back_fails_the_claim_and_frees_the_devices() -> None:
    story = Story(gpu_cluster([report("a")], [claim(count=2)]))

    cycle, record = story.attempt(claim_pod("p"))
    story.runtime.unreserve(cycle, record, "a")
    story.cache.forget(record)
    await story.background()
    assert story.claims.written[-1]["phase"] == "Failed"
    assert story.claims.written[-1]["message"] == "the reservation on node a was given back"
    assert device_table(story.cache).columns.busy[0] == 0


async def test_a_claim_that_is_gone_has_no_status() -> None:
    story = Story(gpu_cluster([report("a")], [claim(count=2)]))
    story.claims.missing = True

    story.attempt(claim_pod("p"))
    await story.background()
    assert story.claims.written == []


async def test_a_claim_that_makes_no_sense_fails_with_an_event() -> None:
    story = Story(gpu_cluster([report("a")], [claim(count=17)]))

    filtered = story.runtime.evaluator.filter(story.cache.record(claim_pod("p")))
    story.runtime.reject(story.runtime.evaluator.diagnose(filtered))
    await story.background()
    (event,) = story.handle.fake_recorder.events
    why = 'GpuClaim "default/claim": devices.count is 17; it must be 1 to 16'
    assert (event.kind, event.reason, event.note) == ("Warning", "InvalidGpuClaim", why)
    assert [(s["phase"], s["message"]) for s in story.claims.written] == [("Failed", why)]


def test_pods_that_share_a_claim_get_devices_of_their_own_and_the_binding_says_which() -> None:
    story = Story(gpu_cluster([report("a", "pcie-4")], [claim(count=2)]))

    cycles = [story.attempt(claim_pod(name))[0] for name in "pq"]
    assert [cycle.annotations[custom_resources.ALLOCATED] for cycle in cycles] == ["0,1", "2,3"]
    assert cycles[0].annotations[custom_resources.ALLOCATED_UUIDS].split(",")[1].startswith("GPU-00000001")


def instances(created: str = "") -> Story:
    """A cluster with a claim for two MIG instances, and a device that is cut into three."""
    cut = devices("pcie-4")
    cut[2] = msgspec.structs.replace(
        cut[2], mig_devices=[custom_resources.MigDevice(f"MIG-{n}", "1g.10gb") for n in range(3)]
    )
    wants = claim(count=2, exclusivity="MIG", mig_profile="1g.10gb")
    wants.metadata.creation_timestamp = created
    return Story(gpu_cluster([report("a", cut)], [wants]))


def test_the_binding_of_a_mig_claim_names_its_instances_which_the_webhook_shows_to_cuda() -> None:
    annotations = instances().attempt(claim_pod("p"))[0].annotations

    assert annotations == {custom_resources.ALLOCATED: "2", custom_resources.ALLOCATED_UUIDS: "MIG-0,MIG-1"}


@pytest.mark.parametrize(("created", "warned"), [("2026-01-01T00:00:00Z", False), ("2026-01-01T00:00:02Z", True)])
def test_a_mig_claim_that_came_after_its_pod_is_warned_about(created: str, warned: bool) -> None:
    story, pod = instances(created), claim_pod("p")
    pod.metadata.creation_timestamp = "2026-01-01T00:00:01Z"

    story.attempt(pod)
    assert [event.reason for event in story.handle.fake_recorder.events] == ["GpuClaimCameLate"] * warned


def test_a_plain_pod_where_nothing_is_reported_gets_no_annotation() -> None:
    story = Story(gpu_cluster(nodes=[make_node("a", gpus=8)]))

    assert story.attempt(make_pod("p", 2))[0].annotations == {}


def test_pods_without_gpus_pass_through() -> None:
    story = Story(gpu_cluster([report("a")]))

    filtered = story.runtime.evaluator.filter(story.cache.record(make_pod("p", cpu=1)))
    assert filtered.feasible.all()
    assert story.runtime.evaluator.scores(filtered) == {}


def hint(story: Story, resource: str) -> Any:
    (found,) = [each.hint for each in story.runtime.profile.events["GpuClaim"] or () if each.event.resource == resource]
    return found


def test_a_pod_is_tried_again_when_its_claim_appears_or_changes() -> None:
    story = Story(gpu_cluster())
    pod = story.cache.record(claim_pod("p"))
    wakes = hint(story, "gpuclaims")

    written = claim()
    written.status.phase = "Pending"
    assert wakes(pod, None, claim())
    assert wakes(pod, claim(), claim(count=2))
    assert not wakes(pod, claim(), written)
    assert not wakes(pod, None, claim("other"))


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        (report("a", heartbeat="2026-01-01T00:00:00Z"), report("a", heartbeat="2026-01-01T00:00:30Z"), False),
        (report("a", heartbeat="2026-01-01T00:00:00Z"), report("a", heartbeat="2026-01-01T00:09:00Z"), True),
        (report("a", health={1: "Unhealthy"}), report("a"), True),
        (None, report("a"), True),
    ],
)
def test_a_heartbeat_alone_wakes_nobody(old: Any, new: Any, wakes: bool) -> None:
    story = Story(gpu_cluster())

    assert hint(story, "gpunodestatuses")(story.cache.record(claim_pod("p")), old, new) is wakes


def test_a_pod_that_had_devices_wakes_those_that_wait_for_some() -> None:
    story = Story(gpu_cluster())
    waiting = story.cache.record(claim_pod("p"))

    assert hint(story, "pods")(waiting, story.cache.record(make_pod("q", 1, node="a")), None)
    assert not hint(story, "pods")(waiting, story.cache.record(make_pod("q", cpu=1, node="a")), None)


def test_nodes_with_ports_to_spare_preferred_adapters_and_cufile_score_higher() -> None:
    rich = custom_resources.Fabric(hcas=[custom_resources.Hca("mlx5_0", ports=5)], cu_file_enabled=True)
    poor = custom_resources.Fabric(hcas=[custom_resources.Hca("mlx5_9", ports=1)])
    wants = claim(
        network=custom_resources.ClaimNetwork(True, 1, ["mlx5_0", "mlx5_1"]),
        storage=custom_resources.ClaimStorage("Preferred"),
    )
    cache = gpu_cluster([report("rich", fabric=rich), report("poor", fabric=poor)], [wants])

    assert run_score(GpuClaim, claim_pod("p"), cache) == {"rich": pytest.approx(200 / 3), "poor": 0.0}


def preferred(cache: Cache, pod: Pod) -> list[str]:
    """Nodes from the best to the worst by NVLinkTopology alone."""
    runtime = make_runtime(cache, GpuClaim, NVLinkTopology)
    filtered = runtime.evaluator.filter(cache.record(pod))
    scores = runtime.evaluator.scores(filtered)["NVLinkTopology"]
    names = [name for row, name in enumerate(cache.nodes.names) if filtered.feasible[row]]
    return [name for _, name in sorted(zip((-scores).tolist(), names, strict=True))]


def holding(node: str, *ids: int) -> Pod:
    return make_pod(
        f"on-{node}", len(ids), node=node, annotations={custom_resources.ALLOCATED: ",".join(map(str, ids))}
    )


def test_the_fastest_free_set_is_preferred() -> None:
    cache = gpu_cluster(
        [report("pcie", "pcie-bridged-4"), report("h100"), report("a100", "dgx-a100")],
        [claim(count=2)],
        [holding("pcie", 0, 2), holding("h100", *range(6)), holding("a100", *range(6))],
    )

    assert preferred(cache, claim_pod("p")) == ["h100", "a100", "pcie"]


def test_a_node_where_no_link_is_cut_is_preferred() -> None:
    cache = gpu_cluster(
        [report("empty"), report("begun"), report("pair")],
        [claim(count=2)],
        [holding("begun", 0, 1, 2, 3), holding("pair", *range(6))],
    )

    assert preferred(cache, claim_pod("p")) == ["pair", "begun", "empty"]


def test_a_single_device_is_taken_where_its_partner_is_gone() -> None:
    cache = gpu_cluster(
        [report("whole", "pcie-bridged-4"), report("broken", "pcie-bridged-4")], [claim()], [holding("broken", 0)]
    )

    assert preferred(cache, claim_pod("p")) == ["broken", "whole"]


def test_shared_claims_go_where_a_device_is_shared_already() -> None:
    part = claim(exclusivity="Shared", fraction=0.5)
    cache = gpu_cluster([report("empty"), report("shared")], [part], [claim_pod("q", node="shared")])

    assert preferred(cache, claim_pod("p")) == ["shared", "empty"]


# What decisions give


def measured(story: Story, name: str, **labels: str) -> float:
    return story.handle.fake_metrics.registry.get_sample_value(name, labels) or 0.0


BANDWIDTH = "gangline_allocation_bandwidth_bytes_per_second"


def test_the_bandwidth_that_pods_are_given_is_measured() -> None:
    story = Story(gpu_cluster([report("a", "pcie-bridged-4")], [claim(count=2)]))

    story.attempt(claim_pod("p"))
    story.attempt(make_pod("one", gpus=1))

    assert measured(story, f"{BANDWIDTH}_count") == 1
    assert measured(story, f"{BANDWIDTH}_sum") == 600e9


@pytest.mark.parametrize("gbps", [10.0, 16.0, 600.0, 9000.0])
def test_a_bandwidth_that_many_pods_are_given_counts_as_often_as_there_are_pods(gbps: float) -> None:
    one, other = FakeHandle(gpu_cluster([])), FakeHandle(gpu_cluster([]))
    links = LinkClass(0, 3, np.full((16, 16), gbps), np.zeros((16, 16)), (0,) * 16)

    DecisionMetrics(one).count_all([Want(2)] * 3, [(Allocation(0, (0, 1), ("a", "b")), links)] * 3)
    DecisionMetrics(other)
    for _ in range(3):
        other.distribution(BANDWIDTH, "", _BUCKETS).observe(gbps * 1e9)

    found = [
        [(each.labels, each.value) for each in family.samples]
        for handle in (one, other)
        for family in handle.fake_metrics.registry.collect()
        if family.name == BANDWIDTH
    ]
    assert len(found) == 2 and found[0] == found[1] and ({}, 3.0) in found[0]


@pytest.mark.parametrize(
    ("wish", "ill", "mode", "result"),
    [
        ({"mode": "Preferred", "min_gbps": 600}, "", "Preferred", "met"),
        ({"mode": "Preferred", "min_gbps": 900}, "", "Preferred", "fallen_back"),
        ({"mode": "Preferred"}, "12", "Preferred", "fallen_back"),
        ({"mode": "Required", "min_gbps": 600}, "", "Required", "met"),
        ({"policy": "spread"}, "", "Preferred", "met"),
        ({"policy": "spread"}, "23", "Preferred", "fallen_back"),
    ],
)
def test_wishes_are_counted_as_met_or_fallen_back(wish: dict[str, Any], ill: str, mode: str, result: str) -> None:
    """Four GPUs in bridged pairs, of which some cannot be given out."""
    health = {int(id): "Unhealthy" for id in ill}
    story = Story(gpu_cluster([report("a", "pcie-bridged-4", health)], [claim(count=2, **wish)]))

    story.attempt(claim_pod("p"))

    assert measured(story, "gangline_topology_wishes_total", mode=mode, result=result) == 1
    other = "met" if result == "fallen_back" else "fallen_back"
    assert measured(story, "gangline_topology_wishes_total", mode=mode, result=other) == 0


def test_who_wishes_nothing_is_not_counted() -> None:
    story = Story(gpu_cluster([report("a")], [claim(count=2, mode="Ignore")]))

    story.attempt(claim_pod("p"))
    story.attempt(make_pod("plain", gpus=2))

    families = {family.name: family for family in story.handle.fake_metrics.registry.collect()}
    assert not families["gangline_topology_wishes"].samples
    assert measured(story, f"{BANDWIDTH}_count") == 2


def test_a_claim_that_is_edited_again_and_again_leaves_little_behind() -> None:
    cache = gpu_cluster()
    wants = device_table(cache).wants
    pod = cache.record(claim_pod("p", "c"))

    for number in range(5_000):
        cache.store(resources.GPU_CLAIMS).upsert(claim("c", selector={"edit": str(number)}))
        assert isinstance(wants.of(pod), Want)

    assert len(wants._same) < 2_500
