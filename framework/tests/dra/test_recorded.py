"""The allocator answers as that of kube-scheduler v1.36.3 did, device by device."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.explain import allocate
from gangline.model.resource_slices import ResourceSlice
from gangline.quantity import milli

from .offers import Failure

DATA = Path(__file__).parent / "data" / "allocator-v0.36.3.jsonl.gz"


def read_cases() -> list[dict[str, Any]]:
    with gzip.open(DATA) as lines:
        return [msgspec.json.decode(line) for line in lines]


class Recorded:
    """An expression, as the real one judged each device: `y`, `n`, `e` for a failure, `E` if it does not compile."""

    reads = None

    def __init__(self, verdicts: dict[str, str]) -> None:
        if "E" in verdicts.values():
            raise Failure("does not compile")
        self._verdicts = verdicts

    def __call__(self, device: Mapping[str, Any]) -> bool:
        verdict = self._verdicts[json.dumps(device, sort_keys=True)]
        if verdict == "e":
            raise Failure("fails")
        return verdict == "y"


def tables(case: dict[str, Any]) -> dict[str, dict[str, str]]:
    """By expression and device: the verdict."""
    slices = msgspec.convert(case["input"]["resourceSlices"], list[ResourceSlice])
    found: dict[str, dict[str, str]] = {}
    for expression, rows in case["selectors"].items():
        table = found[expression] = {}
        for each, verdicts in zip(slices, rows, strict=True):
            for device, verdict in zip(each.spec.devices, verdicts, strict=True):
                described: dict[str, Any] = {
                    "driver": each.spec.driver,
                    "attributes": msgspec.to_builtins(device.attributes),
                    "capacity": msgspec.to_builtins(device.capacity),
                }
                if device.allow_multiple_allocations is not None:
                    described["allowMultipleAllocations"] = device.allow_multiple_allocations
                table[json.dumps(described, sort_keys=True)] = verdict
    return found


def plain(allocation: Any) -> Any:
    """An allocation with quantities as numbers and any shareID as one; whether there are errors, not which."""
    if not isinstance(allocation, list):
        return "error" if allocation and "error" in allocation else None
    for each in allocation:
        for result in each["devices"].get("results", []):
            for name, amount in result.get("consumedCapacity", {}).items():
                result["consumedCapacity"][name] = milli(amount)
            if result.get("shareID"):
                result["shareID"] = "any"
    return allocation


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: case["id"])
def test_each_node_gives_the_recorded_devices(case: dict[str, Any]) -> None:
    expressions = tables(case)

    got = allocate(case["input"], lambda expression: Recorded(expressions[expression]))

    assert {name: plain(each) for name, each in got["nodes"].items()} == {
        name: plain(each) for name, each in case["expect"]["nodes"].items()
    }
