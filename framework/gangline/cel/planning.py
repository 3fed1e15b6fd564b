"""Makes Python closures of a checked tree.

A closure takes the *frame* of one evaluation, a list: the cost so far, the fields of the device, then the variables
of loops. It returns the value of its expression, or raises ExpressionFailed; `&&`, `||` and loops absorb failures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangline.cel import costs
from gangline.cel.calling import Constant, chosen, function, member, spend
from gangline.cel.folding import fold, variable
from gangline.cel.functions import BY_ID, CONVERSIONS
from gangline.cel.paths import DEVICE_SLOTS, FIRST_VARIABLE, PathStep, chain, device_map
from gangline.cel.regexes import regex
from gangline.cel.syntax import Call, Fold, Ident, ListOf, Literal, MapOf, Select, SyntaxNode
from gangline.cel.values import (
    TYPE_VALUES,
    UNREADABLE,
    Map,
    Optional,
    equal,
    key_of,
    no_overload,
    same,
)
from gangline.errors import ExpressionFailed, InvalidExpression

Run = Callable[[list[Any]], Any]

_REGEX_FUNCTIONS = frozenset({"matches", "find", "findAll"})


class CelPlanner:
    """Plans one expression; `slots` is the length of its frames afterwards."""

    def __init__(self) -> None:
        self._scopes: list[dict[str, Run]] = []
        self.slots = FIRST_VARIABLE

    def plan(self, node: SyntaxNode, free: bool = False) -> Run:
        """The closure of a node. With `free` a select or name costs nothing itself, as within `?:`."""
        match node:
            case Literal():
                return Constant(node.value)
            case Ident():
                return self._ident(node, free)
            case Select() if node.type_name:
                return Constant(TYPE_VALUES[node.type_name])
            case Select():
                return self._path(node, free)
            case Call():
                return self._path(node, free) if node.name in ("_[_]", "_[?_]") else self._call(node)
            case ListOf():
                return self._list(node)
            case MapOf():
                return self._map(node)
            case Fold():
                return self._fold(node)
        raise AssertionError(node)

    def _ident(self, node: Ident, free: bool) -> Run:
        if node.is_type:
            return Constant(TYPE_VALUES[node.name])
        read = self._named(node.name)
        if free:
            return read

        def run(frame: list[Any]) -> Any:
            frame[0] += 1
            return read(frame)

        return run

    def _named(self, name: str) -> Run:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return device_map

    def _is_device(self, node: SyntaxNode) -> bool:
        return isinstance(node, Ident) and not node.is_type and self._named(node.name) is device_map

    def _path(self, node: SyntaxNode, free: bool) -> Run:
        steps: list[PathStep] = []
        test = isinstance(node, Select) and node.test
        while True:
            if isinstance(node, Select) and not node.type_name and not (node.test and steps):
                steps.append(PathStep(node.name, None, node.optional))
                node = node.operand
            elif isinstance(node, Call) and node.name in ("_[_]", "_[?_]"):
                key = self.plan(node.args[1], free=True)
                constant = key.value if isinstance(key, Constant) else None
                step = PathStep(constant, None if isinstance(key, Constant) else key, node.name == "_[?_]")
                if step.key is None and type(constant) not in PathStep.KEYS:
                    raise InvalidExpression("no key of a list or map")
                steps.append(step)
                node = node.args[0]
            else:
                break
        steps.reverse()
        if self._is_device(node) and steps[0].key is None and not steps[0].optional and not (test and len(steps) == 1):
            slot = DEVICE_SLOTS[steps[0].name]
            base: Run = lambda frame: frame[slot]  # noqa: E731
            return chain(base, steps[1:], 2 - (free or test), test)
        base = self._named(node.name) if isinstance(node, Ident) and not node.is_type else self.plan(node)
        own = 0 if isinstance(node, Call) and node.name == "_?_:_" else 1
        return chain(base, steps, max(0, own - (free or test)), test)

    def _call(self, node: Call) -> Run:
        name = node.name
        if name == "_?_:_":
            return _conditional(self.plan(node.args[0]), self.plan(node.args[1], True), self.plan(node.args[2], True))
        args = [self.plan(each) for each in ([node.target, *node.args] if node.target is not None else node.args)]
        if name == "_&&_":
            return _logical(args, False)
        if name == "_||_":
            return _logical(args, True)
        if name in ("_==_", "_!=_"):
            return _equality(args[0], args[1], name == "_==_")
        if name in ("or", "orValue"):
            return _or(args[0], args[1], name == "or")
        if name in CONVERSIONS and len(args) == 1 and isinstance(args[0], Constant):
            return self._folded(node, args[0].value)
        if node.overloads == ("in_list",) and isinstance(args[1], Constant):
            return member(args[0], args[1].value)
        if name in _REGEX_FUNCTIONS and isinstance(args[1], Constant) and type(args[1].value) is str:
            _constant_regex(args[1].value)
        exact = BY_ID[node.overloads[0]] if len(node.overloads) == 1 else None
        return function(name, exact, args)

    def _folded(self, node: Call, value: Any) -> Run:
        try:
            return Constant(chosen(node.name, [value]).run(value))
        except ExpressionFailed as failure:
            raise InvalidExpression(str(failure)) from None

    def _list(self, node: ListOf) -> Run:
        items = [self.plan(each) for each in node.items]
        if all(isinstance(each, Constant) for each in items):
            return Constant([each(()) for each in items])  # type: ignore[arg-type]
        optional = node.optional if any(node.optional) else None

        def run(frame: list[Any]) -> Any:
            made = [each(frame) for each in items]
            spend(frame, costs.NEW_LIST)
            return made if optional is None else _present(made, optional)

        return run

    def _map(self, node: MapOf) -> Run:
        pairs = [
            (self.plan(key), self.plan(value), optional)
            for key, value, optional in zip(node.keys, node.values, node.optional, strict=True)
        ]

        def run(frame: list[Any]) -> Any:
            entries: dict[Any, Any] = {}
            for key, value, optional in pairs:
                place, each = key_of(key(frame)), value(frame)
                if optional:
                    if type(each) is not Optional:
                        raise ExpressionFailed("an optional entry is no optional")
                    if not each.has:
                        entries.pop(place, None)
                        continue
                    each = each.value
                entries[place] = each
            spend(frame, costs.NEW_MAP)
            return Map(entries)

        if all(isinstance(key, Constant) and isinstance(value, Constant) for key, value, _ in pairs):
            try:
                return Constant(run([0]))
            except ExpressionFailed as failure:
                raise InvalidExpression(str(failure)) from None
        return run

    def _fold(self, node: Fold) -> Run:
        over = self.plan(node.range)
        init = self.plan(node.init)
        accumulator, first, second = self.slots, self.slots + 1, self.slots + 2
        self.slots += 3
        self._scopes.append({node.accumulator: variable(accumulator, init)})
        names: dict[str, Run] = {node.variable: lambda frame: frame[first]}
        if node.second:
            names[node.second] = lambda frame: frame[second]
        self._scopes.append(names)
        always = isinstance(node.condition, Literal) and node.condition.value is True
        condition = None if always else self._condition(node)
        step = None if node.variable == "#unused" else self._step(node, accumulator)
        self._scopes.pop()
        result = self.plan(node.result)
        self._scopes.pop()
        return fold(over, (accumulator, first, second), bool(node.second), condition, step, result)

    def _condition(self, node: Fold) -> Run:
        """The closure that says whether a quantifier goes on: until a value decides, in spite of failures."""
        stops_at = isinstance(node.init, Literal) and node.init.value is False
        read = self._named(node.accumulator)
        cost = 3 if stops_at else 2

        def run(frame: list[Any]) -> Any:
            spend(frame, cost)
            try:
                return read(frame) is not stops_at
            except ExpressionFailed:
                return True

        return run

    def _step(self, node: Fold, slot: int) -> Run:
        """The closure of a loop's step; lists and maps that a macro builds grow in place."""
        step = node.step
        if isinstance(step, Call) and step.name == "_?_:_" and self._grows(step.args[1], node):
            keep = self._named(node.accumulator)
            return _conditional(self.plan(step.args[0]), self._growth(step.args[1], slot), keep)
        return self._growth(step, slot) if self._grows(step, node) else self.plan(step)

    def _grows(self, step: SyntaxNode, node: Fold) -> bool:
        if not isinstance(step, Call) or step.name not in ("_+_", "cel.@mapInsert"):
            return False
        first = step.args[0]
        return isinstance(node.init, (ListOf, MapOf)) and isinstance(first, Ident) and first.name == node.accumulator

    def _growth(self, step: SyntaxNode, slot: int) -> Run:
        assert isinstance(step, Call)
        read = self.plan(step.args[0])
        if step.name == "_+_":
            more = self.plan(step.args[1])

            def extend(frame: list[Any]) -> Any:
                items, new = read(frame), more(frame)
                spend(frame, 1)
                items.extend(new)
                return items

            return extend
        args = [self.plan(each) for each in step.args[1:]]

        def insert(frame: list[Any]) -> Any:
            within, values = read(frame), [each(frame) for each in args]
            spend(frame, 1)
            pairs = [values] if len(values) == 2 else _entries(values[0])
            for key, value in pairs:
                if within.find(key)[1]:
                    raise ExpressionFailed("insert failed: the key already exists")
                within.entries[key_of(key)] = value
            return within

        return insert


def _entries(more: Any) -> list[Any]:
    if type(more) is not Map:
        raise no_overload()
    return [(key, more.find(key)[0]) for key in more]


def _constant_regex(pattern: str) -> None:
    try:
        regex(pattern)
    except ExpressionFailed as failure:
        raise InvalidExpression(str(failure)) from None


def _present(made: list[Any], optional: list[bool]) -> list[Any]:
    kept: list[Any] = []
    for each, may_lack in zip(made, optional, strict=True):
        if not may_lack:
            kept.append(each)
        elif type(each) is not Optional:
            raise ExpressionFailed("an optional entry is no optional")
        elif each.has:
            kept.append(each.value)
    return kept


def _conditional(test: Run, truthy: Run, falsy: Run) -> Run:
    def run(frame: list[Any]) -> Any:
        decided = test(frame)
        if decided is True:
            value = truthy(frame)
        elif decided is False:
            value = falsy(frame)
        else:
            raise no_overload()
        if type(value) is Optional and type(value.value).__module__ in _CHEAP:
            return UNREADABLE
        return value

    return run


def _logical(terms: list[Run], decisive: bool) -> Run:
    """The closure of `||` (`decisive` is True) or `&&` (False): a decisive term wins over failures of others."""

    def run(frame: list[Any]) -> Any:
        failure: ExpressionFailed | None = None
        for term in terms:
            try:
                value = term(frame)
            except ExpressionFailed as why:
                failure = failure or why
                continue
            if value is decisive:
                return decisive
            if type(value) is not bool:
                failure = failure or no_overload()
        if failure is not None:
            raise failure
        return not decisive

    return run


def _equality(left: Run, right: Run, wanted: bool) -> Run:
    def run(frame: list[Any]) -> Any:
        one, other = left(frame), right(frame)
        cheap = wanted and type(one).__module__ in _CHEAP
        spend(frame, 1 if cheap else costs.shorter((one, other), None))
        return equal(one, other) if wanted else not same(one, other)

    return run


_CHEAP = frozenset(f"gangline.cel.{each}" for each in ("quantities", "semvers", "network", "urls", "named_formats"))


def _or(left: Run, right: Run, optional: bool) -> Run:
    def run(frame: list[Any]) -> Any:
        one = left(frame)
        if type(one) is not Optional:
            return one
        if one.has:
            return one if optional else one.get()
        return right(frame)

    return run
