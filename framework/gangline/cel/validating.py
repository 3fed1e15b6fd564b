"""Refuses well-typed expressions that Kubernetes refuses: literals that cannot be parsed, aggregates of mixed types."""

from __future__ import annotations

from gangline.cel.formatting import checked
from gangline.cel.kinds import Type
from gangline.cel.regexes import regex
from gangline.cel.syntax import Call, ListOf, Literal, MapOf, SyntaxNode, children
from gangline.cel.times import duration_of, timestamp_of
from gangline.errors import ExpressionFailed, InvalidExpression

_PARSED = {"duration": duration_of, "timestamp": timestamp_of}


def validate(node: SyntaxNode, formatting: bool = False) -> None:
    """Raise InvalidExpression for a node that is refused. With `formatting`, within `format`, lists may be mixed."""
    if isinstance(node, Call):
        formatting = formatting or node.name == "format"
        try:
            _validate_call(node)
        except ExpressionFailed as failure:
            raise InvalidExpression(f"character {node.at + 1}: {failure}") from None
    elif not formatting and isinstance(node, ListOf):
        _alike(node.items, node.optional)
    elif not formatting and isinstance(node, MapOf):
        _alike(node.keys, [False] * len(node.keys))
        _alike(node.values, node.optional)
    for each in children(node):
        validate(each, formatting)


def _validate_call(node: Call) -> None:
    first = node.args[0] if node.args else None
    if isinstance(first, Literal) and isinstance(first.value, str):
        if node.name in _PARSED:
            _PARSED[node.name](first.value)
        elif node.name == "matches":
            regex(first.value)
    if node.name == "format" and isinstance(node.target, Literal) and isinstance(first, ListOf):
        if not isinstance(node.target.value, str):
            return
        used = checked(node.target.value, first.items)
        if len(first.items) > used:
            raise ExpressionFailed(f"{len(first.items)} arguments of format(), and {used} are used")


def _alike(nodes: list[SyntaxNode], optional: list[bool]) -> None:
    common: Type | None = None
    for node, may_lack in zip(nodes, optional, strict=True):
        own = node.type.params[0] if may_lack and node.type.params else node.type
        if common is None:
            common = own
        elif own != common:
            raise InvalidExpression(f"character {node.at + 1}: {own} beside {common}")
