"""Whether pods on one node can change the verdict on another node for a pod.

If they can, nodes have to be evaluated one at a time. A wrong yes only costs time, so namespaces are ignored here.
"""

from __future__ import annotations

from collections.abc import Iterable

from gangline.errors import InvalidObject
from gangline.model import LabelSelector
from gangline.state.pods import PodClass, PodInfo
from gangline.state.selectors import Selector, compile_selector

_LOOKS_FOR = object()
_DRAWN_BY = object()
_KEEPS_AWAY = object()
_CLAIMS = object()


def reaches_beyond(pod: PodInfo, moved: Iterable[PodInfo]) -> bool:
    """Whether the verdict on a node for `pod` may depend on pods of `moved` that are on other nodes.

    It does if `pod` counts such pods in a topology domain (affinity, anti-affinity, spread), if such pods have an
    anti-affinity against pods like `pod`, or if they share a volume claim with it.
    """
    kinds = {(other.cls.id, other.labels.id): other for other in moved}
    looks_for, claims = _looks_for(pod.cls), _claims(pod.cls)
    for other in kinds.values():
        if any(selector.matches(other.labels) for selector in looks_for):
            return True
        if any(selector.matches(pod.labels) for selector in _keeps_away(other.cls)):
            return True
        if claims and pod.namespace == other.namespace and not claims.isdisjoint(_claims(other.cls)):
            return True
    return False


def is_drawn_by(pod: PodInfo, others: Iterable[PodInfo]) -> bool:
    """Whether some of `others` may open nodes to `pod` that are closed without them.

    Required affinity and topology spread can do that.
    """
    drawn = _drawn_by(pod.cls)
    if not drawn:
        return False
    kinds = {other.labels.id: other for other in others if other.namespace == pod.namespace}
    return any(selector.matches(other.labels) for other in kinds.values() for selector in drawn)


def _looks_for(cls: PodClass) -> tuple[Selector, ...]:
    found: tuple[Selector, ...] | None = cls.memo.get(_LOOKS_FOR)
    if found is None:
        found = cls.memo[_LOOKS_FOR] = _keeps_away(cls) + _drawn_by(cls)
    return found


def _drawn_by(cls: PodClass) -> tuple[Selector, ...]:
    found: tuple[Selector, ...] | None = cls.memo.get(_DRAWN_BY)
    if found is None:
        constraints = cls.spec.topology_spread_constraints
        spread = [c.label_selector for c in constraints if c.when_unsatisfiable == "DoNotSchedule"]
        affinity = cls.spec.affinity.pod_affinity if cls.spec.affinity else None
        near = [term.label_selector for term in affinity.required] if affinity else []
        found = cls.memo[_DRAWN_BY] = _compiled(near + spread)
    return found


def _keeps_away(cls: PodClass) -> tuple[Selector, ...]:
    found: tuple[Selector, ...] | None = cls.memo.get(_KEEPS_AWAY)
    if found is None:
        affinity = cls.spec.affinity.pod_anti_affinity if cls.spec.affinity else None
        terms = affinity.required if affinity else []
        found = cls.memo[_KEEPS_AWAY] = _compiled([term.label_selector for term in terms])
    return found


def _compiled(selectors: list[LabelSelector | None]) -> tuple[Selector, ...]:
    compiled = []
    for selector in selectors:
        try:
            compiled.append(compile_selector(selector))
        except InvalidObject:
            continue  # an invalid selector matches nothing
    return tuple(compiled)


def _claims(cls: PodClass) -> frozenset[str]:
    found: frozenset[str] | None = cls.memo.get(_CLAIMS)
    if found is None:
        volumes = (volume.persistent_volume_claim for volume in cls.spec.volumes)
        found = cls.memo[_CLAIMS] = frozenset(claim.claim_name for claim in volumes if claim is not None)
    return found
