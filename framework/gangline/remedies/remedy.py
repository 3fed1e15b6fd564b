"""One remedy as a value: what is changed, what the change costs, and a sentence that says so."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class RemedyKind(enum.StrEnum):
    """The kind of a change. Of two remedies with equal costs, the one whose kind is listed first comes first."""

    REPAIR_NODES = "RepairNodes"
    """Nodes are uncordoned, ready again, and all their GPUs are healthy."""
    TOLERATE_TAINT = "TolerateTaint"
    """The pods tolerate one more taint."""
    PREFER_NODES = "PreferNodes"
    """Labels or a node affinity that the pods require of their node are only preferred."""
    PREFER_LEVEL = "PreferLevel"
    """The topology level that the gang requires is only preferred."""
    WIDEN_LEVEL = "WidenLevel"
    """The gang requires a wider topology level."""
    FEWER_MEMBERS = "FewerMembers"
    """The gang needs fewer members."""
    SMALLER_REQUESTS = "SmallerRequests"
    """The pods request less of one resource."""
    MOVE_PODS = "MovePods"
    """Running pods are evicted, and their controllers create them again on other nodes."""
    RAISE_PRIORITY = "RaisePriority"
    """The pods have a higher priority, and preemption removes pods for them."""
    FREE_ROOM = "FreeRoom"
    """Running pods end."""


class RemedyCost(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """The price of a remedy. Of two remedies, the first field that differs decides which one is cheaper."""

    interrupted: int = 0
    """Running pods that end or are evicted."""
    given_up: float = 0.0
    """The part of its own wishes that the unit gives up, 0 to 1: of the members that it needs, or of the amount that
    its pods request.
    """
    changed: int = 1
    """Objects that somebody has to change."""


class Remedy(msgspec.Struct, frozen=True, rename="camel"):
    """A change with which the unit would start."""

    kind: RemedyKind
    sentence: str
    values: Mapping[str, Any]
    """The change in values for programs; docs/operating/remedies.md lists the values of each kind."""
    cost: RemedyCost


class Remedies(msgspec.Struct, frozen=True, rename="camel"):
    """The remedies for one unit, the cheapest first."""

    unit: str
    """ "pod NAMESPACE/NAME" or "gang NAMESPACE/NAME"."""
    remedies: tuple[Remedy, ...] = ()
    tried: int = 0
    """How many changes were tried."""
    is_complete: bool = True
    """False if the search was not finished, because attempts or time ran out: there may be cheaper remedies."""
    note: str = ""
    """Why no change was tried; "" if some were."""


_KINDS = list(RemedyKind)


def cheapest_first(remedies: list[Remedy]) -> tuple[Remedy, ...]:
    """The remedies in the order of their costs; remedies of equal costs in the order of their kinds."""
    return tuple(sorted(remedies, key=lambda each: (each.cost, _KINDS.index(each.kind))))


def joined(parts: Sequence[Remedies]) -> Remedies | None:
    """The remedies of all parts of one answer, and the rest as the last part says it; None without any part."""
    if not parts:
        return None
    found = [remedy for part in parts for remedy in part.remedies]
    return msgspec.structs.replace(parts[-1], remedies=cheapest_first(found))
