"""The columns that filter looks at say the same as choosing on each node: one finds a node, the other the devices."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gangline import custom_resources
from gangline.model import Pod
from gangline.testing import make_node, make_pod, run_filter
from gangline_plugins.gpu.claim import GpuClaim
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.named_hardware import devices
from gangline_plugins.gpu.wants import Want

from .gpu_cases import claim, claim_pod, gpu_cluster, report

SHARED: dict[str, Any] = {"exclusivity": "Shared", "fraction": 0.5}
HEALTH = st.dictionaries(st.integers(0, 7), st.just("Unhealthy"), max_size=3)
NODES = st.lists(st.tuples(st.sampled_from(["hgx-h100", "pcie-bridged-8", "pcie-4", "cut"]), HEALTH), max_size=4)
HELD = st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 7)), st.booleans()), max_size=8)
WANTS = st.one_of(
    st.fixed_dictionaries(
        {
            "count": st.integers(1, 8),
            "policy": st.sampled_from(["contiguous", "spread"]),
            "mode": st.sampled_from(["Preferred", "Ignore"]),
        }
    ),
    st.fixed_dictionaries({"count": st.integers(1, 8), "mode": st.just("Required"), "min_gbps": st.just(500)}),
    st.fixed_dictionaries({"count": st.integers(1, 8), **{name: st.just(value) for name, value in SHARED.items()}}),
    st.fixed_dictionaries({"exclusivity": st.just("MIG"), "mig_profile": st.just("1g.10gb"), "count": st.just(2)}),
)


def hardware(kind: str) -> str | list[custom_resources.GpuDevice]:
    """Devices by name; of those that are cut the first two are, the others are whole."""
    if kind != "cut":
        return kind
    found = devices("pcie-4")
    for device in (0, 1):
        instances = [custom_resources.MigDevice(f"MIG-{device}-{n}", "1g.10gb") for n in range(2)]
        found[device] = msgspec.structs.replace(found[device], mig_devices=instances)
    return found


def holder(number: int, node: str, ids: set[int], whole: bool) -> Pod:
    """A pod that has these devices, or half of each."""
    annotations = {custom_resources.ALLOCATED: ",".join(map(str, sorted(ids)))}
    if whole:
        return make_pod(f"old-{number}", len(ids), node=node, annotations=annotations)
    return claim_pod(f"old-{number}", "half", annotations, node=node)


@given(NODES, HELD, WANTS)
def test_a_node_is_feasible_exactly_where_devices_can_be_chosen(nodes: Any, held: Any, wants: Any) -> None:
    reports = [report(f"n{i}", hardware(kind), health) for i, (kind, health) in enumerate(nodes)]
    pods = [holder(n, f"n{at}", ids, whole) for n, (at, ids, whole) in enumerate(held) if at < len(nodes) and ids]
    cache = gpu_cluster(reports, [claim(**wants), claim("half", **SHARED)], pods, [make_node("bare", gpus=8)])
    table, pod = device_table(cache), claim_pod("p")
    want = table.wants.of(cache.record(pod))
    assert isinstance(want, Want)

    verdicts = run_filter(GpuClaim, pod, cache)
    found = {name: table.choose(want, row) for row, name in enumerate(cache.nodes.names)}
    chosen = {name: sorted(allocation.ids) for name, allocation in found.items() if allocation is not None}
    assert {name for name, reasons in verdicts.items() if not reasons} == chosen.keys()
    if wants.get("mode") == "Required":  # its policy is contiguous
        assert all(ids[-1] - ids[0] == len(ids) - 1 == wants["count"] - 1 for ids in chosen.values())
