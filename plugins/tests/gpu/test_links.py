"""Link classes, and the ready hardware."""

import msgspec
import numpy as np
import pytest

from gangline import custom_resources
from gangline_plugins.gpu.links import MOST_CLASSES, NO_ISLAND, LinkClasses, ids_of, mask_of
from gangline_plugins.gpu.named_hardware import NAMES, devices

from .gpu_cases import interned, links_of


def test_equal_hardware_is_one_class() -> None:
    classes = LinkClasses()

    first = interned(classes, devices("hgx-h100"))
    again = interned(classes, [msgspec.structs.replace(d, uuid="other") for d in devices("hgx-h100")])
    other = interned(classes, devices("dgx-a100"))
    assert first is again
    assert [links.number for links in (first, other)] == [0, 1]


@pytest.mark.parametrize("name", NAMES)
def test_ready_hardware_is_symmetric_and_has_links_of_devices_that_exist(name: str) -> None:
    found = devices(name)
    links = links_of(found)

    assert links.present == (1 << len(found)) - 1
    assert (links.gbps == links.gbps.T).all()
    assert (links.gbps[: len(found), : len(found)] > 0).sum() == len(found) * (len(found) - 1)


def test_bridges_make_islands_of_two() -> None:
    assert links_of(devices("pcie-bridged-4")).islands[:5] == (0, 0, 1, 1, NO_ISLAND)


def test_islands_that_nobody_names_are_what_nvlink_connects() -> None:
    chain = [
        custom_resources.GpuDevice(
            id=i, links=[custom_resources.DeviceLink(i + 1, "NVLINK", 50.0)] if i in (0, 1, 4) else []
        )
        for i in range(6)
    ]

    assert links_of(chain).islands[:6] == (0, 0, 0, NO_ISLAND, 1, 1)


def test_without_links_an_island_has_the_bandwidth_of_its_slower_device() -> None:
    found = [
        custom_resources.GpuDevice(id=0, island="a", bandwidth_gbps=600),
        custom_resources.GpuDevice(id=1, island="a", bandwidth_gbps=400),
    ]

    assert links_of([*found, custom_resources.GpuDevice(id=2, island="b", bandwidth_gbps=600)]).gbps[
        :3, :3
    ].tolist() == [
        [0, 400, 0],
        [400, 0, 0],
        [0, 0, 0],
    ]


def test_of_two_reports_on_a_link_the_lower_counts() -> None:
    found = [
        custom_resources.GpuDevice(id=0, links=[custom_resources.DeviceLink(1, "NVLINK", 300.0)]),
        custom_resources.GpuDevice(id=1, links=[custom_resources.DeviceLink(0, "PIX", 64.0)]),
    ]

    assert links_of(found).gbps[0, 1] == 64.0


def test_devices_on_one_socket_are_nearer() -> None:
    links = links_of(devices("hgx-h100"))

    assert np.unique(links.nearness[0]).tolist() == [0, 10, 11]


def test_masks_are_sets_of_ids() -> None:
    assert ids_of(mask_of([5, 0, 3, 3])) == (0, 3, 5)
    assert mask_of([16, -1]) == 0


def speeds(gbps: int) -> list[custom_resources.GpuDevice]:
    return [custom_resources.GpuDevice(id=id, bandwidth_gbps=gbps, island="a") for id in range(2)]


def test_classes_of_the_past_make_room_for_new_ones() -> None:
    used: set[int] = set()
    classes = LinkClasses(lambda: used)
    kept = classes.intern(speeds(1))
    assert kept is not None
    used.add(kept.number)

    for gbps in range(2, 5 * MOST_CLASSES):
        found = classes.intern(speeds(gbps))
        assert found is not None and found.number != kept.number and classes.all[found.number] is found

    assert len(classes.all) == MOST_CLASSES and classes.intern(speeds(1)) is kept


def test_more_classes_than_there_is_room_for_are_refused() -> None:
    classes = LinkClasses(lambda: range(MOST_CLASSES))

    found = [classes.intern(speeds(gbps)) for gbps in range(MOST_CLASSES + 1)]

    assert found[-1] is None and None not in found[:-1]
