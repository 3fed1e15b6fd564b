"""The syntax tree. The checker writes the type of each node and the overloads of each call into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gangline.cel.kinds import DYN, Type


@dataclass(slots=True, eq=False)
class SyntaxNode:
    """An expression; `at` is its place in the text, for messages."""

    at: int
    type: Type = field(default=DYN, init=False)


@dataclass(slots=True, eq=False)
class Literal(SyntaxNode):
    value: Any


@dataclass(slots=True, eq=False)
class Ident(SyntaxNode):
    """A name, or a dotted name that stands for a type; `is_type` is set by the checker."""

    name: str
    is_type: bool = field(default=False, init=False)


@dataclass(slots=True, eq=False)
class Select(SyntaxNode):
    """`operand.name` or `operand.?name`; with `test`, `has(operand.name)`."""

    operand: SyntaxNode
    name: str
    test: bool = False
    optional: bool = False
    type_name: str = field(default="", init=False)
    """The type that this dotted name stands for, if any; set by the checker."""


@dataclass(slots=True, eq=False)
class Call(SyntaxNode):
    """A function or an operator; `target` is None for a global call. `overloads` holds ids, set by the checker."""

    name: str
    target: SyntaxNode | None
    args: list[SyntaxNode]
    overloads: tuple[str, ...] = field(default=(), init=False)


@dataclass(slots=True, eq=False)
class ListOf(SyntaxNode):
    items: list[SyntaxNode]
    optional: list[bool]


@dataclass(slots=True, eq=False)
class MapOf(SyntaxNode):
    keys: list[SyntaxNode]
    values: list[SyntaxNode]
    optional: list[bool]


@dataclass(slots=True, eq=False)
class Fold(SyntaxNode):
    """A loop over `range`: the accumulator starts as `init` and becomes `step` per entry, while `condition` holds."""

    range: SyntaxNode
    variable: str
    second: str
    accumulator: str
    init: SyntaxNode
    condition: SyntaxNode
    step: SyntaxNode
    result: SyntaxNode


def children(node: SyntaxNode) -> list[SyntaxNode]:
    """The expressions directly within a node."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [*([node.target] if node.target is not None else []), *node.args]
        case ListOf():
            return node.items
        case MapOf():
            return [*node.keys, *node.values]
        case Fold():
            return [node.range, node.init, node.condition, node.step, node.result]
    return []


def dotted(node: SyntaxNode) -> str | None:
    """`a.b.c` as a text, None for anything else."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test and not node.optional:
        parts.append(node.name)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(parts)])
