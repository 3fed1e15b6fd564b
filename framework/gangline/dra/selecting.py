"""What selectors say of the devices: each expression is evaluated once for each distinct tuple of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from gangline.dra.table import Codes, DeviceTable
from gangline.errors import GanglineError

NO = 0
YES = 1
FAILURE = 2
"""Codes from here on are failures: `Selectors.failures[code - FAILURE]` is the text."""


class Program(Protocol):
    """A compiled expression."""

    def __call__(self, device: Mapping[str, Any], /) -> bool:
        """Whether the expression holds for a device. Raises GanglineError."""


Compile = Callable[[str], Program]
"""Compiles an expression. Raises GanglineError."""


class Selectors:
    """Verdicts of expressions on the devices of a table."""

    def __init__(self, table: DeviceTable, compile_: Compile) -> None:
        self._table = table
        self._compile = compile_
        self._columns: dict[str, Codes] = {}
        self.failures: list[str] = []
        """Texts of the failures."""

    def verdicts(self, expressions: tuple[str, ...]) -> Codes:
        """By row: YES where all expressions hold; else the first verdict that is not YES."""
        found = np.full(len(self._table), YES, dtype=np.int32)
        for expression in expressions:
            np.copyto(found, self._column(expression), where=found == YES)
        return found

    def _column(self, expression: str) -> Codes:
        column = self._columns.get(expression)
        if column is None:
            column = self._columns[expression] = self._evaluated(expression)
        return column

    def _evaluated(self, expression: str) -> Codes:
        try:
            program = self._compile(expression)
        except GanglineError as error:
            return np.full(len(self._table), self._failure(str(error)), dtype=np.int32)
        kinds = self._table.contents
        verdicts = np.array([self._verdict(program, row) for row in kinds.first], dtype=np.int32)
        return verdicts[kinds.codes] if len(verdicts) else np.zeros(0, dtype=np.int32)

    def _verdict(self, program: Program, row: int) -> int:
        try:
            return YES if program(self._table.described(row)) else NO
        except GanglineError as error:
            return self._failure(str(error))

    def _failure(self, text: str) -> int:
        if text not in self.failures:
            self.failures.append(text)
        return FAILURE + self.failures.index(text)
