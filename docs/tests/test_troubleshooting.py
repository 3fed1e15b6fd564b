"""Every message on the page about troubleshooting, and in tables of other pages, is one that the code writes."""

from __future__ import annotations

import ast
import fcntl
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operating" / "troubleshooting.md"
SOURCES = ("framework/gangline", "plugins/gangline_plugins", "agent/gangline_agent", "webhook/gangline_webhook")
LEAST = 6
"""Characters that an f-string has to have of its own, so that it does not match everything."""
FILLED, END = "\0", "\1"
"""In the texts of the code: where an f-string fills something in, and where the next text begins."""


def messages() -> list[str]:
    """What stands as code in the first column of the tables."""
    rows = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row)]


class TextsOfTheCode:
    """All texts in the code, one after the other, and the parts of those that an f-string fills in, with anything."""

    def __init__(self, found: Sequence[str]) -> None:
        self.joined = END.join(found)
        self.filled = [text.split(FILLED) for text in found if FILLED in text]

    def has(self, message: str) -> bool:
        """Whether the code has the message, or a text that it is a part of. A counter gets its ending later."""
        return message.removesuffix("_total") in self.joined or any(fits(message, parts) for parts in self.filled)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> TextsOfTheCode:
    """The first process of a run that asks parses the code, in a second; the others read what it has found."""
    with (tmp_path_factory.getbasetemp() / "texts-of-the-code.json").open("a+", encoding="utf-8") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        kept.seek(0)
        if text := kept.read():
            return TextsOfTheCode(json.loads(text))
        found = all_texts()
        kept.write(json.dumps(found))
        kept.flush()
        return TextsOfTheCode(found)


def all_texts() -> list[str]:
    files = (file for source in SOURCES for file in sorted((ROOT / source).rglob("*.py")))
    return sorted({text for file in files for text in texts(ast.parse(file.read_text(encoding="utf-8")))})


def texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else None for part in node.values]
            if sum(len(part.strip()) for part in parts if part) >= LEAST:
                yield "".join(FILLED if part is None else part for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def fits(message: str, parts: Sequence[str]) -> bool:
    """Whether a message has these parts in this order, from its beginning to its end, and anything between them."""
    first, *between, last = parts
    place, end = len(first), len(message) - len(last)
    if not message.startswith(first) or not message.endswith(last):
        return False
    for part in between:
        place = message.find(part, place, end)
        if place < 0:
            return False
        place += len(part)
    return place <= end


@pytest.mark.parametrize("message", messages())
def test_a_message_is_in_the_code(message: str, written: TextsOfTheCode) -> None:
    assert all(written.has(part) for part in message.split("..."))


def seen(page: str) -> list[str]:
    """The messages in the tables *What you see* of another page."""
    text = (ROOT / "docs" / "operating" / f"{page}.md").read_text(encoding="utf-8")
    tables = [part.split("\n\n")[0] for part in text.split("| What you see |")[1:]]
    rows = [row.split(" | ")[0] for table in tables for row in table.splitlines()]
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("message", [*seen("replay"), *seen("kubectl")])
def test_a_message_of_a_command_is_in_the_code(message: str, written: TextsOfTheCode) -> None:
    parts = [part for part in message.split(": ") if len(part) >= LEAST]  # values stand before and after colons

    assert any(written.has(part) for part in parts)


def test_a_message_that_nobody_writes_is_found_out(written: TextsOfTheCode) -> None:
    assert not written.has("node(s) had the wrong colour")
