"""The fields of a device that an expression reads. Devices with equal values of these fields get equal verdicts."""

from __future__ import annotations

from typing import Final

from gangline.cel.syntax import Call, Fold, Ident, Literal, Select, SyntaxNode, children

Path = tuple[str, ...]
"""`("driver",)`, `("allowMultipleAllocations",)`, or `("attributes" or "capacity", domain, name)`."""
Reads = frozenset[Path] | None
EVERYTHING: Final = None
"""The whole device decides, for example because the expression loops over its attributes."""


def reads_of(tree: SyntaxNode) -> Reads:
    """The paths that the expression reads, or EVERYTHING."""
    found: set[Path] = set()
    return frozenset(found) if _gather(tree, frozenset(), found) else EVERYTHING


def _gather(node: SyntaxNode, hidden: frozenset[str], found: set[Path]) -> bool:
    """Adds the paths that a node reads to `found`; False if the node reads a device otherwise than by whole paths.

    `hidden` has the names that variables of loops hide.
    """
    path, keys = _path(node, hidden)
    if path is not None:
        whole = 1 if path[0] in ("driver", "allowMultipleAllocations") else 3
        if len(path) < whole:
            return False
        found.add(path[:whole])
        return all(_gather(each, hidden, found) for each in keys)
    if isinstance(node, Ident):
        return node.name != "device" or node.name in hidden
    if isinstance(node, Fold):
        inner = hidden | {node.accumulator}
        loop = inner | {node.variable, node.second}
        outside = [(node.range, hidden), (node.init, hidden), (node.result, inner)]
        return all(_gather(each, names, found) for each, names in [*outside, (node.condition, loop), (node.step, loop)])
    return all(_gather(each, hidden, found) for each in children(node))


def _path(node: SyntaxNode, hidden: frozenset[str]) -> tuple[Path | None, list[SyntaxNode]]:
    """The path of a chain that starts at `device`, up to its first computed key, and the nodes of the later keys.

    The path is None for a node that is no such chain.
    """
    links: list[str | SyntaxNode] = []
    while True:
        if isinstance(node, Select):
            links.append(node.name)
            node = node.operand
        elif isinstance(node, Call) and node.name in ("_[_]", "_[?_]"):
            key = node.args[1]
            links.append(key.value if isinstance(key, Literal) and isinstance(key.value, str) else key)
            node = node.args[0]
        else:
            break
    if not isinstance(node, Ident) or node.name != "device" or "device" in hidden or not links:
        return None, []
    links.reverse()
    path: list[str] = []
    for link in links:
        if not isinstance(link, str):
            break
        path.append(link)
    return (tuple(path) or None), [link for link in links if not isinstance(link, str)]
