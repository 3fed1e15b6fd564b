"""A confirmed binding leaves the device table as if the pod had been removed and added again."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gangline.model import Pod
from gangline.testing import Cache, make_pod
from gangline_plugins.gpu.devices import DeviceTable, device_table

from .gpu_cases import claim, claim_pod, gpu_cluster, report

CLAIMS = (
    claim("one", count=1),
    claim("two", count=2),
    claim("third", count=1, exclusivity="Shared", fraction=0.34),
    claim("gib", count=2, exclusivity="Shared", memory_gi_b=30),
)


class TableToldOfBoth(DeviceTable):
    """Is told of each newer record of a pod."""

    counts_alike = None  # type: ignore[assignment]  # so the cache does not ask


def make(number: int, kind: str, node: str, annotations: dict[str, str], labels: dict[str, str]) -> Pod:
    if kind == "plain":
        return make_pod(f"p{number}", 1, node=node, annotations=annotations, labels=labels)
    pod = claim_pod(f"p{number}", kind, node=node)
    annotations = {**(pod.metadata.annotations or {}), **annotations}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations, labels=labels)
    return msgspec.structs.replace(pod, metadata=metadata)


def counted(table: DeviceTable, cache: Cache) -> list[Any]:
    nodes = [table.node_at(row) for row in range(cache.nodes.size)]
    has = [(a, a.is_firm) if (a := table.allocation(uid)) else None for uid in cache.pods]
    return [has, *((list(n.pods.items()), n.refs, n.whole, n.milli, n.memory, n.busy) for n in nodes)]


stories = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", "third", "gib", "plain", "plain"]),
        st.sampled_from(["a", "a", "b"]),
        st.sampled_from(["bound", "late", "late", "stranger", "lost"]),
        st.integers(0, 3),
    ),
    max_size=14,
)


@given(stories)
def test_a_confirmed_pod_counts_as_one_that_is_added_again(story: Any) -> None:
    cache = gpu_cluster([report("a", "pcie-bridged-4"), report("b", "gb200-tray")], CLAIMS)
    table, other = device_table(cache), cache.tracker(TableToldOfBoth, cache)
    known: dict[int, tuple[str, str, dict[str, str]]] = {}
    late: list[int] = []

    def confirm(number: int) -> None:
        for labels in ({}, {"zone": "z"}):
            cache.upsert_pod(cache.record(make(number, *known[number], labels)))
            assert counted(table, cache) == counted(other, cache)

    for number, (kind, node, fate, leaving) in enumerate(story):
        written: dict[str, str] = {}
        if fate != "stranger":
            record = cache.record(make(number, kind, "", {}, {}))
            cache.assume(record, cache.nodes.row_of(node) or 0)
            reserved = [each.reserve(record.uid) for each in (table, other)]
            assert reserved[0] == reserved[1]
            written = reserved[0].annotations if reserved[0] is not None and fate != "lost" else {}
        known[number] = kind, node, written
        if fate == "late":
            late.append(number)
        else:
            confirm(number)
        for first in list(known)[:1] if leaving == 0 else ():
            cache.remove_pod(f"pod-default-p{first}")
            del known[first]
            assert counted(table, cache) == counted(other, cache)
    for number in late:
        if number in known:
            confirm(number)


def test_a_pod_with_a_guessed_device_makes_way_for_one_that_is_confirmed_there() -> None:
    cache = gpu_cluster([report("a", "pcie-bridged-4")])
    table = device_table(cache)
    for number in range(4):
        cache.assume(cache.record(make(number, "plain", "", {}, {})), 0)
        table.reserve(f"pod-default-p{number}")
    cache.upsert_pod(cache.record(make(4, "plain", "a", {}, {})))  # nothing is free, and it runs
    guess = table.allocation("pod-default-p4")
    there = [n for n in range(4) if (a := table.allocation(f"pod-default-p{n}")) and guess and a.ids == guess.ids]
    has = table.allocation(f"pod-default-p{there[0]}")
    cache.remove_pod(f"pod-default-p{(there[0] + 1) % 4}")
    assert has is not None and table.allocation("pod-default-p4") == guess

    cache.upsert_pod(cache.record(make(there[0], "plain", "a", has.annotations, {})))

    moved = table.allocation("pod-default-p4")
    assert moved is not None and guess is not None and moved.ids != guess.ids
    assert max(table.node_at(0).refs) == 1


def test_a_pod_that_is_confirmed_on_its_devices_changes_no_verdict() -> None:
    cache = gpu_cluster([report("a", "pcie-bridged-4")])
    table = device_table(cache)
    cache.assume(record := cache.record(make(0, "plain", "", {}, {})), 0)
    reserved = table.reserve(record.uid)
    assert reserved is not None
    placed = cache.nodes.placed.position

    cache.upsert_pod(newer := cache.record(make(0, "plain", "a", reserved.annotations, {})))

    assert cache.nodes.placed.position == placed
    assert table.node_at(0).pods == {newer.uid: newer} and table.allocation(newer.uid) == reserved
