"""Nodes that are judged alone or with a few others, by plain numbers, get the verdicts that arrays give them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import resources, rfc3339
from gangline.model import Node
from gangline.testing import make_node
from gangline_plugins.gpu.choosing import Rule
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.feasibility import AWAITED, DeviceLimits, Feasibility
from gangline_plugins.gpu.wants import FabricWant, Want

from .gpu_cases import claim, gpu_cluster, report
from .test_feasibility import HELD, NODES, SHARED, hardware, holder

NOW = 1000.0
LABELS: list[dict[str, str]] = [
    {"nvidia.com/gpu.replicas": "4"},
    {"nvidia.com/gpu.sharing-strategy": "mps"},
    {"nvidia.com/mig.strategy": "single"},
    {"selected": "yes"},
]
KINDS = st.lists(
    st.tuples(
        st.sampled_from(["reports", "reports", "reported long ago", "has lost its report", "never reported"]),
        st.dictionaries(st.integers(0, 7), st.sampled_from(["Unhealthy", "Unknown"]), max_size=3),
        st.sampled_from([{}, {}, {}, *LABELS]),
    ),
    min_size=4,
    max_size=4,
)
WANTS = st.builds(
    Want,
    count=st.integers(1, 8),
    exclusivity=st.sampled_from(["Exclusive", "Exclusive", "Exclusive", "Replicas", "MIG"]),
    rule=st.sampled_from([Rule(), Rule(mode="Required", min_gbps=500)]),
    selector=st.sampled_from([(), (), (("selected", "yes"),)]),
    fabric=st.sampled_from([FabricWant(), FabricWant(), FabricWant(rdma=True), FabricWant(cu_file="Preferred")]),
    implicit=st.booleans(),
)
LIMITS = st.builds(DeviceLimits, allow_unknown=st.booleans(), one_replica=st.booleans(), only_reported=st.booleans())


@given(NODES.filter(lambda nodes: len(nodes) == 4), KINDS, HELD, st.lists(WANTS, min_size=1, max_size=5), LIMITS)
def test_a_few_nodes_get_the_verdicts_that_arrays_give_them(
    hardwares: Any, kinds: Any, held: Any, wants: list[Want], limits: DeviceLimits
) -> None:
    reports, nodes = list[Any](), list[Node]()
    for i, ((name, _), (kind, health, labels)) in enumerate(zip(hardwares, kinds, strict=True)):
        nodes.append(make_node(f"n{i}", gpus=8, labels=labels))
        if kind != "never reported":
            heard = rfc3339(NOW - (9000 if kind == "reported long ago" else 1))
            reports.append(report(f"n{i}", hardware(name), health, heard))
    pods = [holder(n, f"n{at}", ids, whole) for n, (at, ids, whole) in enumerate(held) if ids]
    cache = gpu_cluster(reports, [claim("half", **SHARED)], pods, nodes)
    table = device_table(cache)
    for i, (kind, _, _) in enumerate(kinds):
        if kind == "has lost its report":
            cache.store(resources.GPU_NODE_STATUSES).remove("", f"n{i}")
    feasibility = Feasibility(table, limits)

    for now in (NOW, NOW + 2 * AWAITED):
        feasibility.look(now)
        for want in [*wants, *(replace(want, implicit=True) for want in wants)]:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("gangline_plugins.gpu.feasibility._ONE_BY_ONE", 0)
                together = feasibility.evaluate(want, cache.nodes.view())
                gbps, kept = together.worth()
            for rows in ([0], [1], [2], [3], [0, 2], [3, 1, 0], [0, 1, 2, 3]):
                few = feasibility.evaluate(want, cache.nodes.view().at(np.array(rows)))
                fits = together.codes[rows] == 0
                assert few.codes.tolist() == together.codes[rows].tolist()
                assert [each[fits].tolist() for each in few.worth()] == [
                    gbps[rows][fits].tolist(),
                    kept[rows][fits].tolist(),
                ]
