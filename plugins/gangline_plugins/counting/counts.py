"""How many pods match a selector on each node, updated with every placement.

Rules:
- Pods with the same namespace and labels form one group. Selectors are compared with groups, never with single pods.
- A query is counted over all groups when it is first used; after that each placement changes one number.
- Queries that were not used for a while are dropped, and so are groups without pods.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from gangline import NOTHING, LabelSet, PodInfo, Selector, State, model, resources
from gangline_plugins.counting.columns import RowCounts

T = TypeVar("T")


class CountLimits(msgspec.Struct, frozen=True):
    """How much of the counts is kept for later use."""

    counted_bytes: int = 32 * 1024 * 1024
    """Memory for the counts of all queries together."""
    fewest_counted: int = 64
    """Queries that are kept regardless of their size."""
    empty_groups: int = 1024


class Clause(msgspec.Struct, frozen=True):
    """A condition on the labels and the namespace of pods."""

    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector = NOTHING

    @property
    def reads_namespaces(self) -> bool:
        """Whether the clause depends on labels of namespaces."""
        return bool(self.namespace_selector.requirements)

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the clause includes a namespace with these labels."""
        return namespace in self.namespaces or self.namespace_selector.matches(labels)

    def covers_for_waiting(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Whether the term of a pod that waits means a namespace; `labels` are None for one that is not known.

        As in kube-scheduler v1.36, a selector that is met by no labels at all (`NotIn`, `DoesNotExist`) means
        every namespace here: its PreFilter resolves the selector to names, then still compares it with empty labels.
        """
        return (
            namespace in self.namespaces
            or self.namespace_selector.matches({})
            or (labels is not None and self.namespace_selector.matches(labels))
        )


class Query(msgspec.Struct, frozen=True):
    """A query for the number of pods that match every clause."""

    clauses: tuple[Clause, ...]
    terminating: bool = True
    """Whether pods that are being deleted count."""

    @property
    def reads_namespaces(self) -> bool:
        """Whether a clause depends on labels of namespaces."""
        return any(clause.reads_namespaces for clause in self.clauses)

    def matches(self, namespace: str, namespace_labels: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels in this namespace matches every clause, as a term of a waiting pod."""
        return all(
            clause.selector.matches(labels) and clause.covers_for_waiting(namespace, namespace_labels)
            for clause in self.clauses
        )


class SelectorIndex(Generic[T]):
    """Items with a selector, found by the labels that the selector could match."""

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str], dict[T, None]] = {}
        self._others: dict[T, None] = {}

    def add(self, selector: Selector, item: T) -> None:
        """List the item under the requirement of its selector that has the fewest alternatives."""
        if selector.requirements is None:
            return
        pairs = narrowest(selector)
        if pairs is None:
            self._others[item] = None
        for pair in pairs or ():
            self._by_pair.setdefault(pair, {})[item] = None

    def remove(self, selector: Selector, item: T) -> None:
        """Remove the item."""
        self._others.pop(item, None)
        for pair in narrowest(selector) or ():
            listed = self._by_pair[pair]
            del listed[item]
            if not listed:
                del self._by_pair[pair]

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """All items that may match these labels, each once."""
        yield from self._others
        for pair in labels.items():
            yield from self._by_pair.get(pair, ())


def narrowest(selector: Selector) -> list[tuple[str, str]] | None:
    """Labels of which every match has at least one, from the requirement with the fewest alternatives; None if there is
    none.
    """
    wanted = [(key, values) for key, operator, values in selector.requirements or () if operator == "In"]
    if not wanted:
        return None
    key, values = min(wanted, key=lambda requirement: len(requirement[1]))
    return [(key, value) for value in values]


class NamespaceLabels:
    """The labels of namespaces, from the store that the framework keeps."""

    def __init__(self, state: State) -> None:
        self._store = state.store(resources.NAMESPACES)

    @property
    def version(self) -> int:
        """Grows with every change."""
        version: int = self._store.version
        return version

    def of(self, name: str) -> Mapping[str, str] | None:
        """The labels, None for a namespace that is not known."""
        namespace: model.Namespace | None = self._store.get(name)
        return None if namespace is None else namespace.metadata.labels or {}


class _LikePods:
    """Pods with the same namespace and labels; either all or none of them are being deleted."""

    __slots__ = ("counted", "labels", "namespace", "rows", "terminating")

    def __init__(self, namespace: str, labels: LabelSet, terminating: bool) -> None:
        self.namespace = namespace
        self.labels = labels
        self.terminating = terminating
        self.rows: dict[int, int] = {}
        self.counted: list[_Counted] = []


class _Counted:
    """A query with its counts and the groups that match it."""

    __slots__ = ("counts", "groups", "query")

    def __init__(self, query: Query) -> None:
        self.query = query
        self.counts = RowCounts()
        self.groups: dict[_LikePods, None] = {}


class PodCounts:
    """The tracker: groups of pods, and the queries that are counted over the groups."""

    def __init__(self, state: State, limits: CountLimits | None = None) -> None:
        self._limits = limits or CountLimits()
        self._namespaces = NamespaceLabels(state)
        self.clear()

    def clear(self) -> None:
        """Start over with no pods."""
        self._seen = self._namespaces.version
        self._rows = 1
        self._groups: dict[tuple[str, int, bool], _LikePods] = {}
        self._empty: OrderedDict[_LikePods, None] = OrderedDict()
        self._groups_by_pair: dict[tuple[str, str], dict[_LikePods, None]] = {}
        self._counted: OrderedDict[Query, _Counted] = OrderedDict()
        self._index: SelectorIndex[_Counted] = SelectorIndex()

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod is on row."""
        group = self._group_of(pod)
        group.rows[row] = group.rows.get(row, 0) + 1
        if row >= self._rows:
            self._rows = row + 1
        for counted in group.counted:
            counted.counts.add(row, 1)

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """These pods of one class are on these rows now: as `add` for each, in a third of the time for like labels."""
        group: _LikePods | None = None
        for pod, row in zip(pods, rows, strict=True):
            if group is None or pod.labels is not group.labels or pod.terminating != group.terminating:
                group = self._group_of(pod)
            there = group.rows
            there[row] = there.get(row, 0) + 1
            for counted in group.counted:
                counted.counts.add(row, 1)
        self._rows = max(self._rows, max(rows) + 1)

    def _group_of(self, pod: PodInfo) -> _LikePods:
        """The pods like this one, which is about to be counted among them."""
        key = (pod.namespace, pod.labels.id, pod.terminating)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._new_group(pod)
        elif not group.rows:
            del self._empty[group]
        return group

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on row."""
        group = self._groups[pod.namespace, pod.labels.id, pod.terminating]
        left = group.rows[row] - 1
        if left:
            group.rows[row] = left
        else:
            del group.rows[row]
        for counted in group.counted:
            counted.counts.add(row, -1)
        if not group.rows:
            self._empty[group] = None
            if len(self._empty) > self._limits.empty_groups:
                self._drop_group(self._empty.popitem(last=False)[0])

    def count(self, query: Query) -> RowCounts:
        """How many matching pods each row has; updated until the next call."""
        if self._seen != self._namespaces.version:
            self._forget_namespaces()
        counted = self._counted.get(query)
        if counted is None:
            counted = self._new_query(query)
        else:
            self._counted.move_to_end(query)
        return counted.counts

    def _new_query(self, query: Query) -> _Counted:
        counted = self._counted[query] = _Counted(query)
        self._index.add(query.clauses[0].selector, counted)
        for group in self._candidates(query.clauses[0].selector):  # once per query that is new
            if self._matches(query, group):
                self._connect(counted, group)
        most = max(self._limits.fewest_counted, self._limits.counted_bytes // (8 * self._rows))
        while len(self._counted) > most:
            self._drop_query(next(iter(self._counted)))
        return counted

    def _new_group(self, pod: PodInfo) -> _LikePods:
        group = _LikePods(pod.namespace, pod.labels, pod.terminating)
        for pair in pod.labels.items():
            self._groups_by_pair.setdefault(pair, {})[group] = None
        for counted in self._index.candidates(pod.labels):
            if self._matches(counted.query, group):
                self._connect(counted, group)
        return group

    def _candidates(self, selector: Selector) -> Iterable[_LikePods]:
        """The groups that may match."""
        if selector.requirements is None:
            return ()
        pairs = narrowest(selector)
        if pairs is None:
            return self._groups.values()
        return (group for pair in pairs for group in self._groups_by_pair.get(pair, ()))

    def _matches(self, query: Query, group: _LikePods) -> bool:
        if group.terminating and not query.terminating:
            return False
        return query.matches(group.namespace, self._namespaces.of(group.namespace), group.labels)

    def _connect(self, counted: _Counted, group: _LikePods) -> None:
        group.counted.append(counted)
        counted.groups[group] = None
        for row, number in group.rows.items():  # once per query and group
            counted.counts.add(row, number)

    def _drop_query(self, query: Query) -> None:
        counted = self._counted.pop(query)
        self._index.remove(query.clauses[0].selector, counted)
        for group in counted.groups:
            group.counted.remove(counted)

    def _drop_group(self, group: _LikePods) -> None:
        del self._groups[group.namespace, group.labels.id, group.terminating]
        for pair in group.labels.items():
            listed = self._groups_by_pair[pair]
            del listed[group]
            if not listed:
                del self._groups_by_pair[pair]
        for counted in group.counted:
            del counted.groups[group]

    def _forget_namespaces(self) -> None:
        """Labels of namespaces have changed: counts that depend on them are made anew when they are next used."""
        self._seen = self._namespaces.version
        for query in [query for query in self._counted if query.reads_namespaces]:
            self._drop_query(query)


def derived(pod: PodInfo, key: object, by_labels: Callable[[PodInfo], bool], make: Callable[[PodInfo], T]) -> T:
    """The result of `make` for a pod, cached with its class, or with its class and labels if `by_labels` returns
    True.
    """
    memo = pod.cls.memo
    found: Any = memo.get(key)
    if found is None:
        found = memo[key] = WeakKeyDictionary() if by_labels(pod) else make(pod)
    if not isinstance(found, WeakKeyDictionary):
        result: T = found
        return result
    kept: T | None = found.get(pod.labels)
    if kept is None:
        kept = found[pod.labels] = make(pod)
    return kept


def is_by_labels(pod: PodInfo, key: object) -> bool:
    """Whether what `derived` has made under this key depends on the labels of the pod."""
    return isinstance(pod.cls.memo.get(key), WeakKeyDictionary)
