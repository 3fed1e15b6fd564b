"""Arithmetic for scores, in whole numbers, rounded as kube-scheduler rounds."""

from __future__ import annotations

import numpy as np

from gangline.status import ScoreColumn


def default_normalize(scores: ScoreColumn, reverse: bool = False) -> ScoreColumn:
    """Scale scores so that the highest becomes 100; with `reverse` the lowest score is the best.

    Source: kube-scheduler's DefaultNormalizeScore.
    """
    highest = scores.max(initial=0.0)
    if highest == 0.0:
        return np.full_like(scores, 100.0) if reverse else scores
    scaled = np.floor(scores * 100.0 / highest)
    return 100.0 - scaled if reverse else scaled
