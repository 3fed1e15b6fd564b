"""Which of the volumes that exist a claim would get on each node: the smallest that fits and is reachable there.

Volumes that the same nodes can reach are one group, and of a group only the smallest few matter. Most local volumes name one
label and its values; a group of those is looked up through the label's column, so that no volume costs a pass over the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, NodeView, Selector, compile_selector, model, node_selection
from gangline_plugins.volumes import capacity_bytes, class_of_claim, class_of_volume, requested_bytes

ChoiceColumn = NDArray[np.int64]
"""For each node the number of the volume in `Choices.volumes`, -1 for none."""
_FILESYSTEM = "Filesystem"
_AVAILABLE = "Available"
_ANYWHERE = ("", "")
Group = tuple[str, str] | bytes
"""The nodes that can reach a volume: all, those with a value of a label, or those that match an encoded selector."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What follows from a volume alone."""

    volume: model.PersistentVolume
    capacity: int
    groups: tuple[Group, ...]


class Catalogue:
    """The volumes by storage class, smallest first; read again when one changes."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._version = -1
        self._facts: dict[str, _Facts] = {}
        self._by_class: dict[str, list[_Facts]] = {}

    def of_class(self, name: str) -> Sequence[_Facts]:
        """The volumes of a class. Raises InvalidQuantity."""
        if self._version != self._store.version:
            self._read()
        return self._by_class.get(name, ())

    def _read(self) -> None:
        known, self._facts, self._by_class = self._facts, {}, {}
        for volume in self._store:
            name = volume.metadata.name
            facts = known.get(name)
            if facts is None or facts.volume is not volume:
                facts = _Facts(volume, capacity_bytes(volume), tuple(_groups(volume)))
            self._facts[name] = facts
            self._by_class.setdefault(class_of_volume(volume), []).append(facts)
        for volumes in self._by_class.values():
            volumes.sort(key=lambda facts: facts.capacity)
        self._version = self._store.version


class Choices:
    """The volumes that the claims of one pod would get, claim by claim, smallest claim first."""

    def __init__(
        self,
        catalogue: Catalogue,
        current: Callable[[model.PersistentVolume], model.PersistentVolume],
        nodes: NodeView,
    ) -> None:
        self._catalogue = catalogue
        self._current = current
        self._nodes = nodes
        self._taken: list[ChoiceColumn] = []
        self.volumes: list[model.PersistentVolume] = []
        """The volumes that a number stands for, as `current` gives them."""
        self._numbers: dict[str, int] = {}

    def choose(self, claim: model.PersistentVolumeClaim) -> ChoiceColumn:
        """The volume for a claim on each node; none that an earlier claim gets there. Raises InvalidObject."""
        wanted = requested_bytes(claim) or 0
        fitting = []
        for facts in self._catalogue.of_class(class_of_claim(claim)):
            volume = self._current(facts.volume)
            if facts.capacity >= wanted and _could_serve(claim, volume):
                fitting.append((facts, volume))
        choice = np.full(len(self._nodes), -1, dtype=np.int64)
        undecided = self._nodes.full(True)
        for _, volume in fitting:
            if is_bound_to(volume, claim):  # it, or none
                number = self._number(volume)
                free = undecided & ~self._is_taken(np.full(len(choice), number))
                choice[free & reaches(volume, self._nodes)] = number
                undecided &= ~free
        if undecided.any():
            smallest = self._smallest(claim, fitting)
            choice[undecided] = smallest[undecided]
        self._taken.append(choice)
        return choice

    def _smallest(
        self, claim: model.PersistentVolumeClaim, fitting: Iterable[tuple[_Facts, model.PersistentVolume]]
    ) -> ChoiceColumn:
        selector = compile_selector(claim.spec.selector) if claim.spec.selector is not None else None
        ranked: list[int] = []
        groups: dict[Group, list[int]] = {}
        depth = len(self._taken) + 1  # earlier claims take at most one volume each
        for facts, volume in fitting:
            if not _is_open(claim, volume, selector):
                continue
            for group in facts.groups:
                members = groups.setdefault(group, [])
                if len(members) < depth:
                    members.append(len(ranked))
            ranked.append(self._number(volume))
        numbers = np.array([*ranked, -1], dtype=np.int64)
        best = np.full(len(self._nodes), len(ranked), dtype=np.int64)
        for ranks in self._columns(groups, depth, len(ranked)):
            np.minimum(best, np.where(self._is_taken(numbers[ranks]), len(ranked), ranks), out=best)
        chosen: ChoiceColumn = numbers[best]
        return chosen

    def _columns(self, groups: dict[Group, list[int]], depth: int, none: int) -> Iterator[ChoiceColumn]:
        """For each level of each kind of group the rank of the volume that it offers to each node."""
        labels = {group[0] for group in groups if isinstance(group, tuple) and group != _ANYWHERE}
        for level in range(depth):
            for key in labels:
                column = self._nodes.label(key)
                offers = np.array([_member(groups, (key, v), level, none) for v in column.values] + [none])
                yield offers[column.ids]  # a node without the label has -1, the last entry
            for group in groups:
                if group == _ANYWHERE or isinstance(group, bytes):
                    rank = _member(groups, group, level, none)
                    if rank != none:
                        yield np.where(self._members(group), rank, none)

    def _members(self, group: Group) -> BoolColumn:
        if isinstance(group, bytes):
            return node_selection.match_selector(msgspec.json.decode(group, type=model.NodeSelector), self._nodes)
        return self._nodes.full(True)

    def _is_taken(self, numbers: ChoiceColumn) -> BoolColumn:
        taken = self._nodes.full(False)
        for column in self._taken:
            taken |= (column == numbers) & (numbers != -1)
        return taken

    def _number(self, volume: model.PersistentVolume) -> int:
        number = self._numbers.get(volume.metadata.name)
        if number is None:
            number = self._numbers[volume.metadata.name] = len(self.volumes)
            self.volumes.append(volume)
        return number


def reaches(volume: model.PersistentVolume, nodes: NodeView) -> BoolColumn:
    """The nodes that can reach a volume."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return nodes.full(True)
    return node_selection.match_selector(affinity.required, nodes)


def is_bound_to(volume: model.PersistentVolume, claim: model.PersistentVolumeClaim) -> bool:
    """Whether the volume is kept for the claim: by name, and by UID where it names one."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and (ref.name, ref.namespace) == (claim.metadata.name, claim.metadata.namespace)
        and ref.uid in ("", claim.metadata.uid)
    )


def _could_serve(claim: model.PersistentVolumeClaim, volume: model.PersistentVolume) -> bool:
    """Whether the volume is not for another claim, stays, and is of the mode and attributes that the claim wants."""
    return (
        (volume.spec.claim_ref is None or is_bound_to(volume, claim))
        and (claim.spec.volume_mode or _FILESYSTEM) == (volume.spec.volume_mode or _FILESYSTEM)
        and _attributes_class(claim.spec) == _attributes_class(volume.spec)
        and volume.metadata.deletion_timestamp is None
    )


def _is_open(
    claim: model.PersistentVolumeClaim, volume: model.PersistentVolume, selector: Selector | None
) -> bool:
    """Whether a volume that is kept for nobody may be given to the claim."""
    return (
        volume.spec.claim_ref is None
        and volume.status.phase == _AVAILABLE
        and (selector is None or selector.matches(volume.metadata.labels or {}))
        and set(claim.spec.access_modes).issubset(volume.spec.access_modes)
    )


def _attributes_class(spec: model.PersistentVolumeClaimSpec | model.PersistentVolumeSpec) -> str:
    name: str | None = getattr(spec, "volume_attributes_class_name", None)
    return name or ""


def _groups(volume: model.PersistentVolume) -> Iterator[Group]:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        yield _ANYWHERE
        return
    terms = affinity.required.node_selector_terms
    if len(terms) == 1 and len(terms[0].match_expressions) == 1 and not terms[0].match_fields:
        (wanted,) = terms[0].match_expressions
        if wanted.operator == "In" and wanted.values:
            for value in wanted.values:
                yield wanted.key, value
            return
    yield msgspec.json.encode(affinity.required)


def _member(groups: dict[Group, list[int]], group: Group, level: int, none: int) -> int:
    members = groups.get(group, ())
    return members[level] if level < len(members) else none
