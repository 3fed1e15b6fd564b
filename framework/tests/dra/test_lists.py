"""Attributes that are lists: selectors tell lists apart where they are read; constraints take each for a stranger."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.dra.live import Devices
from gangline.model.resource_slices import DeviceClass, ResourceSlice
from gangline.testing import cluster, make_node

from .offers import GPU, claim, device, exactly, offer

CLASS = msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)
INCLUDES = [{"cel": {"expression": f'device.attributes["{GPU}"].root.includes("b")'}}]


def devices_with(*roots: dict[str, Any]) -> Devices:
    """One node with a device for each value of the attribute root."""
    nodes = cluster([make_node("n")]).nodes.view()
    devices = Devices(lambda: nodes)
    devices.class_changed(None, CLASS)
    given = [{**device(f"d{number}"), "attributes": {"root": each}} for number, each in enumerate(roots)]
    devices.slice_changed(None, offer("s", given, nodeName="n"))
    devices.read_lists(True)
    return devices


def given(devices: Devices, asked: Any) -> list[str] | str | None:
    """The devices that a claim gets, or why it gets none."""
    verdict = devices.allocate(devices.asked([asked]), [asked], 0)
    if verdict.allocations is None:
        return verdict.error or None
    return [each.device for each in verdict.allocations[0].devices.results]


@pytest.mark.parametrize(
    ("roots", "expected"),
    [
        ([{"strings": ["a"]}, {"strings": ["a", "b"]}], ["d1"]),
        ([{"strings": ["b", "a"]}, {"strings": ["a", "b"]}], ["d0"]),
        ([{"strings": ["a"]}, {"string": "b"}], ["d1"]),
        ([{"ints": [1]}, {"bools": [True]}, {"versions": ["1.0.0"]}, {"strings": ["b"]}], ["d3"]),
        ([{"strings": []}, {"strings": ["c"]}], None),
    ],
)
def test_a_selector_tells_lists_apart(roots: list[dict[str, Any]], expected: list[str] | None) -> None:
    assert given(devices_with(*roots), claim(exactly(selectors=INCLUDES))) == expected


def test_each_list_has_a_verdict_of_its_own_in_many_devices() -> None:
    roots = [{"ints": [number % 7, 7 + number % 3]} for number in range(100)]
    devices = devices_with(*roots)
    wanted = [{"cel": {"expression": f'device.attributes["{GPU}"].root == [3, 9]'}}]

    found = given(devices, claim(exactly(0, allocationMode="All", selectors=wanted)))

    assert found == [f"d{number}" for number in range(100) if number % 7 == 3 and number % 3 == 2]


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
@pytest.mark.parametrize("second", [{"strings": ["a"]}, {"strings": ["z"]}, {"string": "a"}])
def test_a_constraint_takes_no_two_devices_with_a_list(kind: str, second: dict[str, Any]) -> None:
    devices = devices_with(second, {"strings": ["a"]})
    both, one = (claim(exactly(count), constraints=[{kind: f"{GPU}/root"}]) for count in (2, 1))

    assert given(devices, both) is None
    assert given(devices, one) == ["d0"]


def test_lists_are_read_as_long_as_somebody_wants_them() -> None:
    devices = devices_with({"strings": ["b"]})
    asked = claim(exactly(selectors=INCLUDES))
    before = devices.changes.position

    first = given(devices, asked)
    devices.read_lists(False)
    second = given(devices, asked)
    devices.read_lists(True)

    assert first == given(devices, asked) == ["d0"]
    assert "includes" in str(second)
    assert devices.changes.position > before


def test_a_slice_with_a_list_of_absurd_size_cannot_be_read() -> None:
    each = {"name": "d", "attributes": {"root": {"ints": [*range(49)]}}}
    spec = {"driver": GPU, "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n", "devices": [each]}

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)
