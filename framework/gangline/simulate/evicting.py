"""The part of disruption budgets that evictions need: the pods of a budget, and how many more may be disrupted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline import model
from gangline.state.selectors import compile_selector


def covers(budget: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a budget covers a pod of its namespace. An empty selector covers all pods, a missing selector none."""
    text = budget["spec"].get("selector")
    if text is None:
        return False
    selector = compile_selector(msgspec.convert(text, model.LabelSelector))
    return selector.matches(pod["metadata"].get("labels") or {})


def allowed(budget: Mapping[str, Any]) -> int:
    """How many more pods may be disrupted."""
    return int(budget.get("status", {}).get("disruptionsAllowed", 0))


def with_one_less(budget: Mapping[str, Any]) -> dict[str, Any]:
    """The status after one more disruption."""
    return {**budget.get("status", {}), "disruptionsAllowed": allowed(budget) - 1}
