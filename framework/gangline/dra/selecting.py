"""What selectors say of the devices: each expression is evaluated once for each distinct tuple of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from gangline import cel
from gangline.dra.table import Codes, DeviceTable
from gangline.errors import GanglineError

NO = 0
YES = 1
_MOST_CODES = 2**31
"""Numbers of combinations are made small again before they grow beyond this."""
FAILURE = 2
"""Codes from here on are failures: `Selectors.failures[code - FAILURE]` is the text."""


Path = tuple[str, ...]
"""What an expression reads: ("driver",), ("allowMultipleAllocations",), ("attributes", domain, name) or ("capacity",
domain, name); any other path means everything."""


class Program(Protocol):
    """A compiled expression."""

    @property
    def reads(self) -> frozenset[Path] | None:
        """What the expression reads of a device; None if that is not known, so that it may be everything."""
        ...

    def __call__(self, device: Mapping[str, Any], /) -> bool:
        """Whether the expression holds for a device. Raises GanglineError."""
        ...


Compile = Callable[[str], Program]
"""Compiles an expression. Raises GanglineError."""


class _Selector:
    """An expression in CEL."""

    def __init__(self, expression: str) -> None:
        self._program = cel.compile(expression)

    @property
    def reads(self) -> frozenset[Path] | None:
        return self._program.reads

    def __call__(self, device: Mapping[str, Any], /) -> bool:
        return self._program(cel.Device.of(device))


def compile_selector(expression: str) -> Program:
    """An expression as selectors have it. Raises GanglineError."""
    return _Selector(expression)


class Selectors:
    """Verdicts of expressions on the devices of a table."""

    def __init__(self, table: DeviceTable, compile_: Compile = compile_selector) -> None:
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
        codes, first = self._kinds(program.reads)
        verdicts = np.array([self._verdict(program, row) for row in first], dtype=np.int32)
        return verdicts[codes] if len(verdicts) else np.zeros(0, dtype=np.int32)

    def _kinds(self, reads: frozenset[Path] | None) -> tuple[Codes, list[int]]:
        """Numbers for what the devices differ in as far as a program reads it, and the first row of each number."""
        columns = [self._column_of(path) for path in sorted(reads)] if reads is not None else [None]
        codes = np.zeros(len(self._table), dtype=np.int64)
        for column in columns:
            if column is None:
                return self._table.contents.codes, self._table.contents.first
            least = int(column.min(initial=0))
            codes = codes * (int(column.max(initial=0)) - least + 1) + (column - least)
            if codes.max(initial=0) > _MOST_CODES:
                codes = np.unique(codes, return_inverse=True)[1]
        _, first, kinds = np.unique(codes, return_index=True, return_inverse=True)
        return kinds.astype(np.int32), first.tolist()

    def _column_of(self, path: Path) -> Codes | None:
        table = self._table
        match path:
            case ("driver",):
                return table.drivers
            case ("allowMultipleAllocations",):
                return table.shareable.astype(np.int32)
            case ("attributes", domain, name):
                return table.attribute(f"{domain}/{name}")
            case ("capacity", domain, name):
                return table.capacity(f"{domain}/{name}")
        return None

    def _verdict(self, program: Program, row: int) -> int:
        try:
            return YES if program(self._table.described(row)) else NO
        except GanglineError as error:
            return self._failure(str(error))

    def _failure(self, text: str) -> int:
        if text not in self.failures:
            self.failures.append(text)
        return FAILURE + self.failures.index(text)
