"""Reads the instructions of a Dockerfile, as far as ours uses them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its word, for example ``RUN``, and the text after the word."""

    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """The text after the instruction, as words without quotes."""
        return shlex.split(self.rest)

    def pairs(self, arguments: Mapping[str, str]) -> dict[str, str]:
        """The names and values of ENV and LABEL; ``${NAME}`` stands for a build argument."""
        named = (word.partition("=") for word in self.words)
        return {name: _VARIABLE.sub(lambda found: arguments[found[1]], value) for name, _, value in named}


def read(path: Path) -> list[list[Instruction]]:
    """The instructions of each stage; those before the first ``FROM`` come first, as a stage of their own."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    stages: list[list[Instruction]] = [[]]
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stages.append([])
        stages[-1].append(Instruction(word, rest.strip()))
    return stages
