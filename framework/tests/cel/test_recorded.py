"""Verdicts of Kubernetes' own evaluator: true, false, compile error or runtime error, and what evaluation cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gangline import cel
from gangline.errors import ExpressionFailed, InvalidExpression

_DATA = Path(__file__).parent / "data"


def _answer(case: dict[str, Any], device: dict[str, Any], has_lists: bool = False) -> tuple[str, int | None]:
    try:
        program = cel.compile(case["expression"], has_lists)
    except InvalidExpression:
        return "compile error", None
    try:
        value, cost = program.evaluated(cel.CelDevice.of(device, has_lists))
    except ExpressionFailed:
        return "runtime error", None
    return str(value).lower(), cost


def test_every_recorded_expression_has_the_recorded_answer() -> None:
    devices = json.loads((_DATA / "devices.json").read_text())
    wrong: list[str] = []
    costs = dearer = 0
    for line in (_DATA / "recorded.jsonl").read_text().splitlines():
        case = json.loads(line)
        got, cost = _answer(case, devices[case["device"]])
        if got != case["expect"]:
            wrong.append(f"{case['expression']}: {got} instead of {case['expect']}")
        if cost is not None:
            costs += 1
            dearer += cost != case["cost"]
    assert not wrong, "\n".join(wrong[:20])
    assert costs > 500
    assert dearer <= costs * 0.01  # a term that fails and is absorbed may be charged a little differently


def test_every_recorded_expression_about_lists_has_the_recorded_answer_and_cost() -> None:
    devices = json.loads((_DATA / "devices_with_lists.json").read_text())
    cases = [json.loads(line) for line in (_DATA / "recorded_lists.jsonl").read_text().splitlines()]

    answers = [_answer(case, devices[case["device"]], has_lists=True) for case in cases]

    found = [
        (case["expression"], answer, cost if "cost" in case else None)
        for case, (answer, cost) in zip(cases, answers, strict=True)
    ]
    assert found == [(case["expression"], case["expect"], case.get("cost")) for case in cases]
    assert sum("cost" in case for case in cases) > 200


def test_without_lists_they_are_values_of_no_type_and_nothing_includes() -> None:
    device = {"driver": "d", "attributes": {"roots": {"strings": ["a"]}, "one": {"string": "a"}}}
    scalar = {"driver": "d", "attributes": {"one": {"string": "a"}}}

    assert _answer({"expression": 'device.attributes["d"].one == "a"'}, device)[0] == "runtime error"
    assert _answer({"expression": 'device.attributes["d"].one.includes("a")'}, scalar)[0] == "compile error"
    assert _answer({"expression": 'device.attributes["d"].one.exists(x, x == "a")'}, scalar)[0] == "compile error"
