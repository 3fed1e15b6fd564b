"""GPUs that the agent of their node reports and that a ResourceSlice offers too are counted and told."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from gangline import custom_resources, model, resources
from gangline.model import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from gangline.testing import FakeHandle, cluster
from gangline_plugins.dynamic_resources.two_masters import TwoMasters

DRIVER = "gpu.nvidia.com"


def reported(node: str, uuids: Iterable[str]) -> custom_resources.GpuNodeStatus:
    """The report of a node with these GPUs."""
    devices = [custom_resources.GpuDevice(id=number, uuid=uuid) for number, uuid in enumerate(uuids)]
    return custom_resources.GpuNodeStatus(
        model.ObjectMeta(node),
        custom_resources.GpuNodeStatusSpec(node),
        custom_resources.GpuNodeStatusStatus(devices=devices),
    )


def offered(name: str, uuids: Iterable[str], attribute: str = "uuid") -> ResourceSlice:
    """A slice with devices of these GPUs."""
    devices = [Device(f"d{n}", attributes={attribute: DeviceAttribute(string=u)}) for n, u in enumerate(uuids)]
    return ResourceSlice(model.ObjectMeta(name), ResourceSliceSpec(DRIVER, ResourcePool(name, 1, 1), devices=devices))


def counted(handle: FakeHandle) -> float:
    """What the gauge says."""
    (family,) = handle.gauge("gangline_gpus_with_two_masters", "").collect()
    value: float = family.samples[0].value
    return value


def test_a_node_whose_gpus_are_offered_twice_is_told_once() -> None:
    handle = FakeHandle(cluster())
    found = TwoMasters(handle)
    reports, slices = handle.state.store(resources.GPU_NODE_STATUSES), handle.state.store(resources.RESOURCE_SLICES)

    reports.upsert(reported("a", ["GPU-1", "GPU-2", "GPU-3", ""]))
    slices.upsert(offered("s", ["GPU-2", "GPU-3", "GPU-9", ""]))
    found.tell()
    assert counted(handle) == 2
    slices.remove("", "s")
    found.tell()
    assert counted(handle) == 0
    slices.upsert(offered("s", ["GPU-2"]))
    TwoMasters(handle).tell()  # of another profile
    (event,) = handle.fake_recorder.events
    assert (event.pod, event.kind, event.reason) == ("/a", "Warning", "TwoDeviceMasters")
    assert event.note.startswith(
        "GPU GPU-2 and 1 others are in the node's GpuNodeStatus and in ResourceSlice s too: a device"
    )


def test_parts_of_gpus_and_attributes_with_their_domain_name_gpus_too() -> None:
    handle = FakeHandle(cluster())
    found = TwoMasters(handle)
    handle.state.store(resources.GPU_NODE_STATUSES).upsert(reported("a", ["GPU-1", "GPU-2"]))

    handle.state.store(resources.RESOURCE_SLICES).upsert(offered("s", ["GPU-1"], f"{DRIVER}/uuid"))
    handle.state.store(resources.RESOURCE_SLICES).upsert(offered("t", ["GPU-2"], "parentUUID"))
    found.tell()

    assert counted(handle) == 2


uuids = st.frozensets(st.sampled_from("1234"), max_size=3)
changes = st.tuples(st.sampled_from(["report", "slice"]), st.sampled_from("ab"), uuids)


@given(st.lists(changes, max_size=12), st.integers(0, 12))
def test_the_number_is_that_of_the_gpus_in_both(history: list[tuple[str, str, frozenset[str]]], late: int) -> None:
    handle = FakeHandle(cluster())
    found = TwoMasters(handle) if not late else None
    there: dict[tuple[str, str], frozenset[str]] = {}

    for number, (kind, name, held) in enumerate(history, start=1):
        store = handle.state.store(resources.GPU_NODE_STATUSES if kind == "report" else resources.RESOURCE_SLICES)
        there[kind, name] = held
        if held:
            store.upsert((reported if kind == "report" else offered)(name, held))
        else:
            store.remove("", name)
        if number == late:
            found = TwoMasters(handle)
        if found is not None:
            found.tell()
            both = [
                frozenset().union(*(held for (of, _), held in there.items() if of == kind))
                for kind in ("report", "slice")
            ]
            assert counted(handle) == len(both[0] & both[1])
