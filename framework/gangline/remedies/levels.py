"""Remedies by looser topology constraints of a gang: a level that is preferred instead of required, or a wider level.

All subgroups that require the same level are changed together, because they usually have one constraint in common.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Sequence

from gangline.api.pod_group import ANYWHERE, PodGroup, TopologyConstraint
from gangline.plurals import listed
from gangline.remedies.remedy import Remedy, RemedyCost, RemedyKind
from gangline.remedies.trying import Trial
from gangline.state.topology import Domains, Topology

_MOST_LEVELS = 8
"""Levels that subgroups require and that are tried, at most."""
_Parts = Sequence[str]
"""The names of subgroups; empty for the whole gang."""
_LONGEST = 64
"""Characters of an unknown level that are compared with the names of levels, at most."""


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
    """The narrowest wider level that the gang, or its subgroups, could require; the level with the most similar name
    instead of one that there is not.
    """
    topology = trial.runtime.topology
    for level, parts in _required(trial):
        domains = topology.find(level)
        for other in _similar(level, topology) if domains is None else _wider(domains):

            def looser(constraint: TopologyConstraint, to: str = other) -> TopologyConstraint:
                return TopologyConstraint(required=to, preferred=constraint.preferred)

            if trial.starts(change=_changing(parts, looser)):
                why = ", which does not exist" if domains is None else ""
                sentence = f"Require the level {other} for {_named(parts)} instead of {level}{why}."
                values = {"level": level, "to": other, "subgroups": list(parts)}
                yield Remedy(RemedyKind.WIDEN_LEVEL, sentence, values, RemedyCost())
                break


def _wider(domains: Domains) -> Iterator[str]:
    """The wider levels, the narrowest first."""
    wider = domains.wider
    while wider is not None:
        yield wider.level
        wider = wider.wider


def _similar(unknown: str, topology: Topology) -> list[str]:
    """The levels, those with names like this one first."""
    names = [level.name for level in reversed(topology.levels)]
    return sorted(names, key=lambda name: -difflib.SequenceMatcher(None, name, unknown[:_LONGEST]).ratio())


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
