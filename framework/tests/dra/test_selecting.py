"""Expressions are evaluated once for each distinct tuple of what they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gangline.dra import Selectors, SliceTable
from gangline.testing import cluster, make_node

from .offers import device, offer


class Counted:
    """An expression that counts how often it is evaluated."""

    def __init__(self, reads: frozenset[tuple[str, ...]] | None) -> None:
        self.reads = reads
        self.calls = 0

    def __call__(self, device: Mapping[str, Any]) -> bool:
        self.calls += 1
        return bool(device["attributes"].get("model") == {"string": "x"})


DEVICES = [device(f"d{i}", attributes={"model": "xy"[i % 2], "uuid": str(i)}) for i in range(10)]


@pytest.mark.parametrize(
    ("reads", "calls"),
    [
        (frozenset((("attributes", "gpu.example.com", "model"),)), 2),
        (
            frozenset(
                (("attributes", "gpu.example.com", "model"), ("driver",), ("capacity", "gpu.example.com", "memory"))
            ),
            2,
        ),
        (frozenset((("attributes", "gpu.example.com", "model"), ("allowMultipleAllocations",))), 2),
        (frozenset((("attributes", "gpu.example.com"),)), 10),
        (None, 10),
    ],
    ids=["one", "several", "flag", "a whole domain", "everything"],
)
def test_equal_devices_are_evaluated_once(reads: frozenset[tuple[str, ...]] | None, calls: int) -> None:
    table = SliceTable([offer("s", DEVICES)], cluster([make_node("a")]).nodes.view())
    program = Counted(reads)
    selectors = Selectors(table, lambda _: program)

    verdicts = selectors.verdicts(("expression",))
    again = selectors.verdicts(("expression", "expression"))

    assert verdicts.tolist() == again.tolist() == [1, 0] * 5
    assert program.calls == calls
