"""Compiled selectors, and devices in the form in which selectors read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.cel.checking import check
from gangline.cel.folding import UNSET
from gangline.cel.functions import FUNCTIONS, WITHOUT_LISTS
from gangline.cel.kinds import ANY, BOOL, DYN, FIELDS, FIELDS_WITH_LISTS
from gangline.cel.parsing import parsed
from gangline.cel.paths import FIRST_VARIABLE
from gangline.cel.planning import CelPlanner
from gangline.cel.quantities import quantity_of
from gangline.cel.reading import EVERYTHING, Reads, reads_of
from gangline.cel.semvers import semver_of
from gangline.cel.validating import validate
from gangline.cel.values import EMPTY_MAP, LEAST_INT, MOST_INT, Map, TooMuch
from gangline.errors import ExpressionFailed, InvalidExpression

LONGEST = 10 * 1024
"""Characters of an expression, as in Kubernetes."""


class Program:
    """A compiled selector. `reads` has the paths of a device that decide about the answer; see `reading`."""

    __slots__ = ("_run", "_slots", "expression", "reads")

    def __init__(self, expression: str, run: Any, slots: int, reads: Reads) -> None:
        self.expression = expression
        self.reads = reads
        self._run = run
        self._slots = slots

    def __call__(self, device: CelDevice) -> bool:
        """Whether the expression selects the device. Raises ExpressionFailed."""
        return self.evaluated(device)[0]

    def evaluated(self, device: CelDevice) -> tuple[bool, int]:
        """The answer, and its cost in Kubernetes' units. Raises ExpressionFailed."""
        frame: list[Any] = [0, *device.fields, *([UNSET] * (self._slots - FIRST_VARIABLE))]
        try:
            value = self._run(frame)
        except TooMuch:
            raise ExpressionFailed("the cost limit is exceeded") from None
        except RecursionError:
            raise ExpressionFailed("values within values are nested too deeply") from None
        if value is True or value is False:
            return value, frame[0]
        raise ExpressionFailed("the value of the expression is not a bool")


class CelDevice:
    """A device as expressions see it; `fields` are driver, allowMultipleAllocations, attributes and capacity."""

    __slots__ = ("fields",)

    def __init__(self, driver: str, shared: bool, attributes: Map, capacity: Map) -> None:
        self.fields = (driver, shared, attributes, capacity)

    @classmethod
    def of(cls, device: Mapping[str, Any], has_lists: bool = False) -> CelDevice:
        """A device from its driver and the fields of the API. Raises ExpressionFailed for a value without a known type.

        Lists have a known type only with `has_lists`.
        """
        driver = str(device.get("driver") or "")
        read = _attribute_or_list if has_lists else _attribute
        attributes = {name: read(value) for name, value in (device.get("attributes") or {}).items()}
        capacity = {name: quantity_of(_value(value)) for name, value in (device.get("capacity") or {}).items()}
        shared = bool(device.get("allowMultipleAllocations"))
        return cls(driver, shared, _by_domain(attributes, driver), _by_domain(capacity, driver))


def _value(capacity: object) -> str:
    match capacity:
        case {"value": str() | int() as value}:
            return str(value)
    raise ExpressionFailed("a capacity without a value")


def _attribute(value: Mapping[str, Any]) -> Any:
    match value:
        case {"int": int(number)} if LEAST_INT <= number <= MOST_INT and type(number) is int:
            return number
        case {"bool": bool(truth)}:
            return truth
        case {"string": str(text)}:
            return text
        case {"version": str(text)}:
            return semver_of(text)
    raise ExpressionFailed("unsupported attribute value")


def _attribute_or_list(value: Mapping[str, Any]) -> Any:
    for kind in _KINDS:
        if kind not in value and f"{kind}s" in value:
            return [_attribute({kind: one}) for one in value[f"{kind}s"]]
    return _attribute(value)


_KINDS = ("int", "bool", "string", "version")
"""The fields for the types of attributes; the field for a list of a type ends in an s."""


def _by_domain(named: dict[str, Any], driver: str) -> Map:
    domains: dict[str, Map] = {}
    for name, value in named.items():
        domain, slash, own = name.partition("/")
        if not slash:
            domain, own = driver, name
        domains.setdefault(domain, Map({})).entries[own] = value
    return Map(dict(domains), default=EMPTY_MAP)


def compile(expression: str, has_lists: bool = False) -> Program:
    """The program of a selector; with `has_lists` attributes may be lists. Raises InvalidExpression."""
    if len(expression) > LONGEST:
        raise InvalidExpression(f"{len(expression)} characters, and at most {LONGEST} are read")
    try:
        tree = parsed(expression)
        if has_lists:
            check(tree, FUNCTIONS, FIELDS_WITH_LISTS)
        else:
            check(tree, WITHOUT_LISTS, FIELDS)
        validate(tree)
        if tree.type not in ((BOOL, ANY, DYN) if has_lists else (BOOL, ANY)):
            raise InvalidExpression(f"must evaluate to bool or the unknown type, not {tree.type}")
        planner = CelPlanner()
        run = planner.plan(tree)
        return Program(expression, run, planner.slots, reads_of(tree))
    except RecursionError:
        raise InvalidExpression("the expression is nested too deeply") from None


__all__ = ["EVERYTHING", "LONGEST", "CelDevice", "Program", "compile"]
