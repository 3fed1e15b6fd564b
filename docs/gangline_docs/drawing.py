"""Draws SVG: boxes, arrows and text in colours that can be read in the light and in the dark.

A picture has a background of its own, so it stays readable where the page around it has the other scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal

Kind = Literal["plain", "ours", "good"]
Point = tuple[float, float]

_LIGHT = {
    "panel": "#ffffff",
    "text": "#1d2433",
    "dim": "#57606f",
    "plain": "#eef1f6",
    "ours": "#dfe4fb",
    "good": "#d5f0de",
    "plain-line": "#8791a3",
    "ours-line": "#4457c4",
    "good-line": "#2e8b57",
    "free-line": "#b7bfcc",
}
_DARK = {
    "panel": "#161b26",
    "text": "#e8ecf4",
    "dim": "#a4aebf",
    "plain": "#262d3b",
    "ours": "#2a3372",
    "good": "#1d4a33",
    "plain-line": "#7d889b",
    "ours-line": "#8c9bff",
    "good-line": "#5cc98c",
    "free-line": "#465064",
}
GANGS = ("#3f6fd8", "#e08a1e", "#2fa36b", "#b455c4", "#d6475f", "#1a9fb3", "#8a7a2c", "#7a5cf0")
"""Colours that tell workloads apart, on both backgrounds."""
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


_HEAD = (
    '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="tip" d="M 0 0 L 10 5 L 0 10 z"/></marker>'
)
"""The head of an arrow."""


class Picture:
    """An SVG in the making; coordinates are pixels from the top left."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._width = width
        self._height = height
        self._title = title
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, lines: Sequence[str], kind: Kind = "plain") -> None:
        """A box with lines of text in its middle, the first in bold."""
        self._parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"/>')
        middle, top = x + width / 2, y + height / 2 - 9 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.text(middle, top + 18 * number, line, "bold" if number == 0 else "dim", anchor="middle")

    def cell(self, x: float, y: float, size: float, colour: str = "") -> None:
        """A small square, of a workload's colour, or empty."""
        fill = f'fill="{colour}"' if colour else 'class="free"'
        self._parts.append(f'<rect {fill} x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}" rx="2"/>')

    def arrow(self, points: Sequence[Point]) -> None:
        """A line along points with a head at its end."""
        path = " L ".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<path class="arrow" d="M {path}" marker-end="url(#head)"/>')

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """One line of text; y is its base line."""
        words = f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
        self._parts.append(words)

    def svg(self) -> str:
        """The file."""
        size = f'width="{self._width}" height="{self._height}" viewBox="0 0 {self._width} {self._height}"'
        title = escape(self._title)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">',
                f"<title>{title}</title>",
                f"<style>\n{_style()}\n</style>",
                "<defs>",
                _HEAD,
                "</defs>",
                '<rect class="panel" width="100%" height="100%" rx="12"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def _style() -> str:
    return "\n".join([*_rules(_LIGHT), "@media (prefers-color-scheme: dark) {", *_rules(_DARK), "}", *_fixed()])


def _rules(colours: dict[str, str]) -> list[str]:
    rules = [
        f".panel {{ fill: {colours['panel']}; }}",
        f"text {{ fill: {colours['text']}; }}",
        f".dim {{ fill: {colours['dim']}; }}",
        f".free {{ fill: none; stroke: {colours['free-line']}; }}",
        f".arrow {{ stroke: {colours['plain-line']}; }} .tip {{ fill: {colours['plain-line']}; }}",
    ]
    return rules + [
        f".{kind} {{ fill: {colours[kind]}; stroke: {colours[f'{kind}-line']}; }}" for kind in ("plain", "ours", "good")
    ]


def _fixed() -> list[str]:
    return [
        f"text {{ font: 13px {FONT}; }}",
        ".bold { font-weight: 600; }",
        ".large { font-size: 15px; font-weight: 600; }",
        "path { fill: none; stroke-width: 1.6; }",
        "marker path { stroke: none; }",
    ]
