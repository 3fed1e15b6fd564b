"""The devices with taints that end pods, as slices come, change and go."""

from __future__ import annotations

from collections.abc import Sequence

from gangline import custom_resources, model
from gangline_plugins.dynamic_resources.tainted import TaintedDevices

BROKEN = model.DeviceTaint("example.com/broken", "NoExecute")
HOT = model.DeviceTaint("example.com/hot", "NoSchedule")


def make_slice(name: str, generation: int = 1, **taints: Sequence[model.DeviceTaint]) -> model.ResourceSlice:
    """A slice of the pool "a" with these devices."""
    devices = [model.Device(device, taints=list(each)) for device, each in taints.items()]
    pool = model.ResourcePool("a", generation=generation, resource_slice_count=1)
    return model.ResourceSlice(
        model.ObjectMeta(name), model.ResourceSliceSpec(driver="d", pool=pool, node_name="a", devices=devices)
    )


def test_devices_with_taints_that_end_pods_are_known_as_long_as_they_have_them() -> None:
    tainted, told = TaintedDevices(), []
    end = tainted.follow(lambda: told.append(1))
    well, ill = make_slice("one", gpu0=[HOT], gpu1=[]), make_slice("one", gpu0=[HOT, BROKEN], gpu1=[])

    tainted.slice_changed(None, well)
    assert not list(tainted.all()) and not told
    tainted.slice_changed(well, ill)
    assert list(tainted.all()) == [(("d", "a", "gpu0"), (BROKEN,))] and len(told) == 1
    tainted.slice_changed(ill, ill)
    assert tainted.has(("d", "a", "gpu0")) and not tainted.has(("d", "a", "gpu1")) and len(told) == 1
    end()
    tainted.slice_changed(ill, None)
    assert not list(tainted.all()) and not tainted.has(("d", "a", "gpu0")) and len(told) == 1


def test_a_device_that_the_agent_reports_as_unhealthy_has_such_a_taint() -> None:
    tainted, unhealthy = TaintedDevices(), model.DeviceTaint(custom_resources.UNHEALTHY, "NoSchedule")

    tainted.slice_changed(None, make_slice("one", gpu0=[unhealthy, HOT]))

    assert list(tainted.all()) == [(("d", "a", "gpu0"), (unhealthy,))]


def test_slices_of_an_older_generation_of_their_pool_do_not_count() -> None:
    tainted = TaintedDevices()
    old, new = make_slice("old", gpu0=[BROKEN]), make_slice("new", 2, gpu0=[])

    tainted.slice_changed(None, old)
    tainted.slice_changed(None, new)
    assert not list(tainted.all())
    tainted.slice_changed(new, None)
    assert len(list(tainted.all())) == 1


def test_a_slice_of_another_generation_tells_what_begins_or_ends_to_count_in_the_others() -> None:
    tainted, told = TaintedDevices(), []
    ill, ill_again = make_slice("ill", 1, gpu0=[BROKEN]), make_slice("ill", 2, gpu0=[BROKEN])
    well, well_again = make_slice("well", 1, gpu1=[]), make_slice("well", 2, gpu1=[])
    tainted.slice_changed(None, ill)
    tainted.slice_changed(None, well)
    tainted.follow(lambda: told.append(len(list(tainted.all()))))

    tainted.slice_changed(well, well_again)
    tainted.slice_changed(ill, ill_again)

    assert told == [0, 1]
