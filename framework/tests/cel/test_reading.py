from __future__ import annotations

import pytest

from gangline import cel

_DOMAIN = 'device.attributes["a.example.com"]'


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ("true", set()),
        ('device.driver == "x" || device.allowMultipleAllocations', {("driver",), ("allowMultipleAllocations",)}),
        (f"{_DOMAIN}.model == 1", {("attributes", "a.example.com", "model")}),
        (f'{_DOMAIN}["model"].size() > 1', {("attributes", "a.example.com", "model")}),
        (f"has({_DOMAIN}.model)", {("attributes", "a.example.com", "model")}),
        (f"{_DOMAIN}.?model.hasValue()", {("attributes", "a.example.com", "model")}),
        (
            'device.capacity["a"].b.isLessThan(quantity("1"))',
            {("capacity", "a", "b")},
        ),
        ("[1].all(device, device > 0)", set()),
    ],
)
def test_a_program_says_what_it_reads(expression: str, reads: set[tuple[str, ...]]) -> None:
    assert cel.compile(expression).reads == frozenset(reads)


@pytest.mark.parametrize(
    "expression",
    [
        f"{_DOMAIN}.all(k, true)",
        f'"model" in {_DOMAIN}',
        "device.attributes.size() == 1",
        f'cel.bind(d, {_DOMAIN}, d.model == "x")',
        "device == device",
        "device.attributes[device.driver].model == 1",
    ],
)
def test_a_program_that_reads_more_than_single_values_reads_everything(expression: str) -> None:
    assert cel.compile(expression).reads is cel.EVERYTHING
