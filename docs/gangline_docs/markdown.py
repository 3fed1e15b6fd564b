"""Puts text into Markdown: tables, code, headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown, on one line each."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(map(_cell, cells)) + " |" for cells in lines)


def code(text: str) -> str:
    """Text as code; nothing stays nothing. A bar in backticks would end the cell of a table."""
    if "|" in text:
        return f"<code>{escape(text).replace('|', '&#124;')}</code>"
    return f"`{text}`" if text else ""


def prose(docstring: str) -> str:
    """A docstring as Markdown: double backticks become single ones, the paragraphs stay."""
    return re.sub(r"``(.+?)``", r"`\1`", docstring.strip())


def sentences(*texts: str) -> str:
    """Texts as sentences, one after the other; those that are empty are left out."""
    full = (text[:1].upper() + text[1:] for text in texts if text)
    return " ".join(text if text.endswith((".", "?", "!")) else f"{text}." for text in full)


def page(title: str, summary: str, *parts: str) -> str:
    """A whole page."""
    return "\n\n".join((f"# {title}", summary, *(part for part in parts if part))) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
