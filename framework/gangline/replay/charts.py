"""Draws charts as SVG: curves over time, and bars side by side. Names and numbers of any kind are escaped.

The colours are those of the classes c0 to c7 in the style sheet of the page, so that a chart follows its light or dark;
curves differ by their dashes as well, and bars by their order. Each chart has a title and a description for screen
readers. This module is small because it draws what the report needs and nothing else: matplotlib
would add 100 MiB to the image, and draws no SVG that follows the colours of a page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

MOST_CURVES = 8
DASHES = ("", "7 3", "2 3", "9 3 2 3", "14 4", "4 2 1 2", "1 3", "12 2 2 2 2 2")
"""The dashes of the curves, as stroke-dasharray."""
_WIDTH, _HEIGHT = 720.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 12.0, 12.0, 44.0
_MOST_TICKS = 6

Points = Sequence[tuple[float, float]]
COLOURS = ("#3355bb", "#b04a00", "#1b7f4b", "#8a3ea8", "#a3244f", "#00737d", "#6b6100", "#555f6b")
"""The colours of curves and bars on a light page."""
DARK_COLOURS = ("#8fb0ff", "#ffb26b", "#6fd6a1", "#d9a5f2", "#ff94b4", "#63d3dd", "#d8cc5a", "#b4bfcb")
STYLE = (
    ".axis{stroke:#8888;stroke-width:1}.label{fill:currentColor;font-size:12px}.curve{fill:none;stroke-width:2}"
    + "".join(f".c{n}{{--chart:{colour}}}" for n, colour in enumerate(COLOURS))
    + "@media (prefers-color-scheme:dark){"
    + "".join(f".c{n}{{--chart:{colour}}}" for n, colour in enumerate(DARK_COLOURS))
    + "}.curve{stroke:var(--chart)}.bar,.swatch{fill:var(--chart)}"
)
"""The rules of CSS that the charts need."""


def curves(
    id: str,
    title: str,
    description: str,
    lines: Mapping[str, Points],
    across: str,
    upwards: str,
    lowest: float = 0.0,
    highest: float | None = None,
) -> str:
    """Curves by name; the axes are named `across` and `upwards`."""
    points = [point for line in lines.values() for point in line if math.isfinite(point[0] + point[1])]
    right = max((x for x, _ in points), default=1.0)
    left = min((x for x, _ in points), default=0.0)
    top = highest if highest is not None else max((y for _, y in points), default=1.0)
    left = 0.0 if 0.0 < left < 0.1 * right else left
    xs, ys = ticks(left, right), ticks(lowest, top)
    frame = _Frame(left, right, ys[0], ys[-1])
    parts = [*_grid(frame, xs, ys, across, upwards)]
    for number, (_, line) in enumerate(list(lines.items())[:MOST_CURVES]):
        inside = [p for p in line if math.isfinite(p[0] + p[1])]
        path = " ".join(f"{frame.x(x):.1f},{frame.y(min(max(y, ys[0]), ys[-1])):.1f}" for x, y in inside)
        dash = f' stroke-dasharray="{DASHES[number]}"' if DASHES[number] else ""
        parts.append(f'<polyline class="curve c{number}" points="{path}"{dash}/>')
    return _svg(id, title, description, parts)


def bars(
    id: str, title: str, description: str, groups: Mapping[str, Sequence[float]], upwards: str, highest: float
) -> str:
    """A chart with a group of bars for each name, and in it one bar for each series; the axis ends at `highest`."""
    ys = ticks(0.0, highest or 1.0)
    frame = _Frame(0.0, max(len(groups), 1), ys[0], ys[-1])
    parts = [*_grid(frame, (), ys, "", upwards)]
    for place, (name, values) in enumerate(groups.items()):
        width = 0.8 / max(len(values), 1)
        for number, value in enumerate(values[:MOST_CURVES]):
            x, y = frame.x(place + 0.1 + number * width), frame.y(min(max(value, 0.0), ys[-1]))
            wide, high = frame.x(width) - frame.x(0) - 1, frame.y(ys[0]) - y
            parts.append(
                f'<rect class="bar c{number}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"/>'
            )
        parts.append(_text(frame.x(place + 0.5), _HEIGHT - _BOTTOM + 18, name, "middle"))
    return _svg(id, title, description, parts)


def legend(names: Iterable[str]) -> str:
    """The names of the series, each with its colour and its dashes; HTML."""
    shown = []
    for number, name in enumerate(list(names)[:MOST_CURVES]):
        dash = f' stroke-dasharray="{DASHES[number]}"' if DASHES[number] else ""
        line = f'<line class="curve c{number}" x1="0" y1="6" x2="34" y2="6"{dash}/>'
        shown.append(f'<li><svg width="34" height="12" aria-hidden="true">{line}</svg> {escape(name)}</li>')
    return f'<ul class="legend">{"".join(shown)}</ul>'


def ticks(low: float, high: float) -> list[float]:
    """Round numbers that enclose the range, not more than a few."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low, low + 1.0]
    raw = span / _MOST_TICKS
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


class _Frame:
    """Maps values to places in the picture."""

    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self._left, self._low = left, low
        self._across = (_WIDTH - _LEFT - _RIGHT) / ((right - left) or 1.0)
        self._up = (_HEIGHT - _TOP - _BOTTOM) / ((high - low) or 1.0)

    def x(self, value: float) -> float:
        return _LEFT + (value - self._left) * self._across

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - self._low) * self._up


def _grid(frame: _Frame, xs: Sequence[float], ys: Sequence[float], across: str, upwards: str) -> Iterable[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for y in ys:
        yield f'<line class="axis" x1="{_LEFT}" y1="{frame.y(y):.1f}" x2="{right}" y2="{frame.y(y):.1f}"/>'
        yield _text(_LEFT - 6, frame.y(y) + 4, f"{y:g}", "end")
    for x in xs:
        if _LEFT - 1 <= frame.x(x) <= right + 1:
            yield f'<line class="axis" x1="{frame.x(x):.1f}" y1="{bottom}" x2="{frame.x(x):.1f}" y2="{bottom + 4}"/>'
            yield _text(frame.x(x), bottom + 18, f"{x:g}", "middle")
    yield _text((_LEFT + right) / 2, _HEIGHT - 6, across, "middle")
    middle = (_TOP + bottom) / 2
    turned = f'transform="rotate(-90 14 {middle:.1f})"'
    yield f'<text class="label" x="14" y="{middle:.1f}" text-anchor="middle" {turned}>{escape(upwards)}</text>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(id: str, title: str, description: str, parts: Iterable[str]) -> str:
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" '
        f'aria-labelledby="{escape(id)}-title {escape(id)}-description" font-family="sans-serif">'
        f'<title id="{escape(id)}-title">{escape(title)}</title>'
        f'<desc id="{escape(id)}-description">{escape(description)}</desc>{"".join(parts)}</svg>'
    )
