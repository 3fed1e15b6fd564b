"""Remedies for somebody who may not see the pods of every namespace: the same changes, without the pods' names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from gangline.remedies.freeing import awaited
from gangline.remedies.remedy import Remedies, Remedy, RemedyKind

HIDDEN = "You may not see all of the pods."
"""Ends a sentence without names."""


@dataclass(frozen=True)
class ShownRemedies:
    """The remedies for one unit, which everybody may see who may see the unit.

    Who asks again is told the same without any work; the names of a whole cluster's pods take long to write.
    """

    found: Remedies

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces of the pods that the remedies name."""
        return self._named

    @cached_property
    def _named(self) -> frozenset[str]:
        return frozenset(name for remedy in self.found.remedies for name in _namespaces(remedy))

    def told(self, seen: Collection[str]) -> bytes:
        """As JSON, for somebody who may see the pods of some of these namespaces."""
        return self._told(self.namespaces & frozenset(seen))

    @cached_property
    def _told(self) -> Callable[[frozenset[str]], bytes]:
        return lru_cache(maxsize=1)(self._written)

    def _written(self, seen: frozenset[str]) -> bytes:
        remedies = tuple(each if _namespaces(each) <= seen else _unnamed(each) for each in self.found.remedies)
        return msgspec.json.encode(msgspec.structs.replace(self.found, remedies=remedies))


def _namespaces(remedy: Remedy) -> set[str]:
    return {pod.partition("/")[0] for pod in _pods(remedy.values)}


def _pods(values: Mapping[str, Any]) -> list[str]:
    """The keys of the pods that end, move or are removed."""
    return [*values.get("pods", ()), *(move["pod"] for move in values.get("moves", ()))]


def _unnamed(remedy: Remedy) -> Remedy:
    """The remedy without the pods that it is about, and without the groups of these pods."""
    values = {name: value for name, value in remedy.values.items() if name not in ("pods", "moves")}
    number = len(_pods(remedy.values))
    pods = "1 pod" if number == 1 else f"{number} pods"
    match remedy.kind:
        case RemedyKind.FREE_ROOM:
            what = f"{awaited(values)}: {pods} would have to end"
        case RemedyKind.MOVE_PODS:
            what = f"Move {pods} to other nodes"
        case RemedyKind.RAISE_PRIORITY:
            present, priority = values["from"], values["priority"]
            what = f"Raise the priority from {present} to {priority}, so that preemption may remove {pods}"
        case _:
            what = f"{remedy.kind}: {pods}"
    return msgspec.structs.replace(remedy, sentence=f"{what}. {HIDDEN}", values=values)
