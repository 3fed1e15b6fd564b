"""What plugins answer for many nodes at once, checked: a column of the right length and kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.errors import PluginError
from gangline.registry import Implementation
from gangline.status import ScoreColumn

MAX_SCORE = 100.0


def scores_of(impl: Implementation, point: str, answer: Any, size: int) -> ScoreColumn:
    """What a plugin has scored, as numbers, one per node. Raises PluginError."""
    try:
        scores = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PluginError(impl.name, point, f"must return numbers, one per node: {error}") from error
    check_length(impl, point, scores, size)
    return scores


def check_length(impl: Implementation, point: str, column: Any, size: int) -> None:
    """One value per node is expected. Raises PluginError."""
    if column.shape != (size,):
        raise PluginError(
            impl.name,
            point,
            f"returned an array of shape {column.shape} for {size} nodes; one value per node is expected",
        )


def check_range(impl: Implementation, scores: ScoreColumn) -> None:
    """Scores are 0..100. Raises PluginError."""
    if len(scores) and not (scores.min() >= 0.0 and scores.max() <= MAX_SCORE):
        raise out_of_range(impl, scores.min(), scores.max())


def out_of_range(impl: Implementation, lowest: float, highest: float) -> PluginError:
    """The error for scores that are not 0..100."""
    return PluginError(impl.name, "score", f"scores must be 0..100, got {lowest:g}..{highest:g}")
