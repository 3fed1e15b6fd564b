"""The macros: calls that become loops and presence tests before types are checked."""

from __future__ import annotations

from collections.abc import Callable

from gangline.cel.syntax import Call, Fold, Ident, ListOf, Literal, MapOf, Select, SyntaxNode
from gangline.errors import InvalidExpression

_RESULT = "@result"
_FORBIDDEN = frozenset({_RESULT, "__result__"})


def expanded(at: int, name: str, target: SyntaxNode | None, args: list[SyntaxNode]) -> SyntaxNode | None:
    """The tree that a macro call stands for; None for a call of a function. Raises InvalidExpression if misused."""
    count = len(args)
    if target is None:
        return _has(at, args[0]) if name == "has" and count == 1 else None
    if name == "bind" and count == 3:
        return _bind(at, args) if isinstance(target, Ident) and target.name == "cel" else None
    make = _RECEIVER.get((name, count))
    return None if make is None else make(at, target, args)


def _has(at: int, argument: SyntaxNode) -> SyntaxNode:
    if not isinstance(argument, Select) or argument.optional or argument.test:
        raise InvalidExpression("has() takes a field selection")
    return Select(at, argument.operand, argument.name, test=True)


def _variable(node: SyntaxNode) -> str:
    if not isinstance(node, Ident):
        raise InvalidExpression("the variable of a macro is a simple name")
    return node.name


def _own_variable(node: SyntaxNode) -> str:
    name = _variable(node)
    if name in _FORBIDDEN:
        raise InvalidExpression(f"{name} is no name for a variable")
    return name


def _let(at: int, name: str, value: SyntaxNode, result: SyntaxNode) -> SyntaxNode:
    return Fold(at, ListOf(at, [], []), "#unused", "", name, value, Literal(at, False), Ident(at, name), result)


def _bind(at: int, args: list[SyntaxNode]) -> SyntaxNode:
    return _let(at, _variable(args[0]), args[1], args[2])


_Expand = Callable[[int, SyntaxNode, list[SyntaxNode]], SyntaxNode]


def _fold(
    at: int,
    range_: SyntaxNode,
    names: tuple[str, str],
    init: SyntaxNode,
    condition: SyntaxNode,
    step: SyntaxNode,
    result: SyntaxNode,
) -> SyntaxNode:
    return Fold(at, range_, names[0], names[1], _RESULT, init, condition, step, result)


def _names(args: list[SyntaxNode], two: bool) -> tuple[str, str]:
    first = _own_variable(args[0])
    second = _own_variable(args[1]) if two else ""
    if first == second:
        raise InvalidExpression(f"the variable {first} occurs twice")
    return first, second


def _call(at: int, name: str, *args: SyntaxNode) -> SyntaxNode:
    return Call(at, name, None, list(args))


def _all(two: bool) -> _Expand:
    def expand(at: int, target: SyntaxNode, args: list[SyntaxNode]) -> SyntaxNode:
        condition = _call(at, "@not_strictly_false", Ident(at, _RESULT))
        step = _call(at, "_&&_", Ident(at, _RESULT), args[-1])
        return _fold(at, target, _names(args, two), Literal(at, True), condition, step, Ident(at, _RESULT))

    return expand


def _exists(two: bool) -> _Expand:
    def expand(at: int, target: SyntaxNode, args: list[SyntaxNode]) -> SyntaxNode:
        condition = _call(at, "@not_strictly_false", _call(at, "!_", Ident(at, _RESULT)))
        step = _call(at, "_||_", Ident(at, _RESULT), args[-1])
        return _fold(at, target, _names(args, two), Literal(at, False), condition, step, Ident(at, _RESULT))

    return expand


def _exists_one(two: bool) -> _Expand:
    def expand(at: int, target: SyntaxNode, args: list[SyntaxNode]) -> SyntaxNode:
        more = _call(at, "_+_", Ident(at, _RESULT), Literal(at, 1))
        step = _call(at, "_?_:_", args[-1], more, Ident(at, _RESULT))
        result = _call(at, "_==_", Ident(at, _RESULT), Literal(at, 1))
        return _fold(at, target, _names(args, two), Literal(at, 0), Literal(at, True), step, result)

    return expand


def _collecting(
    two: bool, filtering: bool, add: Callable[[int, list[SyntaxNode]], SyntaxNode], empty: type[SyntaxNode]
) -> _Expand:
    def expand(at: int, target: SyntaxNode, args: list[SyntaxNode]) -> SyntaxNode:
        names = _names(args, two)
        step = add(at, args)
        if filtering:
            step = _call(at, "_?_:_", args[2 if two else 1], step, Ident(at, _RESULT))
        init = ListOf(at, [], []) if empty is ListOf else MapOf(at, [], [], [])
        return _fold(at, target, names, init, Literal(at, True), step, Ident(at, _RESULT))

    return expand


def _append_last(at: int, args: list[SyntaxNode]) -> SyntaxNode:
    return _call(at, "_+_", Ident(at, _RESULT), ListOf(at, [args[-1]], [False]))


def _append_first(at: int, args: list[SyntaxNode]) -> SyntaxNode:
    return _call(at, "_+_", Ident(at, _RESULT), ListOf(at, [args[0]], [False]))


def _insert(at: int, args: list[SyntaxNode]) -> SyntaxNode:
    return _call(at, "cel.@mapInsert", Ident(at, _RESULT), Ident(at, _variable(args[0])), args[-1])


def _insert_map(at: int, args: list[SyntaxNode]) -> SyntaxNode:
    return _call(at, "cel.@mapInsert", Ident(at, _RESULT), args[-1])


def _optional_map(flat: bool) -> _Expand:
    def expand(at: int, target: SyntaxNode, args: list[SyntaxNode]) -> SyntaxNode:
        inner = _let(at, _variable(args[0]), Call(at, "value", target, []), args[1])
        made = inner if flat else _call(at, "optional.of", inner)
        return _call(at, "_?_:_", Call(at, "hasValue", target, []), made, _call(at, "optional.none"))

    return expand


def _sort_by(at: int, target: SyntaxNode, args: list[SyntaxNode]) -> SyntaxNode:
    if not isinstance(target, (ListOf, Select, Ident, Fold, Call)):
        raise InvalidExpression("sortBy() takes a list")
    name = "@sort_by_input"
    keys = _collecting(False, False, _append_last, ListOf)(at, Ident(at, name), args)
    return _let(at, name, target, Call(at, "@sortByAssociatedKeys", Ident(at, name), [keys]))


_RECEIVER: dict[tuple[str, int], _Expand] = {
    ("all", 2): _all(False),
    ("all", 3): _all(True),
    ("exists", 2): _exists(False),
    ("exists", 3): _exists(True),
    ("exists_one", 2): _exists_one(False),
    ("exists_one", 3): _exists_one(True),
    ("existsOne", 3): _exists_one(True),
    ("map", 2): _collecting(False, False, _append_last, ListOf),
    ("map", 3): _collecting(False, True, _append_last, ListOf),
    ("filter", 2): _collecting(False, True, _append_first, ListOf),
    ("transformList", 3): _collecting(True, False, _append_last, ListOf),
    ("transformList", 4): _collecting(True, True, _append_last, ListOf),
    ("transformMap", 3): _collecting(True, False, _insert, MapOf),
    ("transformMap", 4): _collecting(True, True, _insert, MapOf),
    ("transformMapEntry", 3): _collecting(True, False, _insert_map, MapOf),
    ("transformMapEntry", 4): _collecting(True, True, _insert_map, MapOf),
    ("optMap", 2): _optional_map(False),
    ("optFlatMap", 2): _optional_map(True),
    ("sortBy", 2): _sort_by,
}
