"""The affinity terms of pods: compiled once per pod class. The terms of placed pods are counted per node."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import msgspec

from gangline import NOTHING, BoundedCache, InvalidObject, PodClass, PodInfo, Selector, State, compile_selector, model
from gangline_plugins.counting.columns import RowCounts
from gangline_plugins.counting.counts import Clause, NamespaceLabels, Query, SelectorIndex, derived

_IDLE_TERMS = 256
_MATCHES_BYTES = 16 * 1024 * 1024
"""Memory for the terms that match each kind of pods: 40,000 kinds without a matching term, or thousands with some."""
_ENTRY_BYTES = 400
_MATCH_BYTES = 64
"""The bytes of one matching term: a pair, and its entry in a list."""
Match = tuple["OwnedTerm", RowCounts]


class AffinityTerm(msgspec.Struct, frozen=True):
    """One affinity term: the pods that it matches, and the topology key."""

    clause: Clause
    topology_key: str
    query: Query
    """The pods that this term alone matches."""


class Effect(enum.Enum):
    """The effect of a placed pod's term on other pods."""

    REPELS = "required anti-affinity"
    REQUIRES = "required affinity"
    PREFERS = "preferred affinity, or anti-affinity where the weight is negative"


class OwnedTerm(msgspec.Struct, frozen=True):
    """A term of placed pods, with the number of its owners per row; equal terms share the counts."""

    effect: Effect
    clause: Clause
    topology_key: str
    weight: int = 0


_NOBODY = Query(())


class PodTerms(msgspec.Struct, frozen=True):
    """All terms of one pod."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[tuple[int, AffinityTerm], ...] = ()
    """Terms with weights; the weights of anti-affinity terms are negative."""
    together: Query = _NOBODY
    """Pods that match every required affinity term."""
    owned: tuple[OwnedTerm, ...] = ()
    error: str = ""
    """Why the terms are invalid; there are no terms then."""


_NONE = PodTerms()


def terms_of(pod: PodInfo) -> PodTerms:
    """The terms of a pod."""
    return derived(pod, PodTerms, _reads_labels, _compile) if has_terms(pod.cls) else _NONE


def has_terms(cls: PodClass) -> bool:
    """Whether the pods of a class have terms."""
    affinity = cls.spec.affinity
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)


class TermOwners:
    """The tracker of the rows that have owners of each distinct term."""

    def __init__(self, state: State) -> None:
        self._namespaces = NamespaceLabels(state)
        self._changes = 0
        self.clear()

    def clear(self) -> None:
        """Start over with no pods."""
        self._terms: dict[OwnedTerm, RowCounts] = {}
        self._idle: OrderedDict[OwnedTerm, None] = OrderedDict()
        self._index: SelectorIndex[OwnedTerm] = SelectorIndex()
        self._changes += 1
        self._matches: BoundedCache[tuple[str, int], tuple[int, int, list[Match]]] = BoundedCache(_MATCHES_BYTES, _size)

    def concerns(self, cls: PodClass) -> bool:
        """Whether pods of this class have affinity terms."""
        return has_terms(cls)

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod is on row, and its terms with it."""
        for term in terms_of(pod).owned:
            counts = self._terms.get(term)
            if counts is None:
                counts = self._terms[term] = RowCounts()
                self._index.add(term.clause.selector, term)
                self._changes += 1
            elif not counts.total:
                del self._idle[term]
            counts.add(row, 1)

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on row."""
        for term in terms_of(pod).owned:
            counts = self._terms[term]
            counts.add(row, -1)
            if not counts.total:
                self._idle[term] = None
                if len(self._idle) > _IDLE_TERMS:
                    self._drop(self._idle.popitem(last=False)[0])

    @property
    def is_empty(self) -> bool:
        """Whether no placed pod has had terms lately."""
        return not self._terms

    def matching(self, pod: PodInfo) -> list[Match]:
        """The terms of placed pods that match this pod, each with the number of owners on each row, which may be 0."""
        if not self._terms:
            return []
        key = (pod.namespace, pod.labels.id)
        version = self._namespaces.version
        known = self._matches.get(key)
        if known is None or known[0] != self._changes or known[1] != version:
            known = self._matches.put(key, (self._changes, version, list(self._find(pod))))
        return known[2]

    def _find(self, pod: PodInfo) -> Iterator[Match]:
        namespace = self._namespaces.of(pod.namespace) or {}
        for term in self._index.candidates(pod.labels):
            if term.clause.covers(pod.namespace, namespace) and term.clause.selector.matches(pod.labels):
                yield term, self._terms[term]

    def _drop(self, term: OwnedTerm) -> None:
        del self._terms[term]
        self._index.remove(term.clause.selector, term)
        self._changes += 1


def _size(key: object, matches: tuple[int, int, list[Match]]) -> int:
    """The bytes of a cached list of matching terms; the terms and counts themselves exist anyway."""
    return _ENTRY_BYTES + _MATCH_BYTES * len(matches[2])


def _compile(pod: PodInfo) -> PodTerms:
    affinity = pod.spec.affinity or model.Affinity()
    near, far = affinity.pod_affinity or model.PodAffinity(), affinity.pod_anti_affinity or model.PodAffinity()
    try:
        required = _terms(near.required, pod, "podAffinity.required")
        anti = _terms(far.required, pod, "podAntiAffinity.required")
        preferred = (
            *_weighted(near.preferred, pod, "podAffinity.preferred", 1),
            *_weighted(far.preferred, pod, "podAntiAffinity.preferred", -1),
        )
    except InvalidObject as error:
        return PodTerms(error=str(error))
    return PodTerms(
        affinity=required,
        anti=anti,
        preferred=preferred,
        together=Query(tuple(term.clause for term in required)),
        owned=(
            *(OwnedTerm(Effect.REPELS, term.clause, term.topology_key) for term in anti),
            *(OwnedTerm(Effect.REQUIRES, term.clause, term.topology_key) for term in required),
            *(OwnedTerm(Effect.PREFERS, term.clause, term.topology_key, weight) for weight, term in preferred),
        ),
    )


def _terms(terms: Sequence[model.PodAffinityTerm], pod: PodInfo, path: str) -> tuple[AffinityTerm, ...]:
    return tuple(_term(term, pod, f"spec.affinity.{path}[{i}]") for i, term in enumerate(terms))


def _weighted(
    terms: Sequence[model.WeightedPodAffinityTerm], pod: PodInfo, path: str, sign: int
) -> list[tuple[int, AffinityTerm]]:
    return [
        (sign * term.weight, _term(term.pod_affinity_term, pod, f"spec.affinity.{path}[{i}].podAffinityTerm"))
        for i, term in enumerate(terms)
    ]


def _term(term: model.PodAffinityTerm, pod: PodInfo, path: str) -> AffinityTerm:
    own = not term.namespaces and term.namespace_selector is None
    selector = NOTHING
    if term.namespace_selector is not None:
        selector = compile_selector(term.namespace_selector, f"{path}.namespaceSelector")
    clause = Clause(
        _selector(term, pod, f"{path}.labelSelector"),
        frozenset((pod.namespace,) if own else term.namespaces),
        selector,
    )
    return AffinityTerm(clause, term.topology_key, Query((clause,)))


def _selector(term: model.PodAffinityTerm, pod: PodInfo, path: str) -> Selector:
    """The label selector, extended by matchLabelKeys and mismatchLabelKeys unless the API server has done so."""
    selector = compile_selector(term.label_selector, path)
    has = {(key, operator) for key, operator, _ in selector.requirements or ()}
    keys = [(key, "In") for key in term.match_label_keys] + [(key, "NotIn") for key in term.mismatch_label_keys]
    extra = [
        (key, operator, frozenset((pod.labels[key],)))
        for key, operator in keys
        if key in pod.labels and (key, operator) not in has
    ]
    return selector.with_requirements(*extra) if extra else selector


def _reads_labels(pod: PodInfo) -> bool:
    affinity = pod.spec.affinity or model.Affinity()
    sides = [side for side in (affinity.pod_affinity, affinity.pod_anti_affinity) if side is not None]
    terms = [
        term
        for side in sides
        for term in (*side.required, *(weighted.pod_affinity_term for weighted in side.preferred))
    ]
    return any(term.match_label_keys or term.mismatch_label_keys for term in terms)
