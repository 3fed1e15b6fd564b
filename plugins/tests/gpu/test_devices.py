"""The device table: in step with nodes, reports and pods, whatever comes first."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangline import PluginError, PodInfo, custom_resources, resources
from gangline.model import Pod
from gangline.testing import Cache, cluster, make_node, make_pod
from gangline_plugins.gpu.devices import DeviceTable, device_table
from gangline_plugins.gpu.named_hardware import devices
from gangline_plugins.gpu.node_devices import WHOLE
from gangline_plugins.gpu.wants import MapProfiles

from .gpu_cases import claim, claim_pod, gpu_cluster, report

CLAIMS = (
    claim("one", count=1),
    claim("two", count=2),
    claim("third", count=1, exclusivity="Shared", fraction=0.34),
    claim("gib", count=2, exclusivity="Shared", memory_gi_b=30),
)


def facts(cache: Cache) -> dict[str, Any]:
    """Everything that the table says, by node."""
    table = device_table(cache)
    columns = {
        name: column[: cache.nodes.size].tolist()
        for name, column in vars(table.columns).items()
        if not isinstance(column, dict)
    }
    allocations = {uid: table.allocation(uid) for uid in cache.pods}
    return {**columns, **{uid: (a.ids, a.milli, a.memory_mib) for uid, a in allocations.items() if a}}


def fleet() -> Cache:
    return gpu_cluster([report("a", "pcie-bridged-4"), report("b", "gb200-tray")], CLAIMS)


def ids(cache: Cache, pod: str) -> tuple[int, ...]:
    allocation = device_table(cache).allocation(f"pod-default-{pod}")
    assert allocation is not None
    return allocation.ids


def bound(cache: Cache, pod: Pod) -> Pod:
    """A pod as the API server has it once it is bound as the table says."""
    allocation = device_table(cache).reserve(pod.metadata.uid)
    metadata = pod.metadata
    if allocation is not None:
        metadata = msgspec.structs.replace(
            metadata, annotations={**(metadata.annotations or {}), **allocation.annotations}
        )
    return msgspec.structs.replace(pod, metadata=metadata)


placements = st.lists(
    st.tuples(st.sampled_from(["one", "two", "third", "gib", "plain"]), st.sampled_from(["a", "b"]), st.booleans()),
    max_size=12,
)


def make(number: int, kind: str, node: str) -> Pod:
    return make_pod(f"p{number}", 1, node=node) if kind == "plain" else claim_pod(f"p{number}", kind, node=node)


def mixed() -> Cache:
    """The fleet, and nodes with devices that are ill, unknown, cut in instances, shared, avoided, or not reported."""
    time_slicing = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    reports = [
        report("a", "pcie-bridged-4"),
        report("b", "gb200-tray"),
        report("ill", health={1: "Unhealthy", 2: "Unknown"}),
        report("cut", cut_in_instances()),
        report("shared", "pcie-4"),
        report("avoided", "pcie-bridged-4"),
    ]
    nodes = [make_node("shared", gpus=16, labels=time_slicing), make_node("silent", gpus=8)]
    cache = gpu_cluster(reports, CLAIMS, nodes=nodes)
    profile = cache.record(make_pod("p")).scheduler_name
    device_table(cache).avoid(profile, cache.nodes.row_of("avoided") or 0, [0, 2])
    return cache


def counted(cache: Cache) -> list[Any]:
    """What each node counts."""
    nodes = [device_table(cache).node_at(row) for row in range(cache.nodes.size)]
    return [(sorted(node.pods), node.refs, node.whole, node.milli, node.memory, node.busy) for node in nodes]


@given(
    placements,
    st.sampled_from(["one", "two", "third", "gib", "plain"]),
    st.lists(st.integers(0, 6), max_size=10),
    st.sets(st.integers(0, 9)),
)
@example([("third", "a", False)], "third", [0, 0, 0, 2, 2], {4})
def test_like_pods_that_are_placed_at_once_get_the_devices_that_they_get_one_by_one(
    before: Any, kind: str, rows: list[int], tried: set[int]
) -> None:
    found = []
    for at_once in (True, False):
        cache = mixed()
        table = device_table(cache)
        for number, (each, node, _) in enumerate(before):
            cache.upsert_pod(cache.record(make(number, each, node)))
        pods = [cache.record(make(100 + n, kind, "")) for n in range(len(rows))]
        with cache.transaction() as tx:  # some were there before
            for number, (pod, row) in enumerate(zip(pods, rows, strict=True)):
                if number in tried:
                    tx.place(pod, row)
                    table.reserve(pod.uid)
        then = facts(cache), copy.deepcopy(counted(cache)), [table.node_at(row).state for row in range(7)]
        with cache.transaction() as tx:
            if at_once:
                tx.place_all(pods, rows)
            else:
                for pod, row in zip(pods, rows, strict=True):
                    tx.place(pod, row)
            allocations = [table.allocation(pod.uid) for pod in pods]
            found.append((facts(cache), allocations, copy.deepcopy(counted(cache))))

        assert (facts(cache), counted(cache), [table.node_at(row).state for row in range(7)]) == then

    assert found[0] == found[1]


class Unreadable(dict[str, str]):
    """Annotations that cannot be looked at."""

    def __contains__(self, key: object) -> bool:
        raise ZeroDivisionError

    def __bool__(self) -> bool:
        return True


def test_if_the_devices_of_one_of_many_pods_cannot_be_counted_none_has_any() -> None:
    cache = fleet()
    table = device_table(cache)
    pods = [cache.record(make(number, "plain", "")) for number in range(3)]
    pods[2] = msgspec.structs.replace(pods[2], annotations=Unreadable())

    with cache.transaction() as tx, pytest.raises(PluginError, match="ZeroDivisionError"):
        tx.place_all(pods, [0, 1, 0])

    assert not any(table.allocation(pod.uid) for pod in pods) and not any(table.columns.busy)
    assert not cache.trackers.broken and [pod.row for pod in pods] == [-1, -1, -1]


@given(placements, placements, st.randoms(use_true_random=False))
def test_a_transaction_that_is_undone_leaves_the_same_devices(before: Any, inside: Any, chance: Any) -> None:
    cache = fleet()
    table = device_table(cache)
    for number, (kind, node, _) in enumerate(before):
        cache.upsert_pod(cache.record(make(number, kind, node)))
    expected = facts(cache)

    with cache.transaction() as tx:
        hypothetical: list[PodInfo] = []
        for number, (kind, node, off) in enumerate(inside, start=100):
            placed = [*cache.pods.values(), *hypothetical]
            if off and (there := [pod for pod in placed if pod.row >= 0]):
                tx.unplace(chance.choice(there))
            record = cache.record(make(number, kind, ""))
            tx.place(record, cache.nodes.row_of(node) or 0)
            hypothetical.append(record)
    assert facts(cache) == expected
    assert not any(table.allocation(pod.uid) for pod in hypothetical)


@given(placements)
def test_a_restart_finds_every_pod_on_its_devices(story: Any) -> None:
    cache = fleet()
    device_table(cache)
    pods: dict[str, Pod] = {}
    for number, (kind, node, leaves) in enumerate(story):
        pod = make(number, kind, node)
        want = device_table(cache).wants.of(cache.record(pod))
        row = cache.nodes.row_of(node)
        assert row is not None
        if device_table(cache).choose(want, row) is None:  # type: ignore[arg-type]  # every pod here wants something
            continue
        cache.upsert_pod(cache.record(pod))
        pods[pod.metadata.uid] = bound(cache, pod)
        if leaves:
            uid = sorted(pods)[number % len(pods)]
            cache.remove_pod(uid)
            del pods[uid]

    again = fleet()
    device_table(again)
    for pod in reversed(pods.values()):
        again.upsert_pod(again.record(pod))
    assert facts(again) == facts(cache)


@given(placements)
def test_what_fits_never_exceeds_a_device(story: Any) -> None:
    cache = fleet()
    table = device_table(cache)
    for number, (kind, node, _) in enumerate(story):
        record = cache.record(make(number, kind, ""))
        row = cache.nodes.row_of(node)
        assert row is not None
        if table.choose(table.wants.of(record), row) is not None:  # type: ignore[arg-type]  # every pod wants something
            cache.assume(record, row)

    milli, memory = np.zeros((2, 16)), np.zeros((2, 16))
    exclusive, users = np.zeros((2, 16)), np.zeros((2, 16))
    for uid in cache.pods:
        allocation = table.allocation(uid)
        assert allocation is not None
        at = (allocation.row, list(allocation.ids))
        users[at] += 1
        exclusive[at] += allocation.exclusivity == "Exclusive"
        milli[at] += allocation.milli or 0
        memory[at] += allocation.memory_mib or 0
    assert (milli <= WHOLE).all()
    assert (memory <= table.columns.memory_total[:2]).all()
    assert (users[exclusive > 0] == 1).all()


@pytest.mark.parametrize("order", ["report first", "pod first", "node last"])
def test_the_order_of_events_does_not_matter(order: str) -> None:
    cache = Cache()
    device_table(cache)
    pod = cache.record(make_pod("p", 2, node="a", annotations={custom_resources.ALLOCATED: "2,3"}))
    events: dict[str, Callable[[], object]] = {
        "report": lambda: cache.store(resources.GPU_NODE_STATUSES).upsert(report("a")),
        "node": lambda: cache.upsert_node(make_node("a", gpus=8)),
        "pod": lambda: cache.upsert_pod(pod),
    }
    orders = {"report first": ["report", "node", "pod"], "pod first": ["node", "pod", "report"]}
    for event in orders.get(order, ["pod", "report", "node"]):
        events[event]()

    table = device_table(cache)
    assert table.columns.busy[0] == 0b1100
    assert table.columns.present[0] == 0xFF
    assert table.uuids(0, [2])[0].startswith("GPU-00000002")


def test_a_node_that_takes_the_row_of_another_starts_empty() -> None:
    cache = gpu_cluster([report("a")], pods=[make_pod("p", 2, node="a")])
    table = device_table(cache)

    cache.remove_node("a")
    cache.upsert_node(make_node("b"))
    assert (table.columns.known[0], table.columns.busy[0], table.columns.present[0]) == (False, 0, 0)
    cache.upsert_node(make_node("a", gpus=8))
    assert table.columns.busy[1] == 0b11


def test_both_ways_of_writing_an_allocation_are_read() -> None:
    cache = gpu_cluster(
        [report("a")],
        pods=[
            make_pod("p", 2, node="a", annotations={custom_resources.ALLOCATED: "1, 0"}),
            make_pod("q", 2, node="a", annotations={custom_resources.ALLOCATED: "a:6,7"}),
        ],
    )
    device_table(cache)

    assert (ids(cache, "p"), ids(cache, "q")) == ((0, 1), (6, 7))


def test_an_allocation_on_a_pod_without_a_node_is_made_up() -> None:
    cache = gpu_cluster([report("a")])
    device_table(cache)

    forged = cache.record(
        make_pod("p", 1, annotations={custom_resources.ALLOCATED: "7", custom_resources.ALLOCATED_UUIDS: "x"})
    )
    cache.assume(forged, 0)
    assert ids(cache, "p") == (0,)


def test_a_pod_that_another_scheduler_bound_first_has_the_devices_that_it_got_there() -> None:
    cache = gpu_cluster([report("a")])
    device_table(cache)
    cache.assume(cache.record(make_pod("p", 1)), 0)
    assert ids(cache, "p") == (0,)

    cache.upsert_pod(cache.record(make_pod("p", 1, node="a", annotations={custom_resources.ALLOCATED: "5"})))

    assert ids(cache, "p") == (5,)
    assert int(device_table(cache).columns.busy[0]) == 0b100000


def test_a_device_that_was_given_twice_is_free_when_both_have_left() -> None:
    pods = [make_pod(name, 1, node="a", annotations={custom_resources.ALLOCATED: "3,99"}) for name in ("p", "q")]
    cache = gpu_cluster([report("a")], pods=pods)
    table = device_table(cache)

    busy = [int(table.columns.busy[0])]
    for name in ("p", "q"):
        cache.remove_pod(f"pod-default-{name}")
        busy.append(int(table.columns.busy[0]))
    assert busy == [0b1000, 0b1000, 0]


def test_a_pod_whose_devices_were_guessed_makes_way_for_one_that_has_them() -> None:
    cache = gpu_cluster([report("a")], pods=[make_pod("guessed", 2, node="a")])
    table = device_table(cache)
    assert ids(cache, "guessed") == (0, 1)

    cache.upsert_pod(cache.record(make_pod("known", 1, node="a", annotations={custom_resources.ALLOCATED: "0"})))
    assert (ids(cache, "known"), ids(cache, "guessed")) == ((0,), (1, 2))
    assert table.holders(0) == {0: ["pod-default-known"], 1: ["pod-default-guessed"], 2: ["pod-default-guessed"]}


def test_a_pod_that_runs_although_nothing_is_free_counts_on_the_least_used_devices() -> None:
    pods = [make_pod("all", 4, node="a"), make_pod("more", 1, node="a")]
    cache = gpu_cluster([report("a", "pcie-4")], pods=pods)
    device_table(cache)

    assert ids(cache, "more") == (0,)


def test_shared_claims_fill_one_device_before_the_next() -> None:
    quarter = claim(count=1, exclusivity="Shared", fraction=0.25)
    pods = [claim_pod(f"p{n}", node="a") for n in range(5)]
    cache = gpu_cluster([report("a", "pcie-4")], [quarter], pods)
    table = device_table(cache)

    assert [ids(cache, f"p{n}") for n in range(5)] == [(0,)] * 4 + [(1,)]
    assert table.columns.milli[0, :3].tolist() == [0, 750, WHOLE]
    assert table.columns.memory[0, :2].tolist() == [0, 48 * 1024 * 3 // 4]


def test_fractions_and_memory_share_one_capacity() -> None:
    claims = [
        claim("half", count=1, exclusivity="Shared", fraction=0.5),
        claim("gib", count=1, exclusivity="Shared", memory_gi_b=24),
        claim("more", count=1, exclusivity="Shared", memory_gi_b=25),
    ]
    pods = [claim_pod("p", "half", node="a"), claim_pod("q", "more", node="a"), claim_pod("r", "gib", node="a")]
    cache = gpu_cluster([report("a", "pcie-4")], claims, pods)
    device_table(cache)

    assert [ids(cache, name) for name in "pqr"] == [(0,), (1,), (0,)]


def cut_in_instances() -> list[custom_resources.GpuDevice]:
    """Four devices, the second one cut into two small instances and a big one."""
    hardware = devices("pcie-4")
    cut = [custom_resources.MigDevice(f"MIG-{n}", "1g.10gb") for n in range(2)] + [
        custom_resources.MigDevice("MIG-big", "3g.40gb")
    ]
    hardware[1] = msgspec.structs.replace(hardware[1], mig_devices=cut)
    return hardware


SMALL = claim(count=1, exclusivity="MIG", mig_profile="1g.10gb")


def test_mig_claims_take_instances_of_the_profile() -> None:
    cache = gpu_cluster([report("a", cut_in_instances())], [SMALL], [claim_pod("p", node="a")])
    table = device_table(cache)

    first = table.allocation("pod-default-p")
    assert first is not None
    assert (first.ids, first.uuids) == ((1,), ("MIG-0",))
    assert [int(column[0]) for column in table.columns.profile("1g.10gb")] == [2, 1]
    plain = table.wants.of(cache.record(make_pod("q", 4)))
    assert table.choose(plain, 0) is None  # type: ignore[arg-type]  # a device that is cut up is not had whole


@pytest.mark.parametrize("now", [[SMALL], [], [claim(count=1)]], ids=["kept", "deleted", "changed"])
def test_a_pod_keeps_its_instance_after_a_restart_whatever_became_of_its_claim(
    now: list[custom_resources.GpuClaim],
) -> None:
    mine = claim_pod(
        "p", annotations={custom_resources.ALLOCATED: "1", custom_resources.ALLOCATED_UUIDS: "MIG-1"}, node="a"
    )
    other = claim("other", count=1, exclusivity="MIG", mig_profile="1g.10gb")
    cache = gpu_cluster([report("a", cut_in_instances())], [*now, other], [mine])
    table = device_table(cache)

    want = table.wants.of(cache.record(claim_pod("q", "other")))
    left = table.choose(want, 0)  # type: ignore[arg-type]  # the claim makes sense
    assert left is not None
    assert left.uuids == ("MIG-0",)
    assert table.columns.whole[0] == 0


def test_a_pod_with_an_instance_is_not_moved_to_other_devices() -> None:
    cache = gpu_cluster([report("a", cut_in_instances())], [SMALL], [claim_pod("p", node="a")])
    table = device_table(cache)

    assert table.move(cache.pods["pod-default-p"], [0]) is None
    assert ids(cache, "p") == (1,)


def test_replicas_are_spread_over_the_devices() -> None:
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    node = make_node("a", gpus=16, labels=labels)
    cache = gpu_cluster([report("a", "pcie-4")], nodes=[node], pods=[make_pod("p", 5, node="a")])
    table = device_table(cache)

    allocation = table.allocation("pod-default-p")
    assert allocation is not None
    assert (allocation.ids, allocation.milli) == ((0, 1, 2, 3), (500, 250, 250, 250))


def test_a_pod_keeps_its_share_of_each_device_when_its_binding_is_confirmed() -> None:
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    node = make_node("a", gpus=8, labels=labels)
    cache = gpu_cluster([report("a", devices("hgx-h100")[:2])], nodes=[node], pods=[make_pod("p", 1, node="a")])
    table = device_table(cache)
    cache.assume(cache.record(make_pod("q", 3)), 0)
    assumed = table.reserve("pod-default-q")
    assert assumed is not None and assumed.milli == (250, 500)

    cache.upsert_pod(cache.record(make_pod("q", 3, node="a", annotations=assumed.annotations)))

    assert table.allocation("pod-default-q") == assumed


def test_a_pod_whose_claim_is_gone_keeps_its_share_whatever_is_written_on_it() -> None:
    shared = claim("third", count=1, exclusivity="Shared", fraction=0.34)
    cache = gpu_cluster(
        [report("a")], [shared], pods=[claim_pod("p", "third", node="a", annotations={custom_resources.ALLOCATED: "0"})]
    )
    table = device_table(cache)
    cache.store(resources.GPU_CLAIMS).remove("default", "third")

    cache.upsert_pod(
        cache.record(claim_pod("p", "third", node="a", annotations={custom_resources.ALLOCATED: "0", "note": "new"}))
    )

    assert int(table.columns.milli[0, 0]) == 660


def test_a_transaction_that_is_undone_leaves_a_pod_its_devices_though_its_claim_is_gone() -> None:
    cache = gpu_cluster([report("a")], [claim("two", count=2)])
    table = device_table(cache)
    record = cache.record(claim_pod("p", "two"))
    cache.assume(record, 0)
    cache.store(resources.GPU_CLAIMS).remove("default", "two")

    with cache.transaction() as tx:
        tx.unplace(record)

    assert ids(cache, "p") == (0, 1) and int(table.columns.busy[0]) == 0b11


def test_a_scheduling_map_may_put_two_pods_on_one_device_and_nothing_else_goes_there() -> None:
    cache = gpu_cluster([report("a", "pcie-4")])
    table = device_table(cache)
    cache.shared(MapProfiles).add("default-scheduler", True, cache)
    pods = [cache.record(make_pod(name, annotations={"gpu-scheduling-map": "0=a:3"})) for name in "pq"]
    for pod in pods:
        cache.assume(pod, 0)
        table.assign(pod, [3])

    assert table.holders(0) == {3: ["pod-default-p", "pod-default-q"]}
    assert table.columns.whole[0] == 0b1000
    cache.forget(pods[0])
    assert table.columns.busy[0] == 0b1000


def test_a_heartbeat_changes_no_row() -> None:
    cache = gpu_cluster([report("a", heartbeat="2026-01-01T00:00:00Z")])
    table = device_table(cache)
    position = cache.nodes.changes.position

    cache.store(resources.GPU_NODE_STATUSES).upsert(report("a", heartbeat="2026-01-01T00:00:30Z"))
    assert cache.nodes.changes.position == position
    assert table.columns.heartbeat[0] == 1767225630.0


def test_the_pods_that_an_agent_sees_on_devices_change_no_row() -> None:
    cache = gpu_cluster([report("a")])
    table, position = device_table(cache), cache.nodes.changes.position
    seen = [msgspec.structs.replace(device, in_use_by=["somebody"]) for device in devices("hgx-h100")]

    cache.store(resources.GPU_NODE_STATUSES).upsert(report("a", seen))
    assert cache.nodes.changes.position == position
    assert table.columns.busy[0] == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([0, 0], "status.devices[1].id is 0, as that of an earlier device"),
        ([0, 16], "status.devices[1].id is 16; it must be 0 to 15"),
    ],
)
def test_a_report_that_contradicts_itself_is_not_used_and_is_logged_once(
    given: list[int], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    hardware = [msgspec.structs.replace(devices("pcie-4")[0], id=id) for id in given]
    cache = gpu_cluster([report("a", hardware)])

    table = device_table(cache)
    cache.store(resources.GPU_NODE_STATUSES).upsert(report("a", hardware, heartbeat="2026-01-01T00:00:30Z"))
    assert table.problem(0) == f"GpuNodeStatus a: {why}"
    assert caplog.messages == [f"GpuNodeStatus a: {why}; pods with claims do not go to the node"]
    assert not table.columns.known[0]


def test_a_report_for_another_node_is_not_used() -> None:
    forged = report("a")
    forged.spec.node_name = "b"

    assert device_table(gpu_cluster([forged])).problem(0) == "GpuNodeStatus a: spec.nodeName is b"


def test_a_report_that_goes_leaves_pods_where_they_are() -> None:
    cache = gpu_cluster(
        [report("a")], pods=[make_pod("p", 2, node="a", annotations={custom_resources.ALLOCATED: "4,5"})]
    )
    table = device_table(cache)

    cache.store(resources.GPU_NODE_STATUSES).remove("", "a")
    assert not table.columns.known[0]
    cache.store(resources.GPU_NODE_STATUSES).upsert(report("a"))
    assert table.columns.busy[0] == 0b110000


def test_the_table_is_one_for_all() -> None:
    cache = cluster()

    assert device_table(cache) is device_table(cache)
    assert isinstance(device_table(cache), DeviceTable)


@given(placements, placements, st.randoms(use_true_random=False))
def test_pods_that_are_taken_off_and_put_back_on_trial_keep_what_was_reserved_for_them(
    before: Any, inside: Any, chance: Any
) -> None:
    cache = fleet()
    table = device_table(cache)
    for number, (kind, node, _) in enumerate(before):
        record = cache.record(make(number, kind, ""))
        cache.assume(record, cache.nodes.row_of(node) or 0)
        if table.reserve(record.uid) is None:  # as the scheduler does where there is nothing left
            cache.forget(record)
    expected = facts(cache)

    for _ in range(2):
        with cache.transaction() as tx:
            off: list[tuple[PodInfo, int]] = []
            for number, (kind, node, moves) in enumerate(inside, start=100):
                if moves and (there := [pod for pod in cache.pods.values() if pod.row >= 0]):
                    pod = chance.choice(there)
                    off.append((pod, pod.row))
                    tx.unplace(pod)
                tx.place(cache.record(make(number, kind, "")), cache.nodes.row_of(node) or 0)
                if off and chance.random() < 0.5:
                    tx.place(*off.pop(chance.randrange(len(off))))
        assert facts(cache) == expected
    for pod in cache.pods.values():
        allocation = table.allocation(pod.uid)
        assert allocation is None or allocation.is_firm
