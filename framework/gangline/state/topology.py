"""Network topology as columns: for each level the domain of every node.

Rules:
- Levels go from the widest to the narrowest. Equal label values within different wider domains are different domains.
- A node without the label of a level is in no domain of that level, and never counts as close to another node.
- Numbers of domains are valid until node labels change. A reader that keeps values per domain keeps them by name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np

from gangline.state.labels import MISSING
from gangline.state.node_view import Int32Column, Int64Column, Rows
from gangline.state.nodes import Nodes
from gangline.status import BoolColumn, read_only

NO_DOMAIN = -1
"""The node is in no domain."""
HOST = "host"
"""The narrowest level: each node is a domain of its own."""
_NUMBER = re.compile(r"(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Named:
    """A domain that is defined by several labels: all nodes that have these labels."""

    name: str
    match_labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    parent: str = ""


class Level(msgspec.Struct, frozen=True):
    """One level: a node label whose values are the domains, or a list of domains."""

    name: str
    label: str = ""
    domains: tuple[Named, ...] = ()
    family: str = ""
    """The vendor or tool that sets this label, if others set other labels for the same network; empty for an
    independent label."""


KNOWN_LEVELS = (
    Level("region", "topology.kubernetes.io/region"),
    Level("zone", "topology.kubernetes.io/zone"),
    Level("datacenter", "network.topology.nvidia.com/datacenter", family="topograph 0"),
    Level("core", "network.topology.nvidia.com/core", family="topograph 0"),
    Level("spine", "network.topology.nvidia.com/spine", family="topograph 0"),
    Level("block", "network.topology.nvidia.com/block", family="topograph 0"),
    Level("leaf", "network.topology.nvidia.com/leaf", family="topograph 0"),
    *(Level(f"tier-{n}", f"fabric.topograph.run/tier-{n}", family="topograph 1") for n in (5, 4, 3, 2, 1, 0)),
    Level("spine", "topology.gangline.dev/spine", family="gangline"),
    Level("leaf", "topology.gangline.dev/leaf", family="gangline"),
    Level("block", "topology.kubernetes.io/block", family="kubernetes"),
    Level("rack", "topology.kubernetes.io/rack", family="kubernetes"),
    *(Level(f"network-node-layer-{n}", f"topology.k8s.aws/network-node-layer-{n}", family="aws") for n in (1, 2, 3)),
    Level("block", "cloud.google.com/gce-topology-block", family="gcp"),
    Level("subblock", "cloud.google.com/gce-topology-subblock", family="gcp"),
    Level("network-block", "oci.oraclecloud.com/host.network_block_id", family="oci"),
    Level("rack", "oci.oraclecloud.com/host.rack_id", family="oci"),
    Level("domain", "accelerator.topograph.run/domain"),
    Level("sub-domain", "accelerator.topograph.run/sub-domain"),
    Level("accelerator", "network.topology.nvidia.com/accelerator"),
    Level("nvlink-domain", "ds.coreweave.com/nvlink.domain"),
    Level("clique", "nvidia.com/gpu.clique"),
    Level("gce-host", "cloud.google.com/gce-topology-host"),
    Level(HOST, "kubernetes.io/hostname"),
)
"""Levels by well-known labels, widest first. If none are configured, the levels that some node has form the topology.

Labels of several families describe the same network in different words; the family that most nodes have counts.
"""


@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of one level."""

    level: str
    ids: Int32Column
    """For each row the number of its domain, `NO_DOMAIN` for none."""
    values: tuple[str, ...]
    """The name of each domain; equal names within different wider domains are different domains."""
    parents: Int32Column
    """For each domain the number of the next wider domain around it, or `NO_DOMAIN`."""
    wider: Domains | None = None

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, domain: int) -> Rows:
        """The rows in a domain, in order; read-only."""
        return self._rows[domain]

    @cached_property
    def _rows(self) -> list[Rows]:
        """By domain: the rows in it."""
        order = np.argsort(self.ids, kind="stable")
        starts = np.searchsorted(self.ids[order], np.arange(len(self) + 1))
        return [read_only(order[start:end]) for start, end in itertools.pairwise(starts.tolist())]

    def sums(self, column: Int64Column) -> Int64Column:
        """The sum of a column over the rows of each domain."""
        inside = self.ids >= 0
        return np.bincount(self.ids[inside], weights=column[inside], minlength=len(self)).astype(np.int64)

    def ancestors(self, wider: Domains) -> Int32Column:
        """For each domain the number of the domain around it at a wider level, or `NO_DOMAIN`."""
        found, level = np.arange(len(self), dtype=np.int32), self
        while level is not wider:
            found = np.where(found >= 0, np.append(level.parents, np.int32(NO_DOMAIN))[found], NO_DOMAIN).astype(
                np.int32
            )
            if level.wider is None:
                return np.full(len(self), NO_DOMAIN, dtype=np.int32)
            level = level.wider
        return found

    @cached_property
    def positions(self) -> Int64Column:
        """For each domain its position within the next wider domain; n - 1 and n + 1 are neighbours of n.

        It is the last number in the name if all siblings have different numbers, else the rank by name.
        """
        positions = np.zeros(len(self), dtype=np.int64)
        siblings: dict[int, list[int]] = {}
        for domain, parent in enumerate(self.parents.tolist()):  # once per change of node labels
            siblings.setdefault(parent, []).append(domain)
        for family in siblings.values():
            numbers = [number for domain in family if (number := _last_number(self.values[domain])) is not None]
            if len(set(numbers)) == len(family):
                positions[family] = numbers
            else:
                ordered = sorted(family, key=lambda domain: natural(self.values[domain]))
                positions[ordered] = np.arange(len(ordered))
        return read_only(positions)

    @cached_property
    def order(self) -> Int64Column:
        """For each domain its rank along the topology, from the widest level down, neighbours together."""
        outer = np.zeros(len(self), dtype=np.int64)
        if self.wider is not None and len(self.wider):
            outer = np.where(self.parents >= 0, self.wider.order[self.parents], len(self.wider))
        order = np.empty(len(self), dtype=np.int64)
        order[np.lexsort((self.positions, outer))] = np.arange(len(self))
        return read_only(order)

    def path(self, domain: int) -> str:
        """The name of a domain after the names of the wider domains: "spine-1/leaf-3"."""
        return self._paths[domain]

    @cached_property
    def _paths(self) -> list[str]:
        """By domain: its path."""
        above = self.wider._paths if self.wider is not None else []
        return [
            f"{above[parent]}/{value}" if above and parent >= 0 else value
            for value, parent in zip(self.values, self.parents.tolist(), strict=True)
        ]


class Topology:
    """The levels of one profile over the nodes of the cluster; computed again only when node labels have changed."""

    def __init__(self, nodes: Nodes, levels: Sequence[Level] = ()) -> None:
        self._nodes = nodes
        self._configured = tuple(levels)
        self._stamp: tuple[int, int] | None = None
        self._levels: tuple[Level, ...] = ()
        self._domains: dict[str, Domains] = {}
        self._rank: Int64Column | None = None
        self._switches: list[Domains] | None = None

    def use(self, levels: Sequence[Level]) -> None:
        """Use these levels, widest first; if there are none, use the `KNOWN_LEVELS` that some node has a label for."""
        self._configured = tuple(levels)
        self._stamp = None

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels now, widest first."""
        self._refresh()
        return self._levels

    def find(self, level: str) -> Domains | None:
        """The domains of a level by its name or label key; None if there is no such level.

        A label key that is no level of this topology, but that some node has, counts as a level of its own. So does a
        well-known level of another family if no levels are configured.
        """
        self._refresh()
        if level in self._domains:
            return self._domains[level]
        for known in self._levels:
            if level in (known.name, known.label):
                return self._domains[known.name]
        others = () if self._configured else (known for known in KNOWN_LEVELS if known.name == level)
        for other in (*others, *((Level(level, level),) if "/" in level else ())):
            alone = self._worked_out(other, None)
            if len(alone):
                self._domains[level] = alone
                return alone
        return None

    def chain(self) -> list[Domains]:
        """The domains of all levels, widest first."""
        self._refresh()
        return [self._domains[level.name] for level in self._levels]

    def switches(self) -> list[Domains]:
        """The levels with more than one node in a domain, widest first: where nodes can be neighbours."""
        self._refresh()
        if self._switches is None:
            self._switches = [each for each in self.chain() if len(each) < int(np.count_nonzero(each.ids >= 0))]
        return self._switches

    def rank(self) -> Int64Column:
        """For each row its rank along the topology, neighbours together."""
        levels = self.switches()
        if self._rank is None:
            keys = [np.arange(self._nodes.size)]
            for level in reversed(levels):
                keys.append(np.where(level.ids >= 0, np.append(level.order, len(level))[level.ids], len(level)))
            rank = np.empty(self._nodes.size, dtype=np.int64)
            rank[np.lexsort(keys)] = np.arange(self._nodes.size)
            self._rank = read_only(rank)
        return self._rank

    def names(self) -> str:
        """The names of the levels for messages: "zone, spine, leaf"."""
        return ", ".join(level.name for level in self.levels) or "none"

    def _refresh(self) -> None:
        stamp = (self._nodes.labels.version, self._nodes.size)
        if stamp == self._stamp:
            return
        self._levels = self._configured or self._found()
        self._domains = {}
        self._rank = self._switches = None
        wider: Domains | None = None
        for level in self._levels:
            wider = self._domains[level.name] = self._worked_out(level, wider)
        self._stamp = (self._nodes.labels.version, self._nodes.size)

    def _found(self) -> tuple[Level, ...]:
        there = {level: self._labelled_rows(level) for level in KNOWN_LEVELS}
        families: dict[str, BoolColumn] = {}
        for level, rows in there.items():
            if level.family:
                families[level.family] = families.get(level.family, np.zeros_like(rows)) | rows
        largest = max(families, key=lambda family: int(np.count_nonzero(families[family])))
        return tuple(level for level, rows in there.items() if level.family in ("", largest) and rows.any())

    def _labelled_rows(self, level: Level) -> BoolColumn:
        return self._nodes.labels.column(level.label, self._nodes.everything).exists

    def _worked_out(self, level: Level, wider: Domains | None) -> Domains:
        values, numbers = self._described(level) if level.domains else self._labelled(level)
        outer = wider.ids if wider is not None else np.full(self._nodes.size, NO_DOMAIN, dtype=np.int32)
        inside = numbers != MISSING
        keys = (outer.astype(np.int64) + 1) * (len(values) + 1) + numbers
        unique, inverse = np.unique(keys[inside], return_inverse=True)
        ids = np.full(self._nodes.size, NO_DOMAIN, dtype=np.int32)
        ids[inside] = inverse
        parents = (unique // (len(values) + 1) - 1).astype(np.int32)
        chosen: list[int] = (unique % (len(values) + 1)).tolist()
        named = tuple(values[number] for number in chosen)
        return Domains(level.name, read_only(ids), named, read_only(parents), wider)

    def _labelled(self, level: Level) -> tuple[Sequence[str], Int32Column]:
        column = self._nodes.labels.column(level.label, self._nodes.everything)
        return column.values, column.ids

    def _described(self, level: Level) -> tuple[Sequence[str], Int32Column]:
        """The domains that a level lists, and for each row the number of its domain, `MISSING` for none.

        If several definitions match a node, the node is in the first of these domains.
        """
        numbers = np.full(self._nodes.size, MISSING, dtype=np.int32)
        for number, domain in enumerate(level.domains):
            fits = (numbers == MISSING) & self._nodes.alive[: self._nodes.size]
            for key, value in domain.match_labels.items():
                fits = fits & self._nodes.labels.column(key, self._nodes.everything).equals(value)
            numbers[fits] = number
        return [domain.name for domain in level.domains], numbers


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key by which leaf-2 comes before leaf-10."""
    parts = (part for part in _NUMBER.split(name) if part)
    return tuple((int(part), "") if _NUMBER.fullmatch(part) else (-1, part) for part in parts)


def _last_number(name: str) -> int | None:
    numbers: list[str] = _NUMBER.findall(name)
    return int(numbers[-1]) if numbers else None
