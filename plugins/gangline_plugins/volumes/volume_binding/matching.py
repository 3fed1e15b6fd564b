"""The existing volume that a claim would get on each node: the smallest that fits and that the node can reach.

Volumes that the same nodes can reach form a group, and only the smallest few of a group can be chosen. Most local
volumes name one label and its values. Such groups are looked up in the label's column, so that no volume needs a pass
over all nodes.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, NodeView, compile_selector, model, node_selection
from gangline_plugins.volumes.objects import capacity_bytes, class_of_claim, class_of_volume, requested_bytes
from gangline_plugins.volumes.volume_binding.assumed import Assumed

ChoiceColumn = NDArray[np.int64]
"""For each node the number of the volume in `VolumeChoices.volumes`, -1 for none."""
_FILESYSTEM = "Filesystem"
_AVAILABLE = "Available"
_ANYWHERE = ("", "")
Group = tuple[str, str] | bytes
"""The nodes that can reach a volume: all nodes, those with a value of a label, or those that match an encoded
selector.
"""


class VolumeShape(NamedTuple):
    """The properties, besides the size, in which a claim and its volume must agree."""

    storage_class: str
    mode: str
    attributes: str


class Facts(msgspec.Struct, frozen=True):
    """Values that are derived from a volume alone."""

    volume: model.PersistentVolume
    capacity: int
    shape: VolumeShape
    access: frozenset[str]
    groups: tuple[Group, ...]


Groups = dict[Group, list[Facts]]
"""The volumes of each group, smallest first."""


class Catalogue:
    """The volumes that can be bound: those that name a claim, and those that any claim may use; read again when one
    changes.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._version = -1
        self._facts: dict[str, Facts] = {}
        self._kept: dict[tuple[str, str], list[Facts]] = {}
        self._open: dict[tuple[VolumeShape, frozenset[str]], Groups] = {}

    def facts(self, volume: model.PersistentVolume) -> Facts:
        """The facts about a stored volume. Raises InvalidQuantity."""
        name = volume.metadata.name
        found = self._facts.get(name)
        if found is None or found.volume is not volume:
            found = self._facts[name] = _facts(volume)
        return found

    def kept_for(self, namespace: str, claim: str) -> Sequence[Facts]:
        """The volumes that name a claim."""
        self._refresh()
        return self._kept.get((namespace, claim), ())

    def open_to(self, shape: VolumeShape, access: Iterable[str]) -> list[Groups]:
        """The volumes of a shape that offer these access modes and name no claim."""
        self._refresh()
        wanted = frozenset(access)
        return [groups for (has, offers), groups in self._open.items() if has == shape and wanted <= offers]

    def _refresh(self) -> None:
        if self._version == self._store.version:
            return
        self._version, self._kept, self._open = self._store.version, {}, {}
        known, self._facts = self._facts, {}
        for volume in self._store:
            name = volume.metadata.name
            facts = known.get(name)
            if facts is None or facts.volume is not volume:
                facts = _facts(volume)
            self._facts[name] = facts
        for facts in sorted(self._facts.values(), key=_capacity):
            ref = facts.volume.spec.claim_ref
            if facts.volume.metadata.deletion_timestamp is not None:
                continue
            if ref is not None:
                self._kept.setdefault((ref.namespace, ref.name), []).append(facts)
            elif facts.volume.status.phase == _AVAILABLE:
                groups = self._open.setdefault((facts.shape, facts.access), {})
                for group in facts.groups:
                    groups.setdefault(group, []).append(facts)


class VolumeChoices:
    """The volumes that the claims of one pod would get, claim by claim, smallest claim first."""

    def __init__(self, catalogue: Catalogue, assumed: Assumed[model.PersistentVolume], nodes: NodeView) -> None:
        self._catalogue = catalogue
        self._assumed = assumed
        self._nodes = nodes
        self._taken: list[ChoiceColumn] = []
        self.volumes: list[model.PersistentVolume] = []
        """The volumes that a number stands for, as they are assumed to be."""
        self._numbers: dict[str, int] = {}

    def choose(self, claim: model.PersistentVolumeClaim) -> ChoiceColumn:
        """The volume for a claim on each node, without those that an earlier claim gets there. Raises InvalidObject."""
        size, shape = requested_bytes(claim) or 0, _shape_of(claim)
        choice = np.full(len(self._nodes), -1, dtype=np.int64)
        undecided = self._nodes.full(True)
        for volume in self._kept(claim, size, shape):  # mostly none or one
            number = self._number(volume)
            free = undecided & ~self._is_taken(np.full(len(choice), number))
            choice[free & reaches(volume, self._nodes)] = number
            undecided &= ~free
        if undecided.any():
            smallest = self._smallest(claim, size, shape)
            choice[undecided] = smallest[undecided]
        self._taken.append(choice)
        return choice

    def _kept(
        self, claim: model.PersistentVolumeClaim, size: int, shape: VolumeShape
    ) -> Iterator[model.PersistentVolume]:
        """The volumes that name the claim, or are assumed to name it."""
        facts = {
            f.volume.metadata.name: f for f in self._catalogue.kept_for(claim.metadata.namespace, claim.metadata.name)
        }
        for stored in self._assumed.assumed():
            facts.setdefault(stored.metadata.name, self._catalogue.facts(stored))
        for found in facts.values():
            volume = self._assumed.over(found.volume)
            if found.shape == shape and found.capacity >= size and is_bound_to(volume, claim):
                yield volume

    def _smallest(self, claim: model.PersistentVolumeClaim, size: int, shape: VolumeShape) -> ChoiceColumn:
        """The smallest volume that the claim may use and that no earlier claim gets."""
        selector = compile_selector(claim.spec.selector) if claim.spec.selector is not None else None
        assumed = {volume.metadata.name for volume in self._assumed.assumed()}
        depth = len(self._taken) + 1  # earlier claims take at most one volume each
        offers: dict[Group, list[Facts]] = {}
        for groups in self._catalogue.open_to(shape, claim.spec.access_modes):
            for group, members in groups.items():
                found = offers.setdefault(group, [])
                first = bisect_left(members, size, key=_capacity)
                fitting = (
                    facts
                    for facts in itertools.islice(members, first, None)
                    if facts.volume.metadata.name not in assumed
                    and (selector is None or selector.matches(facts.volume.metadata.labels or {}))
                )
                found += itertools.islice(fitting, depth)
        ranked = sorted({id(f): f for found in offers.values() for f in found}.values(), key=_capacity)
        ranks = {id(facts): rank for rank, facts in enumerate(ranked)}
        ranks_of = {group: sorted(ranks[id(facts)] for facts in found) for group, found in offers.items()}
        numbers = np.array([*(self._number(facts.volume) for facts in ranked), -1], dtype=np.int64)
        best = np.full(len(self._nodes), len(ranked), dtype=np.int64)
        for column in self._columns(ranks_of, depth, len(ranked)):
            np.minimum(best, np.where(self._is_taken(numbers[column]), len(ranked), column), out=best)
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
    """Whether the volume names the claim, and its UID if the volume names a UID."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and (ref.name, ref.namespace) == (claim.metadata.name, claim.metadata.namespace)
        and ref.uid in ("", claim.metadata.uid)
    )


def _facts(volume: model.PersistentVolume) -> Facts:
    spec = volume.spec
    shape = VolumeShape(class_of_volume(volume), spec.volume_mode or _FILESYSTEM, _attributes_class(spec))
    return Facts(volume, capacity_bytes(volume), shape, frozenset(spec.access_modes), tuple(_groups(volume)))


def _shape_of(claim: model.PersistentVolumeClaim) -> VolumeShape:
    return VolumeShape(class_of_claim(claim), claim.spec.volume_mode or _FILESYSTEM, _attributes_class(claim.spec))


def _attributes_class(spec: model.PersistentVolumeClaimSpec | model.PersistentVolumeSpec) -> str:
    name: str | None = getattr(spec, "volume_attributes_class_name", None)
    return name or ""


def _capacity(facts: Facts) -> int:
    return facts.capacity


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
