"""Verdicts of Kubernetes' own evaluator: true, false, compile error or runtime error, and what evaluation cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gangline import cel
from gangline.errors import ExpressionFailed, InvalidExpression

_DATA = Path(__file__).parent / "data"


def _answer(case: dict[str, Any], device: dict[str, Any]) -> tuple[str, int | None]:
    try:
        program = cel.compile(case["expression"])
    except InvalidExpression:
        return "compile error", None
    try:
        value, cost = program.evaluated(cel.CelDevice.of(device))
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
