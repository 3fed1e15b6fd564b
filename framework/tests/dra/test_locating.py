"""Each device that a node has for itself is found with the place of the node, whether a few or many nodes are meant."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.dra.locating import located
from gangline.dra.table import SliceTable
from gangline.testing import cluster, make_node

from .offers import device, offer

NAMES = [f"n{number}" for number in range(24)]


@pytest.mark.parametrize("most", [1, 4, len(NAMES)])
@given(st.randoms(use_true_random=False))
def test_devices_are_located(most: int, random: Random) -> None:
    devices = [[device(f"d{at}") for at in range(random.randint(0, 3))] for _ in NAMES]
    slices = [offer(f"s-{name}", own, pool=name, nodeName=name) for name, own in zip(NAMES, devices, strict=True)]
    slices += [offer("s-all", [device("d")], pool="all", allNodes=True), offer("s-old", [device("d")], nodeName="gone")]
    random.shuffle(slices)
    table = SliceTable(slices, cluster([make_node(name) for name in NAMES]).nodes.view())
    nodes = random.sample(range(len(NAMES)), random.randint(1, most))

    rows, place = located(table, len(NAMES), np.array(nodes, dtype=np.int64))

    numbers = np.arange(len(table))[rows].tolist()
    found = {row: at for row, at in zip(numbers, place.tolist(), strict=True) if at >= 0}
    assert found == {row: nodes.index(node) for row, node in enumerate(table.node.tolist()) if node in nodes}
