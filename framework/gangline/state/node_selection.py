"""Node selectors over columns: which nodes match a nodeSelector or the terms of a node affinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from gangline.errors import InvalidObject
from gangline.model import NodeSelector, NodeSelectorTerm, Requirement
from gangline.state.labels import parse_integer
from gangline.state.node_view import NodeView
from gangline.status import BoolColumn

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def match_labels(labels: Mapping[str, str], nodes: NodeView) -> BoolColumn:
    """Nodes that have all of these labels."""
    return reduce(
        np.logical_and,
        (nodes.label(key).equals(value) for key, value in labels.items()),
        nodes.full(True),
    )


def match_selector(selector: NodeSelector, nodes: NodeView) -> BoolColumn:
    """Nodes that match one of the terms; no term, or empty terms, match nothing."""
    return reduce(
        np.logical_or,
        (match_term(term, nodes) for term in selector.node_selector_terms),
        nodes.full(False),
    )


def match_term(term: NodeSelectorTerm, nodes: NodeView) -> BoolColumn:
    """Nodes that match every requirement of a term; an empty or invalid term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return nodes.full(False)
    try:
        masks = [
            *(match_requirement(requirement, nodes) for requirement in term.match_expressions),
            *(_match_field(requirement, nodes) for requirement in term.match_fields),
        ]
    except InvalidObject:
        return nodes.full(False)
    return reduce(np.logical_and, masks)


def match_requirement(requirement: Requirement, nodes: NodeView) -> BoolColumn:
    """Nodes whose label meets one requirement. Raises InvalidObject."""
    check_requirement(requirement, requirement.key)
    column = nodes.label(requirement.key)
    operator = requirement.operator
    if operator == "In":
        return column.isin(requirement.values)
    if operator == "NotIn":
        return ~column.isin(requirement.values)
    if operator == "Exists":
        return column.exists
    if operator == "DoesNotExist":
        return ~column.exists
    bound = parse_integer(requirement.values[0])
    numbers, valid = column.integers()
    assert bound is not None  # checked above
    return valid & (numbers > bound if operator == "Gt" else numbers < bound)


def check_selector(selector: NodeSelector, path: str) -> None:
    """Raise InvalidObject for the first invalid requirement."""
    for i, term in enumerate(selector.node_selector_terms):
        check_term(term, f"{path}.nodeSelectorTerms[{i}]")


def check_term(term: NodeSelectorTerm, path: str) -> None:
    """Raise InvalidObject for the first invalid requirement of a term."""
    for i, requirement in enumerate(term.match_expressions):
        check_requirement(requirement, f"{path}.matchExpressions[{i}]")
    for i, requirement in enumerate(term.match_fields):
        _check_field(requirement, f"{path}.matchFields[{i}]")


def check_requirement(requirement: Requirement, path: str) -> None:
    """Raise InvalidObject unless operator and values fit together."""
    operator, values = requirement.operator, requirement.values
    if operator not in OPERATORS:
        raise InvalidObject(f"{path}.operator", operator, f"must be one of {', '.join(OPERATORS)}")
    if operator in ("In", "NotIn") and not values:
        raise InvalidObject(f"{path}.values", values, f"must not be empty for {operator}")
    if operator in ("Exists", "DoesNotExist") and values:
        raise InvalidObject(f"{path}.values", values, f"must be empty for {operator}")
    if operator in ("Gt", "Lt") and (len(values) != 1 or parse_integer(values[0]) is None):
        raise InvalidObject(f"{path}.values", values, f"must be exactly one integer for {operator}")


def names_of(terms: Sequence[NodeSelectorTerm]) -> frozenset[str] | None:
    """The node names that the terms allow through metadata.name; None if some term does not restrict the name."""
    allowed: set[str] = set()
    for term in terms:
        names: set[str] | None = None
        for requirement in term.match_fields:
            if requirement.key == "metadata.name" and requirement.operator == "In":
                these = set(requirement.values)
                names = these if names is None else names & these
        if names is None:
            return None
        allowed |= names
    return frozenset(allowed) if terms else None


def _match_field(requirement: Requirement, nodes: NodeView) -> BoolColumn:
    _check_field(requirement, requirement.key)
    wanted = nodes.row_of(requirement.values[0])
    mask = nodes.rows == (-1 if wanted is None else wanted)
    return mask if requirement.operator == "In" else ~mask


def _check_field(requirement: Requirement, path: str) -> None:
    if requirement.key != "metadata.name":
        raise InvalidObject(f"{path}.key", requirement.key, "only metadata.name is a field of nodes")
    if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
        raise InvalidObject(f"{path}", requirement.values, "needs In or NotIn and exactly one value")
