"""The types of GPUs that pods name, and the nodes and domains that offer them, as columns.

Rules:
- A node's own labels determine its type. Without such labels, the types of the narrowest domain around it that lists
  any count.
- A domain that lists types offers only these, regardless of its nodes' labels.
- Names are compared word by word: H100 matches NVIDIA-H100-80GB-HBM3, and A10 does not match A100.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, Domains, Handle, NodeView, PodInfo
from gangline_plugins.leaf_spine.configured import Configured

TYPE_LABELS = ("nvidia.com/gpu.product", "nvidia.com/gpu.type", "amd.com/gpu.product-name")
"""Node labels that name the type of a node's GPUs."""
MOST_TOLD = 8
"""At most this many types are named in a message."""
_SILENT, _OFFERS, _LACKS = 0, 1, 2
_MOST_KEPT = 256
_WORDS = re.compile(r"[A-Z0-9.]{1,63}")
_SAY_NOTHING = frozenset(("NVIDIA", "TESLA", "AMD", "SHARED"))
"""Words that are no part of a type: the maker, and the note that a device plugin shares the GPU."""
_SLICED = "MIG"
"""The word after which the profile of an instance follows."""
Answers = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class WantedTypes:
    """The types that one pod names; of each field that is not empty any type is accepted."""

    named: tuple[str, ...] = ()
    """The types in the annotation."""
    selected: tuple[str, ...] = ()
    """The types in the labels that the pod's nodes must have; NodeAffinity enforces them."""

    def __bool__(self) -> bool:
        return bool(self.named or self.selected)


class GpuTypes:
    """The types of nodes and domains, for one profile."""

    def __init__(self, handle: Handle, settings: Configured) -> None:
        self._handle = handle
        self._topology = handle.topology
        self._configured = settings
        self._version = -1
        self._levels: list[Domains] = []
        self._kept: dict[tuple[str, ...], Answers] = {}

    @property
    def are_listed(self) -> bool:
        """Whether any domain lists types."""
        return any(domain.gpu_types for domain in self._configured.domains.values())

    def lacking(self, wanted: WantedTypes, nodes: NodeView) -> BoolColumn:
        """Nodes in domains that do not offer the wanted types."""
        lacks = nodes.full(False)
        for types in filter(None, (wanted.named, wanted.selected)):
            lacks |= self._offered(types)[nodes.index] == _LACKS
        return lacks

    def others(self, wanted: WantedTypes, nodes: NodeView) -> tuple[BoolColumn, BoolColumn]:
        """Nodes with a different type than the annotation names, and nodes of unknown type."""
        if not wanted.named:
            return nodes.full(False), nodes.full(False)
        is_labelled, fits = nodes.full(False), nodes.full(False)
        for key in TYPE_LABELS:
            column = nodes.label(key)
            values = np.array([*(_is_one_of(value, wanted.named) for value in column.values), False], dtype=np.bool_)
            is_labelled |= column.exists
            fits |= values[column.ids]
        return is_labelled & ~fits, ~is_labelled & (self._offered(wanted.named)[nodes.index] == _SILENT)

    def why_nowhere(self, wanted: WantedTypes, nodes: NodeView) -> str:
        """Why no node or domain offers the annotation's types, and the types that exist; "" if one offers them."""
        if not wanted.named:
            return ""
        there = sorted(set(self._names(nodes)))
        if any(_is_one_of(name, wanted.named) for name in there):
            return ""
        shown = ", ".join(there[:MOST_TOLD]) + (f" and {more} more" if (more := len(there) - MOST_TOLD) > 0 else "")
        return f"no node or domain has GPUs of type {' or '.join(wanted.named)}: " + (
            f"there are {shown}" if there else "nothing says which types there are"
        )

    def _names(self, nodes: NodeView) -> Iterator[str]:
        for domain in self._configured.domains.values():
            yield from domain.gpu_types
        for key in TYPE_LABELS:
            column = nodes.label(key)
            numbers: list[int] = np.unique(column.ids[column.exists]).tolist()
            yield from (column.values[number] for number in numbers)

    def _offered(self, types: tuple[str, ...]) -> Answers:
        """For each row the answer of the narrowest domain that lists types."""
        levels = self._topology.chain()
        if (self._version, self._levels) != (self._configured.version, levels) or len(self._kept) > _MOST_KEPT:
            self._version, self._levels, self._kept = self._configured.version, levels, {}
        found = self._kept.get(types)
        if found is None or (not levels and len(found) != len(self._handle.nodes)):
            found = self._kept[types] = self._worked_out(types, levels)
        return found

    def _worked_out(self, types: tuple[str, ...], levels: Sequence[Domains]) -> Answers:
        answers = np.zeros(len(levels[0].ids) if levels else len(self._handle.nodes), dtype=np.int8)
        said = {
            domain.name: _OFFERS if any(_is_one_of(offered, types) for offered in domain.gpu_types) else _LACKS
            for domain in self._configured.domains.values()
            if domain.gpu_types
        }
        for level in levels if said else ():
            of_domains = np.array([*(said.get(value, _SILENT) for value in level.values), _SILENT], dtype=np.int8)
            of_rows = of_domains[level.ids]
            answers = np.where(of_rows != _SILENT, of_rows, answers)
        return answers


def selected_types(pod: PodInfo) -> tuple[str, ...]:
    """The types in the labels that the pod's nodes must have; empty if the pod requires none."""
    known: tuple[str, ...] | None = pod.cls.memo.get(GpuTypes)
    if known is None:
        known = pod.cls.memo[GpuTypes] = tuple(sorted(_selected(pod)))
    return known


def _selected(pod: PodInfo) -> set[str]:
    selector = pod.spec.node_selector or {}
    found = {selector[key] for key in TYPE_LABELS if key in selector}
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required.node_selector_terms if affinity and affinity.required else []
    in_terms = [
        {
            value
            for each in term.match_expressions
            if each.key in TYPE_LABELS and each.operator == "In"
            for value in each.values
        }
        for term in terms
    ]
    return found or (set().union(*in_terms) if in_terms and all(in_terms) else set())


def _is_one_of(name: str, types: Iterable[str]) -> bool:
    return any(is_same(name, wanted) for wanted in types)


@lru_cache(maxsize=4096)
def is_same(one: str, other: str) -> bool:
    """Whether two names may mean the same type: the words of one occur in the other, in the same order."""
    short, long = sorted((_words(one), _words(other)), key=len)
    places = range(len(long) - len(short) + 1)
    return bool(short) and any(long[place : place + len(short)] == short for place in places)


def _words(name: str) -> tuple[str, ...]:
    found: list[str] = _WORDS.findall(name.upper())
    kept = found[: found.index(_SLICED)] if _SLICED in found else found
    return tuple(word for word in kept if word not in _SAY_NOTHING)
