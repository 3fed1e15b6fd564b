"""The verdicts of selectors on devices: each expression is evaluated once for each distinct tuple of values it reads.

Devices with equal values in everything that an expression reads are of one *kind*. Verdicts are kept by kind, so a
device that changes costs an evaluation only if its kind is new. An expression may be slow, and may read a value that is
different for every device, so the time is checked before each kind (`within`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from gangline.deadline import NO_DEADLINE, Deadline, DeadlineBlock
from gangline.dra.properties import Codes, Properties
from gangline.dra.reading import SHAREABLE
from gangline.dra.rows import Kinds, RowColumn, RowNumbers, kinds
from gangline.dra.table import SliceTable
from gangline.errors import GanglineError
from gangline.sizes import BoundedCache

NO = 0
YES = 1
_MOST_BYTES = 64 << 20
"""Bytes of the kept verdicts, at most."""
_KIND_BYTES = 200
"""Bytes of the verdict on one kind of devices."""
_MOST_KIND_BYTES = 16 << 20
"""Bytes of the kept kinds of all devices, at most."""
_FEW = 64
"""So many rows, or fewer, are evaluated one by one."""
_MOST_TEXTS = 4096
"""Different texts of failures that are kept, at most."""
FAILURE = 2
"""Codes from here on are failures: `Selectors.failures[code - FAILURE]` is the text."""


Path = tuple[str, ...]
"""A part of a device that an expression reads: ("driver",), ("allowMultipleAllocations",), ("attributes", domain, name)
or ("capacity", domain, name). Any other path stands for the whole device."""


class SelectorProgram(Protocol):
    """A compiled expression."""

    @property
    def reads(self) -> frozenset[Path] | None:
        """The paths of a device that the expression reads; None if it may read the whole device."""
        ...

    def __call__(self, device: Mapping[str, Any], /) -> bool:
        """Whether the expression holds for a device. Raises GanglineError."""
        ...


Compile = Callable[[str], SelectorProgram]
"""Compiles an expression. Raises GanglineError."""


class _Selector:
    """An expression in CEL. The package `cel` is imported with the first one, because most clusters have none."""

    def __init__(self, expression: str, has_lists: bool) -> None:
        from gangline import cel

        self._program = cel.compile(expression, has_lists)
        self._device_of = cel.CelDevice.of
        self._has_lists = has_lists

    @property
    def reads(self) -> frozenset[Path] | None:
        return self._program.reads

    def __call__(self, device: Mapping[str, Any], /) -> bool:
        return self._program(self._device_of(device, self._has_lists))


def compile_selector(expression: str) -> SelectorProgram:
    """Compile the CEL expression of a selector. Raises GanglineError."""
    return _Selector(expression, has_lists=False)


def compile_with_lists(expression: str) -> SelectorProgram:
    """As `compile_selector`, for devices whose attributes may be lists (DRAListTypeAttributes)."""
    return _Selector(expression, has_lists=True)


class _DeviceKinds:
    """The kinds of all devices, kept until a device changes: most expressions read the same few parts of a device."""

    def __init__(self, table: SliceTable) -> None:
        self._log = table.rows.log
        self._position = -1
        self._kept: BoundedCache[tuple[Path, ...], Kinds] = BoundedCache(
            _MOST_KIND_BYTES, lambda _, each: each[0].nbytes + each[1].nbytes
        )

    def of(self, paths: tuple[Path, ...], columns: list[Codes]) -> Kinds:
        """As `rows.kinds` of the columns, which have the values at these paths for all devices."""
        if self._position != self._log.position:
            self._kept.clear()
            self._position = self._log.position
        found = self._kept.get(paths)
        return self._kept.put(paths, kinds(columns)) if found is None else found


class Selectors:
    """Verdicts of expressions on the devices of a table."""

    def __init__(self, table: SliceTable, compile_: Compile = compile_selector) -> None:
        self._table = table
        self.properties = Properties(table)
        """The columns of the table that expressions read."""
        self._compile = compile_
        self._kinds = _DeviceKinds(table)
        self._judged: BoundedCache[str, _Judged] = BoundedCache(_MOST_BYTES, lambda _, each: each.nbytes)
        self._numbers: dict[str, int] = {}
        self._deadline = NO_DEADLINE
        self.failures: list[str] = []
        """Texts of the failures."""

    def verdicts(self, expressions: tuple[str, ...]) -> Codes:
        """By row: YES where all expressions hold; else the verdict of the first expression that is not YES.

        Callers may not write to the column, and may use it until the next change.
        """
        found: Codes | None = None
        for expression in expressions:
            column = self._column(expression)
            if found is None or (found == YES).all():
                found = column
            else:
                found = np.array(found)
                np.copyto(found, column, where=found == YES)
        return np.full(len(self._table), YES, dtype=np.int32) if found is None else found

    def verdicts_on(self, expressions: tuple[str, ...], rows: RowNumbers) -> Codes:
        """As `verdicts`, for each of the given rows."""
        if len(rows) == len(self._table):
            return self.verdicts(expressions)
        found = np.full(len(rows), YES, dtype=np.int32)
        for expression in expressions:
            np.copyto(found, self._column(expression)[rows], where=found == YES)
        return found

    def verdict_on(self, expression: str, row: int) -> int:
        """The verdict of one expression on one row."""
        return self._column(expression).item(row)

    def _column(self, expression: str) -> Codes:
        judged = self._judged.get(expression)
        if judged is None:  # kept before it is evaluated, so that verdicts stay if time runs out
            self.check()
            judged = _Judged(expression, self._compile, self, self._table, self._kinds)
            self._judged.put(expression, judged)
        try:
            return judged.column.values
        finally:
            self._judged.measure(expression)

    def within(self, deadline: Deadline) -> AbstractContextManager[None]:
        """A block in which verdicts, and work that calls `check`, raise DeadlineExceeded when they take longer; the
        verdicts so far are kept.
        """
        return DeadlineBlock(self.exchange, deadline)

    def exchange(self, deadline: Deadline) -> Deadline:
        """From now on this deadline counts; returns the one that counted before."""
        before, self._deadline = self._deadline, deadline
        return before

    def check(self) -> None:
        """Raise DeadlineExceeded if the deadline of the block around has passed: see `within`."""
        self._deadline.check()

    def failure(self, text: str) -> int:
        """The code of the failure with this text."""
        number = self._numbers.get(text)
        if number is None:
            if len(self.failures) >= _MOST_TEXTS:
                return FAILURE + _MOST_TEXTS - 1
            number = self._numbers[text] = len(self.failures)
            self.failures.append(text if number < _MOST_TEXTS - 1 else "it is one of too many different failures")
        return FAILURE + number


class _Judged:
    """The verdicts of one expression, by kind of device and by row."""

    def __init__(
        self,
        expression: str,
        compile_: Compile,
        selectors: Selectors,
        table: SliceTable,
        kinds_of: _DeviceKinds,
    ) -> None:
        self._table = table
        self._properties = properties = selectors.properties
        self._failure = selectors.failure
        self._check = selectors.check
        self._kinds = kinds_of
        self._verdicts: dict[tuple[int, ...], int] = {}
        """By kind: the verdict. A kind is the code in each column that the expression reads."""
        self.column: RowColumn[np.int32] = RowColumn(table.rows, np.int32, self._evaluate)
        self._program: SelectorProgram | None = None
        self._paths: tuple[Path, ...] = ()
        """What the expression reads; the empty path stands for the whole device."""
        self._columns: list[Callable[[], Codes]] = []
        """The columns that the expression reads. Kinds consist of their codes, so the expression keeps the columns."""
        try:
            self._program = compile_(expression)
        except GanglineError as error:
            self._fault = selectors.failure(f"CEL compile error: {error}")
            return
        reads = self._program.reads
        if reads is not None and all(_is_known(path) for path in reads):
            self._paths = tuple(sorted(reads))
            self._columns = [self._column_of(path) for path in self._paths]
        else:
            self._paths = ((),)
            self._columns = [lambda: properties.contents.codes]

    @property
    def nbytes(self) -> int:
        return 1024 + self.column.nbytes * (1 + len(self._columns)) + _KIND_BYTES * len(self._verdicts)

    def _evaluate(self, rows: RowNumbers) -> Any:
        program = self._program
        if program is None:
            return self._fault
        is_whole = len(rows) == len(self._table)
        columns = [column() if is_whole else column()[rows] for column in self._columns]
        if not columns:
            return self._verdict(program, (), int(rows[0]))
        if len(rows) <= _FEW:
            tuples = zip(*(column.tolist() for column in columns), strict=True)
            return [self._verdict(program, kind, row) for kind, row in zip(tuples, rows.tolist(), strict=True)]
        codes, first = self._kinds.of(self._paths, columns) if is_whole else kinds(columns)
        of_kind = [
            self._verdict(program, tuple(int(column[at]) for column in columns), int(rows[at])) for at in first.tolist()
        ]
        return np.take(np.array(of_kind, dtype=np.int32), codes, mode="clip") if len(of_kind) > 1 else of_kind[0]

    def _column_of(self, path: Path) -> Callable[[], Codes]:
        properties, table = self._properties, self._table
        if path == ("driver",):
            return lambda: properties.drivers.codes
        if path == ("allowMultipleAllocations",):
            return lambda: (table.traits & SHAREABLE).astype(np.int32)
        of = properties.attribute if path[0] == "attributes" else properties.capacity
        column = of("/".join(path[1:]))
        return lambda: column.values

    def _verdict(self, program: SelectorProgram, kind: tuple[int, ...], row: int) -> int:
        verdict = self._verdicts.get(kind)
        if verdict is None:
            self._check()
            try:
                verdict = YES if program(self._properties.described(row)) else NO
            except GanglineError as error:
                verdict = self._failure(f"CEL runtime error: {error}")
            self._verdicts[kind] = verdict
        return verdict


def _is_known(path: Path) -> bool:
    """Whether there is a column for the path."""
    return path in (("driver",), ("allowMultipleAllocations",)) or (
        len(path) == 3 and path[0] in ("attributes", "capacity")
    )
