"""Draws the outcomes as SVG: a bar for each scheduler, and a line on the bar from the least to the greatest value."""

from __future__ import annotations

from collections.abc import Sequence

from svg import picture, text
from vs_kube import figures
from vs_kube.figures import KUBE, OURS, Metric
from vs_kube.telling import Outcome, spelt

_WIDTH, _LABEL, _BAR, _RATIO = 960, 230, 420, 850
_ROW, _HEAD, _TOP = 46, 44, 48
_COLOURS = {KUBE: "#9498a0", OURS: "#4269d0"}


def draw(outcomes: Sequence[Outcome]) -> str:
    """One picture of all workloads, one below the other."""
    parts = [text(16, 26, "Gangline and kube-scheduler on one machine, one after the other", 16)]
    for number, name in enumerate(_COLOURS):
        parts += [_box(560 + 130 * number, 15, 12, 12, _COLOURS[name]), text(578 + 130 * number, 26, name)]
    parts.append(text(_RATIO, 26, "ratio"))
    top = _TOP
    for outcome in outcomes:
        parts += _head(outcome, top)
        top += _HEAD
        for metric in outcome.metrics:
            parts += _figure(outcome, metric, top)
            top += _ROW
    return picture(_WIDTH, top + 12, parts)


def _head(outcome: Outcome, top: float) -> list[str]:
    loud = "   THE MACHINE WAS NOT QUIET" if figures.unquiet(outcome.runs) else ""
    return [
        f'<line x1="16" y1="{top + 6}" x2="{_WIDTH - 16}" y2="{top + 6}" stroke="#ddd"/>',
        text(16, top + 28, outcome.title() + loud, 13, "#b3261e" if loud else "#111"),
    ]


def _figure(outcome: Outcome, metric: Metric, top: float) -> list[str]:
    spreads = {name: outcome.of(name, metric) for name in _COLOURS}
    greatest = max(spread.greatest for spread in spreads.values()) or 1.0
    parts = [text(16, top + 22, metric.title)]
    for number, (name, spread) in enumerate(spreads.items()):
        y, scale = top + 4 + 18 * number, _BAR / greatest
        parts.append(_box(_LABEL, y, max(1.0, spread.median * scale), 14, _COLOURS[name]))
        ends = [_LABEL + each * scale for each in (spread.least, spread.greatest)]
        parts.append(f'<line x1="{ends[0]:.1f}" y1="{y + 7}" x2="{ends[1]:.1f}" y2="{y + 7}" stroke="#111"/>')
        parts.append(text(_LABEL + _BAR + 10, y + 12, spelt(spread, metric.form)))
    parts.append(text(_RATIO, top + 24, spelt(outcome.ratio(metric), "{:.3f}").partition(" ")[0], 14, "#111"))
    return parts


def _box(left: float, top: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
