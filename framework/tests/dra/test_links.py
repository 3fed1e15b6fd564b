"""Groups of linked devices that are kept stay right, whatever else is kept or dropped."""

from __future__ import annotations

from typing import Any

from gangline.dra.links import Links
from gangline.dra.selecting import Selectors
from gangline.dra.standing import Standing
from gangline.dra.table import SliceTable
from gangline.dra.usage import Usage
from gangline.model.resource_slices import ResourceSlice
from gangline.testing import cluster, make_node

from .offers import GPU, device, offer
from .test_live import PCIE_ROOT


def rooted(pool: str, *roots: str, **spec: Any) -> ResourceSlice:
    """A slice with a device for each PCIe root."""
    devices = [device(f"{pool}-{n}", attributes={PCIE_ROOT: root}) for n, root in enumerate(roots)]
    return offer(pool, devices, pool=pool, **spec)


def test_a_device_of_several_nodes_is_in_the_group_of_its_value_though_columns_were_made_anew() -> None:
    view = cluster([make_node(name) for name in "ab"]).nodes.view()
    table = SliceTable([], view)
    other = table.put(rooted("b", "x", nodeName="b"))
    table.put(rooted("a", "x", "y", nodeName="a"))
    table.put(rooted("all", "y", allNodes=True))
    table.settle(view)
    properties = Selectors(table).properties
    links = Links(Standing(table, Usage()), properties)
    rows = [table.index[GPU, pool, name][0] for pool, name in (("a", "a-0"), ("a", "a-1"), ("all", "all-0"))]

    before = links.groups(rows)
    table.drop(other)
    table.put(rooted("b", "y", nodeName="b"))
    table.settle(view)
    properties._named.clear()  # as if other columns had taken their place

    _, own, shared = before[0]
    assert own == shared and links.groups(rows) == before
