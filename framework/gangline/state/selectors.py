"""Label selectors: whether they match a set of labels. Columns of nodes have their own matcher in `node_selection`.

An absent selector matches nothing, an empty one matches everything; requirements are ANDed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gangline.errors import InvalidObject
from gangline.model import LabelSelector, Requirement

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class Selector(msgspec.Struct, frozen=True):
    """A compiled selector: hashable, so that equal selectors can share counters."""

    requirements: tuple[tuple[str, str, frozenset[str]], ...] | None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy every requirement."""
        if self.requirements is None:
            return False
        for key, operator, values in self.requirements:
            value = labels.get(key)
            if operator == "In":
                if value not in values:
                    return False
            elif operator == "NotIn":
                if value in values:
                    return False
            elif operator == "Exists":
                if value is None:
                    return False
            elif value is not None:  # DoesNotExist
                return False
        return True

    @property
    def is_empty(self) -> bool:
        """Whether the selector has no requirement and so matches everything."""
        return self.requirements == ()

    def with_requirements(self, *extra: tuple[str, str, frozenset[str]]) -> Selector:
        """The same selector with more requirements; a selector that matches nothing still matches nothing."""
        if self.requirements is None:
            return self
        return Selector(tuple(sorted({*self.requirements, *extra}, key=_order)))


NOTHING = Selector(None)
"""Matches no labels."""
EVERYTHING = Selector(())
"""Matches all labels."""


def compile_selector(selector: LabelSelector | None, path: str = "selector") -> Selector:
    """The compiled form. Raises InvalidObject for an unknown operator or a wrong number of values."""
    if selector is None:
        return NOTHING
    requirements = [(key, "In", frozenset((value,))) for key, value in (selector.match_labels or {}).items()]
    for i, requirement in enumerate(selector.match_expressions):
        check_requirement(requirement, f"{path}.matchExpressions[{i}]")
        requirements.append((requirement.key, requirement.operator, frozenset(requirement.values)))
    return Selector(tuple(sorted(set(requirements), key=_order)))


def from_map(labels: Mapping[str, str] | None) -> Selector:
    """A selector for exactly these labels, as in a Service; an absent or empty map matches nothing."""
    if not labels:
        return NOTHING
    return compile_selector(LabelSelector(match_labels=dict(labels)))


def check_requirement(requirement: Requirement, path: str) -> None:
    """Raise InvalidObject unless operator and number of values fit together."""
    if requirement.operator not in OPERATORS:
        raise InvalidObject(f"{path}.operator", requirement.operator, f"must be one of {', '.join(OPERATORS)}")
    if requirement.operator in ("In", "NotIn") and not requirement.values:
        raise InvalidObject(f"{path}.values", [], f"must not be empty for {requirement.operator}")
    if requirement.operator in ("Exists", "DoesNotExist") and requirement.values:
        raise InvalidObject(f"{path}.values", requirement.values, f"must be empty for {requirement.operator}")


def _order(requirement: tuple[str, str, frozenset[str]]) -> tuple[str, str, list[str]]:
    return requirement[0], requirement[1], sorted(requirement[2])
