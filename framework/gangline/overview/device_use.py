"""Which devices of dynamic resource allocation there are, and which are taken: by node, by driver and by class.

The counts come from ResourceSlices, DeviceClasses and ResourceClaims alone, whichever scheduler has allocated the
devices.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from gangline.dra import Selectors, SliceTable, Standing, Usage
from gangline.dra.pools import Pool, PoolCondition
from gangline.dra.reading import SHAREABLE, consumption
from gangline.dra.selecting import YES, compile_with_lists
from gangline.dra.standing import IN_USE
from gangline.dra.taint_rules import TaintRules
from gangline.kube.resources import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.model.resource_slices import DeviceClass
from gangline.state.cache import Cache
from gangline.status import BoolColumn


class NodeDeviceUse(msgspec.Struct, rename="camel"):
    """The devices that a driver offers on one node."""

    node: str
    """The name of the node, or of the pool if several nodes may use its devices."""
    driver: str
    devices: int
    taken: int
    """Devices of which a claim has all, or a share."""
    free: int
    """Devices that could be allocated now: free, without a taint that keeps pods away, and with enough left of the
    counters that they consume."""
    tainted: int


class ClassDevices(msgspec.Struct, rename="camel"):
    """The devices that a class admits."""

    name: str
    devices: int
    free: int
    problem: str = ""
    """Why selectors of the class fail."""


class UnusablePool(msgspec.Struct, rename="camel"):
    """A pool of which no device can be allocated."""

    driver: str
    pool: str
    why: str


class DeviceUse(msgspec.Struct, rename="camel"):
    """All devices. Nodes are in the order of their names."""

    nodes: list[NodeDeviceUse] = []
    classes: list[ClassDevices] = []
    unusable: list[UnusablePool] = []


def device_use(cluster: Cache) -> DeviceUse:
    """The devices of the cluster as it is now."""
    rules = TaintRules(cluster.store(DEVICE_TAINT_RULES))
    slices = sorted(map(rules.applied, cluster.store(RESOURCE_SLICES)), key=lambda each: each.metadata.name)
    view = cluster.nodes.view()
    table = SliceTable(slices, view)
    standing = Standing(table, Usage(cluster.store(RESOURCE_CLAIMS)))
    selectors = Selectors(table, compile_with_lists)  # if the API server has no lists, no device has any
    taken = standing.states > 0
    tainted = ~selectors.properties.tolerated((), np.arange(len(table)))
    free = ~standing.taken & ~tainted & _has_counters(standing)
    found: dict[tuple[str, str], NodeDeviceUse] = {}
    for row in range(len(table)):
        driver, pool, _ = table.ids[row]
        node = view.names[table.node[row]] if table.node[row] >= 0 else pool
        use = found.setdefault((node, driver), NodeDeviceUse(node, driver, 0, 0, 0, 0))
        use.devices += 1
        use.taken += int(taken[row])
        use.free += int(free[row])
        use.tainted += int(tainted[row])
    classes = sorted(cluster.store(DEVICE_CLASSES), key=lambda each: each.metadata.name)
    unusable = {(pool.driver, pool.name): pool for pool in table.pools if pool.condition is not PoolCondition.USABLE}
    return DeviceUse(
        nodes=[use for _, use in sorted(found.items())],
        classes=[_of_class(each, selectors, free) for each in classes],
        unusable=[UnusablePool(*key, _why(pool)) for key, pool in sorted(unusable.items())],
    )


def by_driver(use: DeviceUse) -> Iterator[tuple[NodeDeviceUse, int]]:
    """For each driver the sums over its nodes, with an empty ``node``, and the number of these nodes."""
    for driver in sorted({each.driver for each in use.nodes}):
        mine = [each for each in use.nodes if each.driver == driver]
        sums = (sum(getattr(each, field) for each in mine) for field in ("devices", "taken", "free", "tainted"))
        yield NodeDeviceUse("", driver, *sums), len(mine)


def _has_counters(standing: Standing) -> BoolColumn:
    """By row: whether enough is left of the counters that the device consumes."""
    table = standing.table
    found = np.ones(len(table), dtype=np.bool_)
    for placed in table.placed:
        left = standing.left(placed)
        for row in placed.rows.tolist() if left else ():
            found[row] = all(left.get(each, 0) >= amount for each, amount in consumption(table.devices[row]).items())
    return found | ((standing.states & IN_USE > 0) & (table.traits & SHAREABLE > 0))


def _of_class(each: DeviceClass, selectors: Selectors, free: BoolColumn) -> ClassDevices:
    expressions = tuple(selector.cel.expression for selector in each.spec.selectors if selector.cel is not None)
    before = len(selectors.failures)
    admitted = selectors.verdicts(expressions) == YES
    problem = next(iter(selectors.failures[before:]), "")
    return ClassDevices(each.metadata.name, int(admitted.sum()), int((admitted & free).sum()), problem)


def _why(pool: Pool) -> str:
    return pool.why or "its driver has not published all of its slices"
