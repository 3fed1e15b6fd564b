"""Draws curves as SVG: demand in % to the right, what is allocated in % upwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from svg import picture, text

_WIDTH, _HEIGHT, _MARGIN, _LEGEND = 760, 460, 50, 170
_COLOURS = (
    "#4269d0",
    "#efb118",
    "#ff725c",
    "#6cc5b0",
    "#3ca951",
    "#ff8ab7",
    "#a463f2",
    "#97bbf5",
    "#9c6b4e",
    "#9498a0",
)


def draw(title: str, curves: Mapping[str, Sequence[tuple[float, float]]], x: range, y: range) -> str:
    """The SVG of the curves within the ranges `x` and `y`; their steps are the distances of the grid lines."""
    right, bottom = _WIDTH - _LEGEND, _HEIGHT - _MARGIN

    def place(at: tuple[float, float]) -> tuple[float, float]:
        return (
            _MARGIN + (at[0] - x[0]) / (x[-1] - x[0]) * (right - _MARGIN),
            bottom - (at[1] - y[0]) / (y[-1] - y[0]) * (bottom - _MARGIN),
        )

    parts = [text(_MARGIN, 28, title, 15)]
    for at in x:
        left = place((at, y[0]))[0]
        parts += [_line(left, _MARGIN, left, bottom), text(left - 10, bottom + 18, f"{at}")]
    for at in y:
        top = place((x[0], at))[1]
        parts += [_line(_MARGIN, top, right, top), text(14, top + 4, f"{at}")]
    for number, (name, points) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        inside = [place(point) for point in points if x[0] <= point[0] <= x[-1] and y[0] <= point[1] <= y[-1]]
        path = " ".join(f"{left:.1f},{top:.1f}" for left, top in inside)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        parts.append(text(right + 12, _MARGIN + 20 * number, name, colour=colour))
    return picture(_WIDTH, _HEIGHT, parts)


def _line(left: float, top: float, right: float, bottom: float) -> str:
    return f'<line x1="{left:.1f}" y1="{top:.1f}" x2="{right:.1f}" y2="{bottom:.1f}" stroke="#ddd"/>'
