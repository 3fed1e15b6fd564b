"""Gangline and kube-scheduler v1.36.2 agree on every recorded problem: filters, scores, totals and messages."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings

from gangline.explain import verdict

Case = dict[str, Any]
DATA = Path(__file__).parent / "data" / "kube-scheduler-v1.36.2.jsonl.gz"


def read_cases() -> dict[str, list[Case]]:
    families: dict[str, list[Case]] = defaultdict(list)
    with gzip.open(DATA) as lines:
        for line in lines:
            case: Case = msgspec.json.decode(line)
            families[case["family"]].append(case)
    return families


CASES = read_cases()


def judged(case: Case, pod: Mapping[str, Any]) -> Case:
    gates = dict(entry.split("=") for entry in case.get("gates", "").split(",") if entry)
    return verdict({**case["input"], "pod": pod, "_gates": {name: value == "true" for name, value in gates.items()}})


def differences(case: Case, got: Case) -> list[str]:
    """What is not as recorded; [] when everything is."""
    expect = case["expect"]
    wrong = []
    if sorted(got["feasible"]) != expect["feasible"]:
        wrong.append(f"feasible: {sorted(got['feasible'])} instead of {expect['feasible']}")
    if expect["prefilter"]["code"] == "Success" and got["filter"] != expect["filter"]:
        wrong.append(f"filter: {got['filter']} instead of {expect['filter']}")
    if "message" in expect and got["message"] != expect["message"]:
        wrong.append(f"message: {got['message']!r} instead of {expect['message']!r}")
    for profile, scores in expect["scores"].items():
        for plugin, column in scores.items():
            mine = got["scores"][profile].get(plugin, dict.fromkeys(column, 0))
            if mine != column:
                wrong.append(f"scores of {plugin} in {profile}: {mine} instead of {column}")
    for profile, totals in expect["totals"].items():
        if expect["scores"] and got["totals"][profile] != totals:
            wrong.append(f"totals of {profile}: {got['totals'][profile]} instead of {totals}")
    return wrong


@pytest.mark.parametrize("family", sorted(CASES))
def test_every_recorded_verdict_is_the_same(family: str) -> None:
    cases = CASES[family][:: max(1, 50 // settings().max_examples)]  # one of five in the inner loop, each in CI

    wrong = {case["id"]: found for case in cases if (found := differences(case, judged(case, case["input"]["pod"])))}

    assert wrong == {}


def test_a_pod_as_a_user_wrote_it_gets_the_same_verdict_as_after_an_api_server() -> None:
    first, least = (12, 50) if settings().derandomize else (4, 20)  # of each family a third in the inner loop
    submitted = [case for cases in CASES.values() for case in cases[:first] if "pod_submitted" in case["input"]]

    wrong = {c["id"]: found for c in submitted if (found := differences(c, judged(c, c["input"]["pod_submitted"])))}

    assert len(submitted) > least
    assert wrong == {}


def test_the_set_is_the_whole_one() -> None:
    assert sum(len(cases) for cases in CASES.values()) == 665
