"""Alerts and the dashboard of the chart ask for metrics that the code has, and each alert has its runbook."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from gangline_docs import metrics
from gangline_docs.metrics import Described

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "gpu-scheduler"
RULES = (CHART / "templates" / "monitoring.yaml").read_text(encoding="utf-8")
BOARD: dict[str, Any] = json.loads((CHART / "dashboards" / "gangline.json").read_text(encoding="utf-8"))
RUNBOOKS = (ROOT / "docs" / "operating" / "runbooks.md").read_text(encoding="utf-8")
PARTS = ("**Meaning.**", "**Impact.**", "**What to look at.**", "**What to do.**")
"""What a runbook has, in this order."""
SOURCES = ("framework/gangline", "plugins/gangline_plugins", "agent/gangline_agent", "webhook/gangline_webhook")
NAME = re.compile(r"\b((?:gangline|scheduler|topology|leader_election)_[a-z_]+)(\{[^}]*\})?")
SELECTED = re.compile(r'(\w+)(?:=~|=|!=)"([^"]*)"')
BY = re.compile(r"\bby \(([^)]*)\)")
OF_HISTOGRAM = ("_bucket", "_sum", "_count")


def alerts() -> dict[str, str]:
    """The expression of each alert; what Helm fills in is left out."""
    found = re.findall(r"- alert: (\w+)\n\s+expr: (.+)\n", RULES)
    return {name: re.sub(r"\{\{.*?\}\}", '"x"', expression) for name, expression in found}


def panels() -> dict[str, dict[str, Any]]:
    return {panel["title"]: panel for panel in BOARD["panels"] if panel["type"] != "row"}


def asked() -> dict[str, str]:
    """Every expression of the chart by the place where it stands."""
    board = {
        f"{title} {target['refId']}": target["expr"] for title, panel in panels().items() for target in panel["targets"]
    }
    return {**alerts(), **board}


@cache
def known() -> dict[str, Described]:
    """Every metric of the three programs as Prometheus has it."""
    found: dict[str, Described] = {}
    for each in (*metrics.of_scheduler(), *metrics.of_webhook(), *metrics.of_agent()):
        suffixes = OF_HISTOGRAM if each.kind == "histogram" else ("",)
        found |= {each.name + suffix: each for suffix in suffixes}
    return found


@cache
def code() -> str:
    files = (file for source in SOURCES for file in sorted((ROOT / source).rglob("*.py")))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("place", asked())
def test_an_expression_asks_for_metrics_labels_and_values_that_there_are(place: str) -> None:
    expression = asked()[place]
    found = NAME.findall(expression)

    assert found
    assert [name for name, _ in found if name not in known()] == []
    labels = {label for name, _ in found for label in known()[name].labels} | {"le"}
    grouped = {label.strip() for by in BY.findall(expression) for label in by.split(",")}
    assert grouped <= labels
    for name, selector in found:
        for label, values in SELECTED.findall(selector):
            assert label in known()[name].labels
            assert [value for value in values.split("|") if value != "x" and f'"{value}"' not in code()] == []


def test_every_alert_was_read() -> None:
    assert len(alerts()) == RULES.count("- alert:") >= 6


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_leads_to_its_runbook(alert: str) -> None:
    rule = RULES.partition(f"- alert: {alert}\n")[2].partition("- alert:")[0]
    section = RUNBOOKS.partition(f"\n## {alert}\n")[2].partition("\n## ")[0]

    assert f'runbook_url: {{{{ include "gangline.runbook" (list $ "{alert}") }}}}' in rule
    assert "severity: " in rule and "summary: " in rule and "for: " in rule
    assert [part for part in PARTS if part not in section] == []
    assert sorted(PARTS, key=section.index) == list(PARTS)


def test_no_runbook_is_left_without_an_alert() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE) == list(alerts())


def test_a_runbook_names_panels_that_the_dashboard_has() -> None:
    named = re.findall(r"\bpanels? ((?:\*[^*]+\*(?: and )?)+)", RUNBOOKS.replace("\n", " "))
    titles = {title for names in named for title in re.findall(r"\*([^*]+)\*", names)}

    assert len(titles) >= 5
    assert titles <= panels().keys()


def test_the_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    placed = [panel["gridPos"] for panel in BOARD["panels"]]

    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    assert all(at["x"] + at["w"] <= 24 for at in placed)
    assert [pair for pair in combinations(placed, 2) if overlap(*pair)] == []


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]


def test_every_panel_reads_the_data_source_that_the_user_chooses() -> None:
    (variable,) = BOARD["templating"]["list"]

    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")
    sources = [source["datasource"] for panel in panels().values() for source in (panel, *panel["targets"])]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


def test_every_panel_has_a_title_of_its_own_and_a_unit() -> None:
    titled = [panel for panel in BOARD["panels"] if panel["type"] != "row"]

    assert len(panels()) == len(titled)
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in titled)
