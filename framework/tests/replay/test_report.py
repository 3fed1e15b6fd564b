"""The report is one file without scripts, with a table beside each chart, in which all names are text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from gangline.replay import charts
from gangline.replay.figures import Replayed
from gangline.replay.report import report

from .test_playing import gpu_job, nodes, played

EVIL = "</style><script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


def text(*profiles: str, evicts: bool = True) -> str:
    jobs = [gpu_job(0, 100), gpu_job(60, 10, priority=5 if evicts else 0)]
    found = [played(jobs, nodes(1), name) for name in ("gpu-scheduler", "default")[: len(profiles)]]
    renamed = [
        type(each)(**{**{f: getattr(each, f) for f in each.__slots__}, "profile": name})
        for each, name in zip(found, profiles, strict=True)
    ]
    return report(Replayed([EVIL], 1, 8, 2, 2, renamed))


def test_names_are_text_and_nothing_is_loaded_or_run() -> None:
    made = text(EVIL, "b")

    assert "<script" not in made
    assert "<img" not in made
    assert made.count("<style>") == 1
    style = made.split("<style>")[1].split("</style>")[0]
    tags = "".join(re.findall(r"<[^>]*>", made))
    assert not re.search(r"\b(?:src|href|on\w+)=|url\(|@import", tags + style)
    assert "default-src 'none'" in made


def test_every_chart_has_a_title_a_description_and_a_table() -> None:
    made = text("a", "b")
    drawn = re.findall(r'<svg class="chart".*?</svg>', made)

    assert len(drawn) == 6
    assert made.count("<table>") == 7
    for each in drawn:
        svg = ET.fromstring(each)
        ids = (svg.get("aria-labelledby") or "").split()
        assert [svg[0].get("id"), svg[1].get("id")] == ids
        assert svg[0].text and svg[1].text


def test_without_evictions_the_report_says_so() -> None:
    assert "No pod was evicted" in text("a", evicts=False)


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.0, 100.0, [0, 20, 40, 60, 80, 100]),
        (0.0, 0.3, [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (80.0, 130.0, [80, 90, 100, 110, 120, 130]),
        (0.0, 0.0, [0, 1]),
        (0.0, float("inf"), [0, 1]),
        (0.0, 1e300, [0, 2e299, 4e299, 6e299, 8e299, 1e300]),
    ],
)
def test_axes_have_round_numbers(low: float, high: float, shown: list[float]) -> None:
    assert charts.ticks(low, high) == pytest.approx(shown)


def test_charts_without_points_are_drawn() -> None:
    for made in (charts.curves("a", "t", "d", {"a": []}, "x", "y"), charts.bars("b", "t", "d", {}, "y", 0.0)):
        assert ET.fromstring(made).get("role") == "img"
