"""Static types: each node gets its type, each call the overloads that may serve it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangline.cel.kinds import (
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DYN,
    ERROR,
    FIELDS,
    INT,
    NULL,
    PRIMITIVE,
    STRING,
    TYPE_NAMES,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from gangline.cel.overloads import Overload
from gangline.cel.syntax import Call, Fold, Ident, ListOf, Literal, MapOf, Select, SyntaxNode, dotted
from gangline.cel.unifying import Bindings, assignable, is_dyn, most_general, substituted
from gangline.cel.values import Uint
from gangline.errors import InvalidExpression

MOST_DEEP = 250
"""The most nodes on a way from the root of an expression's tree to a leaf."""

_LITERALS = {bool: BOOL, int: INT, Uint: UINT, float: DOUBLE, str: STRING, bytes: BYTES, type(None): NULL}


def check(tree: SyntaxNode, functions: Mapping[str, Sequence[Overload]], fields: Mapping[str, Type] = FIELDS) -> None:
    """Writes types and overloads into the tree; `fields` are those of `device`. Raises InvalidExpression."""
    checker = _Checker(functions, fields)
    checker.check(tree)
    checker.finish()


def unwrapped(one: Type) -> tuple[Type, bool]:
    """The type within an optional type, and True; another type as it is, and False."""
    return (one.params[0], True) if one.name == "optional_type" else (one, False)


def _may_fit(given: Sequence[Type], wanted: Sequence[Type]) -> bool:
    """Whether the types may fit: a quick test, because most overloads take other primitive types than the given ones.

    Two primitive types fit only if they are equal, whatever type parameters are bound to.
    """
    if len(given) != len(wanted):
        return False
    for one, other in zip(given, wanted, strict=True):
        if one.kind != other.kind and one.kind in PRIMITIVE and other.kind in PRIMITIVE:
            return False
    return True


class _Checker:
    def __init__(self, functions: Mapping[str, Sequence[Overload]], fields: Mapping[str, Type]) -> None:
        self._functions = functions
        self._fields = fields
        self._bound: Bindings = {}
        self._scopes: list[dict[str, Type]] = [{"device": DEVICE}]
        self._fresh = 0
        self._depth = 0
        self._seen: list[SyntaxNode] = []

    def finish(self) -> None:
        for node in self._seen:
            node.type = substituted(self._bound, node.type, free_is_dyn=True)

    def _wrong(self, node: SyntaxNode, why: str) -> InvalidExpression:
        return InvalidExpression(f"character {node.at + 1}: {why}")

    def _shown(self, one: Type) -> str:
        return str(substituted(self._bound, one, free_is_dyn=True))

    def _fits(self, wanted: Sequence[Type], given: Sequence[Type]) -> bool:
        bound = assignable(self._bound, wanted, given)
        if bound is None:
            return False
        self._bound = bound
        return True

    def _variable(self) -> Type:
        self._fresh += 1
        return Type("param", f"#{self._fresh}")

    def check(self, node: SyntaxNode) -> Type:
        self._depth += 1
        if self._depth > MOST_DEEP:
            raise InvalidExpression(f"more than {MOST_DEEP} operations within each other")
        match node:
            case Literal():
                node.type = _LITERALS[type(node.value)]
            case Ident():
                node.type = self._ident(node)
            case Select():
                node.type = self._select(node)
            case Call():
                node.type = self._call(node)
            case ListOf():
                node.type = self._list(node)
            case MapOf():
                node.type = self._map(node)
            case Fold():
                node.type = self._fold(node)
        self._depth -= 1
        self._seen.append(node)
        return node.type

    def _ident(self, node: Ident) -> Type:
        node.name = node.name.removeprefix(".")
        for scope in reversed(self._scopes):
            if node.name in scope:
                return scope[node.name]
        named = TYPE_NAMES.get(node.name)
        if named is None:
            raise self._wrong(node, f"{node.name} is not declared")
        node.is_type = True
        return type_of(named)

    def _select(self, node: Select) -> Type:
        if not node.test and not node.optional:
            name = dotted(node)
            if name in TYPE_NAMES:
                node.type_name = name
                return type_of(TYPE_NAMES[name])
        operand, is_optional = unwrapped(substituted(self._bound, self.check(node.operand)))
        result = self._field(node, operand)
        if node.test:
            return BOOL
        return substituted(self._bound, optional_of(result) if is_optional or node.optional else result)

    def _field(self, node: Select, operand: Type) -> Type:
        if operand.kind == "map":
            return operand.params[1]
        if operand == DEVICE:
            if node.name not in self._fields:
                raise self._wrong(node, f"a device has no field {node.name}")
            return self._fields[node.name]
        if operand.kind == "param":
            self._fits([DYN], [operand])
            return DYN
        if is_dyn(operand) or operand.kind == "error":
            return DYN
        if operand.kind == "struct":
            raise self._wrong(node, f"no field {node.name} of {operand}")
        raise self._wrong(node, f"{self._shown(operand)} has no fields")

    def _call(self, node: Call) -> Type:
        if node.target is None:
            for each in node.args:
                self.check(each)
            return self._resolved(node, node.name)
        for each in node.args:
            self.check(each)
        prefix = dotted(node.target)
        if prefix is not None and f"{prefix}.{node.name}" in self._functions:
            node.name, node.target = f"{prefix}.{node.name}", None
            return self._resolved(node, node.name)
        self.check(node.target)
        return self._resolved(node, node.name)

    def _resolved(self, node: Call, name: str) -> Type:
        given = [each.type for each in ([node.target, *node.args] if node.target is not None else node.args)]
        if name in ("_&&_", "_||_"):
            for each in node.args:
                if not self._fits([each.type], [BOOL]):
                    raise self._wrong(each, f"{self._shown(each.type)} where bool is expected")
            return BOOL
        overloads = self._functions.get(name)
        if overloads is None:
            raise self._wrong(node, f"the function {name} is not declared")
        result: Type | None = None
        found: list[str] = []
        for overload in overloads:
            if overload.member != (node.target is not None) or not _may_fit(given, overload.args):
                continue
            renamed = {parameter: self._variable() for parameter in overload.parameters}
            args = [substituted(renamed, each) for each in overload.args] if renamed else overload.args
            if not self._fits(given, args):
                continue
            found.append(overload.id)
            own = substituted(self._bound, substituted(renamed, overload.result))
            if result is None:
                result = own
            elif not is_dyn(result) and own != result:
                result = DYN
        if result is None:
            shown = ", ".join(self._shown(each) for each in given)
            raise self._wrong(node, f"no overload of {name} takes ({shown})")
        node.overloads = tuple(found)
        return result

    def _joined(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self._fits([previous], [current]):
            return most_general(previous, current)
        return DYN

    def _entry(self, node: SyntaxNode, optional: bool) -> Type:
        own = node.type
        if optional:
            own, is_optional = unwrapped(own)
            if not is_optional and not is_dyn(own):
                raise self._wrong(node, f"{self._shown(own)} where an optional is expected")
        return own

    def _list(self, node: ListOf) -> Type:
        common: Type | None = None
        for each, optional in zip(node.items, node.optional, strict=True):
            self.check(each)
            common = self._joined(common, self._entry(each, optional))
        return list_of(self._variable() if common is None else common)

    def _map(self, node: MapOf) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in zip(node.keys, node.values, node.optional, strict=True):
            keys = self._joined(keys, self.check(key))
            self.check(value)
            values = self._joined(values, self._entry(value, optional))
        if keys is None or values is None:
            return map_of(self._variable(), self._variable())
        return map_of(keys, values)

    def _fold(self, node: Fold) -> Type:
        self.check(node.range)
        accumulated = self.check(node.init)
        over = substituted(self._bound, node.range.type)
        first, second = self._loop_types(node, over)
        self._scopes.append({node.accumulator: accumulated})
        self._scopes.append({node.variable: first, **({node.second: second} if node.second else {})})
        self.check(node.condition)
        self._expect(node.condition, BOOL)
        self.check(node.step)
        self._expect(node.step, accumulated)
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        return substituted(self._bound, result)

    def _loop_types(self, node: Fold, over: Type) -> tuple[Type, Type]:
        if over.kind == "list":
            return (INT, over.params[0]) if node.second else (over.params[0], ERROR)
        if over.kind == "map":
            return over.params[0], over.params[1]
        if over.kind in ("dyn", "error", "param"):
            self._fits([DYN], [over])
            return DYN, DYN
        raise self._wrong(node.range, f"{self._shown(over)} is nothing to loop over")

    def _expect(self, node: SyntaxNode, wanted: Type) -> None:
        if not self._fits([wanted], [node.type]):
            raise self._wrong(node, f"{self._shown(node.type)} where {self._shown(wanted)} is expected")
