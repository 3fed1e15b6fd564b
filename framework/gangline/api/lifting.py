"""`per_node` lifts a plugin's method that looks at one node at a time to a method for columns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gangline.api.cycle_state import Cycle
from gangline.state.node_view import NodeView
from gangline.state.pods import PodInfo
from gangline.status import CodeColumn, Reason, ScoreColumn

MOST_REASONS = 255
"""Different reasons, in all, with which a method lifted by `per_node` may reject nodes."""


def per_node(
    function: Callable[[Any, PodInfo, Any], Any],
) -> Callable[[Any, Cycle, PodInfo, NodeView], Any]:
    """Lift `method(self, pod, node)` to columns; use it below `@hookimpl`, on `filter` or `score`.

    A filter returns True or None to pass the node, and False or a text (the reason) to reject it. A score returns a
    number. The method is called once per node, so use this only in plugins whose cost does not matter.
    """
    if function.__name__ == "score":

        @functools.wraps(function)
        def score(self: Any, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
            scores = np.zeros(len(nodes))
            for i in np.flatnonzero(nodes.alive).tolist():  # `per_node` means a loop over nodes
                scores[i] = function(self, pod, nodes.node(i))
            return scores

        return _with_full_signature(score)

    @functools.wraps(function)
    def filter(self: Any, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        verdicts = np.zeros(len(nodes), dtype=np.uint8)
        numbers: dict[bool | str, int] = {}
        for i in np.flatnonzero(nodes.alive).tolist():  # `per_node` means a loop over nodes
            answer = function(self, pod, nodes.node(i))
            if isinstance(answer, str) or not (answer is None or answer):
                why = answer if isinstance(answer, str) else False
                if why not in numbers:
                    numbers[why] = _reason_number(self, why)
                verdicts[i] = numbers[why]
        return verdicts

    lifted = _with_full_signature(filter)
    lifted.is_lifted = True  # the plugin need not declare `reasons`: they come from the answers
    return lifted


def _with_full_signature(lifted: Any) -> Any:
    del lifted.__wrapped__  # pluggy reads the arguments from the signature
    return lifted


def _reason_number(plugin: Any, answer: bool | str) -> int:
    """The number of a reason; when there are MOST_REASONS, all further reasons share number 1."""
    common = f"node(s) were rejected by {plugin.name}"
    message = answer if isinstance(answer, str) else common
    reasons: list[Any] = plugin.__dict__.setdefault("reasons", [Reason(common)])
    for number, reason in enumerate(reasons, start=1):
        if reason.message == message:
            return number
    if len(reasons) == MOST_REASONS:
        return 1
    reasons.append(Reason(message))
    return len(reasons)
