"""PodDisruptionBudgets: which evictions would violate a budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from gangline import InvalidObject, PodInfo, Selector, compile_selector, model

MOST = 100
"""At most this many budgets per namespace are read, in the order of their names. Each budget costs time in every
preemption in the namespace, and thousands of budgets would make its pods immune. A preemption avoids violating budgets
where it can; it does not promise to.
"""


class _Budget(msgspec.Struct, frozen=True, eq=False):
    selector: Selector
    allowed: int
    disrupted: frozenset[str]


class Budgets:
    """All budgets at one moment."""

    def __init__(self, budgets: Iterable[model.PodDisruptionBudget]) -> None:
        self._given: defaultdict[str, list[model.PodDisruptionBudget]] = defaultdict(list)
        for budget in budgets:
            self._given[budget.metadata.namespace].append(budget)
        self._of_namespace: dict[str, list[_Budget]] = {}
        self._matching: dict[tuple[str, int], tuple[_Budget, ...]] = {}

    @property
    def any(self) -> bool:
        """Whether there is any budget."""
        return bool(self._given)

    def split(self, pods: Sequence[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """The pods whose eviction would violate a budget, and the other pods, both in the order given.

        Pods use up a budget's allowed disruptions in that order. A pod that the API server lists as disrupted uses
        none.
        """
        if not self._given:
            return [], list(pods)
        left: dict[_Budget, int] = {}
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        for pod in pods:
            breaks = False
            for budget in self._of(pod):
                if pod.name not in budget.disrupted:
                    left[budget] = left.get(budget, budget.allowed) - 1
                    breaks = breaks or left[budget] < 0
            (violating if breaks else others).append(pod)
        return violating, others

    def covered_twice(self, pods: Sequence[PodInfo]) -> list[PodInfo]:
        """The pods that several budgets cover: the API server evicts none of them."""
        return [pod for pod in pods if self._given and len(self._of(pod)) > 1]

    def _of(self, pod: PodInfo) -> tuple[_Budget, ...]:
        if not pod.labels or pod.namespace not in self._given:
            return ()
        key = pod.namespace, pod.labels.id
        found = self._matching.get(key)
        if found is None:
            budgets = self._read(pod.namespace)
            found = self._matching[key] = tuple(b for b in budgets if b.selector.matches(pod.labels))
        return found

    def _read(self, namespace: str) -> list[_Budget]:
        """The budgets of a namespace, parsed on first use, so that the budgets of other namespaces cost nothing."""
        found = self._of_namespace.get(namespace)
        if found is None:
            found = self._of_namespace[namespace] = []
            for budget in sorted(self._given[namespace], key=lambda each: each.metadata.name)[:MOST]:
                selector = _selector(budget)
                if selector is not None:
                    disrupted = frozenset(budget.status.disrupted_pods or ())
                    found.append(_Budget(selector, budget.status.disruptions_allowed, disrupted))
        return found


def _selector(budget: model.PodDisruptionBudget) -> Selector | None:
    """The selector of a budget; None if it is absent, empty or invalid: such a budget covers no pods."""
    try:
        selector = compile_selector(budget.spec.selector)
    except InvalidObject:
        return None
    return None if selector.requirements is None or selector.is_empty else selector
