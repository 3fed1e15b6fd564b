"""Devices for ResourceClaims: which nodes have them, which they are, and taking them, without an API server.

    python benchmarks/claims.py [--nodes 5000] [--cycles 1000] [--runs 3] [--order best]

Half of the nodes' devices are taken at random. Every cycle asks which nodes have devices for a claim, allocates them on
the first of these nodes, and takes them, so that the next cycle finds a row changed. A known spec is that of a claim
like one before. A new spec differs from all before, so no verdict that is kept helps; only columns of attributes do.
"""

from __future__ import annotations

import gc
import random
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from statistics import fmean, median
from typing import Any

import click
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from gangline.dra.allocator import Order
from gangline.dra.live import Devices
from gangline.model import DeviceClass, ObjectMeta, ResourceClaim, ResourceClaimAllocation, ResourceSlice
from gangline.process.memory import settle_memory
from gangline.state.node_view import NodeView
from gangline.testing import cluster, make_node

DRIVER = "gpu.example.com"
PER_NODE = 8
GANG = 512
"""Members of the gang, with a claim each."""


def gpu(node: int, number: int) -> dict[str, Any]:
    """A device as a driver describes it."""
    attributes = {
        "uuid": {"string": f"GPU-{node:08x}-{number:04x}"},
        "productName": {"string": ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")[node % 2]},
        "architecture": {"string": ("Hopper", "Ampere")[node % 2]},
        "type": {"string": "gpu"},
        "index": {"int": number},
        "driverVersion": {"version": f"5{node % 5}0.0.0"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number // 2:02x}"},
    }
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}


def gpu_slice(node: int, generation: int = 1) -> ResourceSlice:
    """The devices of a node."""
    name = f"node-{node:05}"
    pool = {"name": name, "generation": generation, "resourceSliceCount": 1}
    devices = [gpu(node, number) for number in range(PER_NODE)]
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return msgspec.convert({"metadata": {"name": f"{name}-{DRIVER}"}, "spec": spec}, ResourceSlice)


def claim(*requests: dict[str, Any], constraints: tuple[dict[str, Any], ...] = ()) -> ResourceClaim:
    """A claim of requests; those with alternatives are given as a list under firstAvailable."""
    named = [
        {"name": f"r{at}", **(each if "firstAvailable" in each else {"exactly": each})}
        for at, each in enumerate(requests)
    ]
    spec = {"devices": {"requests": named, "constraints": list(constraints)}}
    return msgspec.convert({"metadata": {"name": "claim", "namespace": "default"}, "spec": spec}, ResourceClaim)


def gpus(count: int, *expressions: str) -> dict[str, Any]:
    """A request of a number of devices."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": selectors}


SAME_ROOT = ({"matchAttribute": "resource.kubernetes.io/pcieRoot"},)
NEWEST = f'device.attributes["{DRIVER}"].driverVersion.compareTo(semver("550.0.0")) >= 0'


def larger_than(mebibytes: int) -> str:
    """Devices with more memory than this."""
    return f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{mebibytes}Mi")) > 0'


def partitions(node: int) -> list[ResourceSlice]:
    """Two devices of a node as its driver offers them: whole, in halves or in quarters that share their memory."""
    name = f"node-{node:05}"
    pool = {"name": f"{name}-mig", "generation": 1, "resourceSliceCount": 2}
    counters = [{"name": f"gpu-{gpu}", "counters": {"memory": {"value": "80Gi"}}} for gpu in range(2)]
    devices = [
        {
            "name": f"gpu-{gpu}-{parts}-{number}",
            "attributes": {"type": {"string": "mig"}},
            "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": {"memory": {"value": f"{80 // parts}Gi"}}}],
        }
        for gpu in range(2)
        for parts in (1, 2, 4)
        for number in range(parts)
    ]
    return [
        msgspec.convert(
            {
                "metadata": {"name": f"{name}-mig-{part}"},
                "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, **content},
            },
            ResourceSlice,
        )
        for part, content in (("counters", {"sharedCounters": counters}), ("devices", {"devices": devices}))
    ]


def one(cycles: int) -> Iterator[ResourceClaim]:
    """One device."""
    for _ in range(cycles):
        yield claim(gpus(1))


def pair(cycles: int) -> Iterator[ResourceClaim]:
    """Two devices of one PCIe root."""
    for _ in range(cycles):
        yield claim(gpus(2), constraints=SAME_ROOT)


def several(cycles: int) -> Iterator[ResourceClaim]:
    """Two devices, or else one."""
    for _ in range(cycles):
        yield claim({"firstAvailable": [{"name": "two", **gpus(2)}, {"name": "one", **gpus(1)}]})


NUMBERS = count()
"""A number for each new spec."""


def new_selectors(cycles: int) -> Iterator[ResourceClaim]:
    """One to four devices; each claim has another expression."""
    for number in islice(NUMBERS, cycles):
        yield claim(gpus(1 + number % 4, NEWEST.replace(">=", "<"), larger_than(number)))


def new_alternatives(cycles: int) -> Iterator[ResourceClaim]:
    """Two devices, or else one; each claim has another expression."""
    for number in islice(NUMBERS, cycles):
        want = larger_than(number)
        yield claim({"firstAvailable": [{"name": "two", **gpus(2, want)}, {"name": "one", **gpus(1, want)}]})


def nowhere(cycles: int) -> Iterator[ResourceClaim]:
    """Two devices of one PCIe root, of a version and with a memory that there is not; another one each."""
    for number in islice(NUMBERS, cycles):
        yield claim(gpus(2, NEWEST, larger_than(90_000 + number)), constraints=SAME_ROOT)


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def quarter(number: int) -> ResourceClaim:
    """A quarter of a device; each number has another expression."""
    small = 'device.attributes["gpu.example.com"].type == "mig"'
    return claim({**gpus(1, small + f" && {number} >= 0"), "deviceClassName": "any"})


class Fleet:
    """Devices of a cluster of which half are taken."""

    def __init__(self, nodes: int, order: Order) -> None:
        self.order = order
        self.nodes: NodeView = cluster([make_node(f"node-{node:05}") for node in range(nodes)]).nodes.view()
        slices = [gpu_slice(node) for node in range(nodes)]
        chance = random.Random(1)
        half = [(node, at) for node in range(nodes) for at in sorted(chance.sample(range(PER_NODE), PER_NODE // 2))]
        allocations = {f"{node}/{number}": taken(node, number) for node, number in half}
        before = resident()
        self.devices = Devices(lambda: self.nodes)
        if order == "best":
            self.devices.expect_weighing()
        for each in slices:
            self.devices.slice_changed(None, each)
        expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "gpu"'
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        self.devices.class_changed(None, msgspec.convert({"metadata": {"name": "gpu"}, "spec": spec}, DeviceClass))
        self.devices.class_changed(None, DeviceClass(ObjectMeta("any")))
        for key, allocation in allocations.items():
            self.devices.take(key, allocation)
        start = time.perf_counter()
        self.place(claim(gpus(1)), 0)
        self.first_question = 1e3 * (time.perf_counter() - start)
        self.devices.give(0)
        self.bytes_per_device = (resident() - before) / (nodes * PER_NODE)

    def place(self, of: ResourceClaim, key: int) -> bool:
        """Give the claim devices of the first node that has some, or in the order `best` of the first node where least
        is lost.

        Returns whether there is such a node.
        """
        devices = self.devices
        asked = devices.asked([of])
        codes = devices.codes(asked, self.nodes)
        if self.order == "best":
            row = int(np.where(codes == 0, devices.losses(asked, self.nodes), np.inf).argmin())
        else:
            row = int(codes.argmin())
        if codes[row]:
            return False
        found = devices.allocate(asked, [of], row, self.order).allocations
        assert found is not None
        devices.take(key, found[0])
        return True


def taken(node: int, number: int) -> ResourceClaimAllocation:
    """The allocation of one device."""
    result = {"request": "r0", "driver": DRIVER, "pool": f"node-{node:05}", "device": f"gpu-{number}"}
    return msgspec.convert({"devices": {"results": [result]}}, ResourceClaimAllocation)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table; the first `skip` cycles, which fill caches, are not counted."""

    name: str
    claims: Callable[[int], Iterator[ResourceClaim]]
    bar: float | None = None
    share: int = 1
    """One of so many cycles is run; 1 for all."""
    skip: int = 5
    are_there: bool = True


CASES = (
    Case("1 GPU, known spec", one, 0.3),
    Case("2 GPUs of one root, known spec", pair, 0.3),
    Case("2 or 1 GPUs, known spec", several, 0.3),
    Case("1-4 GPUs, new spec each", new_selectors, 5, share=10),
    Case("2 or 1 GPUs, new spec each", new_alternatives, 5, share=10),
    Case("2 GPUs that exist nowhere, new spec each", nowhere, 5, share=10, are_there=False),
)


PARTITIONS = (
    Case("a quarter of a GPU, known spec", lambda cycles: (quarter(0) for _ in range(cycles)), 0.3),
    Case("a quarter of a GPU, new spec each", lambda cycles: map(quarter, islice(NUMBERS, cycles)), 5, share=10),
)


def measure(fleet: Fleet, case: Case, cycles: int) -> list[float]:
    """Milliseconds of each cycle; the devices are given back at the end."""
    times = []
    for number, each in enumerate(case.claims(cycles)):
        start = time.perf_counter()
        assert fleet.place(each, number) == case.are_there
        times.append(1e3 * (time.perf_counter() - start))
    for number in range(cycles):
        fleet.devices.give(number)
    return times[case.skip :]


def steps(fleet: Fleet, cycles: int) -> list[float]:
    """Milliseconds of taking and giving one device."""
    allocation = taken(0, 0)
    times = []
    for _ in range(cycles):
        start = time.perf_counter()
        fleet.devices.take("step", allocation)
        fleet.devices.give("step")
        times.append(1e3 * (time.perf_counter() - start))
    return times


def gang(fleet: Fleet, cycles: int, is_new: bool) -> list[float]:
    """Milliseconds of allocating and taking one device for each member, on rows that are chosen."""
    rows = [number // 4 for number in range(GANG)]
    devices = fleet.devices
    times = []
    for cycle in range(cycles + 1):
        expressions = (larger_than(next(NUMBERS)),) if is_new else ()
        members = [claim(gpus(1, *expressions)) for _ in range(GANG)]
        asked = devices.asked(members[:1])
        devices.codes(asked, fleet.nodes)
        start = time.perf_counter()
        for number, (member, row) in enumerate(zip(members, rows, strict=True)):
            found = devices.allocate(asked, [member], row, fleet.order).allocations
            assert found is not None
            devices.take(number, found[0])
        if cycle or is_new:
            times.append(1e3 * (time.perf_counter() - start))
        for number in reversed(range(GANG)):
            devices.give(number)
    return times


def changed_slices(fleet: Fleet, cycles: int) -> list[float]:
    """Milliseconds of a slice that its driver writes again, and the question of one device after that."""
    times = []
    for number in range(cycles):
        new = gpu_slice(number % len(fleet.nodes), 2 + number)
        start = time.perf_counter()
        fleet.devices.slice_changed(None, new)
        assert fleet.place(claim(gpus(1)), number)
        times.append(1e3 * (time.perf_counter() - start))
        fleet.devices.give(number)
    return times


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--cycles", default=1000, show_default=True)
@click.option(
    "--runs", default=3, show_default=True, help="How often all is run; for each claim the shortest time counts."
)
@click.option("--order", type=click.Choice(["upstream", "best"]), default="upstream", show_default=True)
def main(nodes: int, cycles: int, runs: int, order: Order) -> None:
    """Measure and print."""
    fleet = Fleet(nodes, order)
    settle_memory()
    table = Table("claim", "mean ms", "median ms", "p99 ms", "bar", box=None)

    def add(name: str, one_run: Callable[[], list[float]], bar: float | None) -> None:
        times = sorted(map(min, zip(*[one_run() for _ in range(runs)], strict=True)))
        figures = (fmean(times), median(times), times[int(len(times) * 0.99)])
        verdict = "" if bar is None else f"{bar} ms {'met' if figures[0] < bar else 'missed'}"
        table.add_row(name, *(f"{figure:.3f}" for figure in figures), verdict)

    for case in CASES:
        add(case.name, lambda case=case: measure(fleet, case, cycles // case.share), case.bar)  # type: ignore[misc]
    add("taking and giving one device", lambda: steps(fleet, cycles), 0.03)
    add(f"a gang of {GANG} on chosen nodes, known spec", lambda: gang(fleet, 5, False), 15)
    add(f"a gang of {GANG} on chosen nodes, new spec", lambda: gang(fleet, 5, True), None)
    add("a slice changes, 1 GPU", lambda: changed_slices(fleet, cycles), None)
    for node in range(nodes):
        for each in partitions(node):
            fleet.devices.slice_changed(None, each)
    fleet.place(quarter(0), 0)
    for case in PARTITIONS:
        add(case.name, lambda case=case: measure(fleet, case, cycles // case.share), case.bar)  # type: ignore[misc]
    gc.unfreeze()
    console = Console(width=100)
    console.print(f"{nodes} nodes of {PER_NODE} devices, half of them taken, the shortest of {runs} runs")
    console.print(table)
    console.print(
        f"the first question of all: {fleet.first_question:.1f} ms; "
        f"memory of the module: {fleet.bytes_per_device:.0f} bytes for each device"
    )


if __name__ == "__main__":
    main()
