"""The parts of SVG that the pictures of benchmarks share."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def picture(width: float, height: float, parts: Iterable[str]) -> str:
    """The parts on a white ground."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def text(left: float, top: float, said: str, size: int = 12, colour: str = "#333") -> str:
    """A line of text."""
    return f'<text x="{left:.1f}" y="{top:.1f}" font-size="{size}" fill="{colour}">{escape(said)}</text>'
