"""Disruption budgets as far as evictions need them: which pods they cover, and how many more may go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline import model
from gangline.state.selectors import compile_selector


def covers(budget: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a budget counts a pod of its namespace; an empty selector counts all, none at all nobody."""
    text = budget["spec"].get("selector")
    if text is None:
        return False
    selector = compile_selector(msgspec.convert(text, model.LabelSelector))
    return selector.matches(pod["metadata"].get("labels") or {})


def allowed(budget: Mapping[str, Any]) -> int:
    """How many more pods may go."""
    return int(budget.get("status", {}).get("disruptionsAllowed", 0))


def with_one_less(budget: Mapping[str, Any]) -> dict[str, Any]:
    """The status after one pod has gone."""
    return {**budget.get("status", {}), "disruptionsAllowed": allowed(budget) - 1}
