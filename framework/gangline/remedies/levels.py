"""Remedies by looser topology constraints of a gang: a level that is preferred instead of required, or a wider level.

All subgroups that require the same level are changed together, because they usually have one constraint in common.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from gangline.api.pod_group import ANYWHERE, PodGroup, TopologyConstraint
from gangline.plurals import listed
from gangline.remedies.remedy import Remedy, RemedyCost, RemedyKind
from gangline.remedies.trying import Trial

_MOST_LEVELS = 8
"""Levels that subgroups require and that are tried, at most."""
_Parts = Sequence[str]
"""The names of subgroups; empty for the whole gang."""


def prefer_level(trial: Trial) -> Iterator[Remedy]:
    """A level is preferred instead of required, by the gang or by its subgroups."""
    for level, parts in _required(trial):

        def looser(constraint: TopologyConstraint, level: str = level) -> TopologyConstraint:
            return TopologyConstraint(preferred=constraint.preferred or level)

        if trial.starts(change=_changing(parts, looser)):
            sentence = f"Prefer the level {level} for {_named(parts)} instead of requiring it."
            values = {"level": level, "subgroups": list(parts)}
            yield Remedy(RemedyKind.PREFER_LEVEL, sentence, values, RemedyCost())


def widen_level(trial: Trial) -> Iterator[Remedy]:
    """The narrowest wider level that the gang, or its subgroups, could require."""
    for level, parts in _required(trial):
        domains = trial.runtime.topology.find(level)
        wider = domains.wider if domains is not None else None
        while wider is not None:

            def looser(constraint: TopologyConstraint, to: str = wider.level) -> TopologyConstraint:
                return TopologyConstraint(required=to, preferred=constraint.preferred)

            if trial.starts(change=_changing(parts, looser)):
                sentence = f"Require the level {wider.level} for {_named(parts)} instead of {level}."
                values = {"level": level, "to": wider.level, "subgroups": list(parts)}
                yield Remedy(RemedyKind.WIDEN_LEVEL, sentence, values, RemedyCost())
                break
            wider = wider.wider


def _required(trial: Trial) -> list[tuple[str, _Parts]]:
    """The levels that are required now, each with the parts that require it; the gang itself comes first."""
    if trial.group is None:
        return []
    found: dict[str, list[str]] = {}
    for part in trial.group.subgroups:
        found.setdefault(part.topology.required_at(trial.waited), []).append(part.name)
    own = trial.group.topology.required_at(trial.waited)
    levels: list[tuple[str, _Parts]] = [(own, ()), *list(found.items())[:_MOST_LEVELS]]
    return [each for each in levels if each[0] != ANYWHERE]


def _changing(
    parts: _Parts, looser: Callable[[TopologyConstraint], TopologyConstraint]
) -> Callable[[PodGroup], PodGroup]:
    names = frozenset(parts)

    def change(group: PodGroup) -> PodGroup:
        if not names:
            return dataclasses.replace(group, topology=looser(group.topology))
        changed = (
            dataclasses.replace(each, topology=looser(each.topology)) if each.name in names else each
            for each in group.subgroups
        )
        return dataclasses.replace(group, subgroups=tuple(changed))

    return change


def _named(parts: _Parts) -> str:
    if not parts:
        return "the gang"
    return f"the subgroup {parts[0]}" if len(parts) == 1 else f"the subgroups {listed(list(parts))}"
