"""Which budgets are looked at, and what those that are not cost."""

from __future__ import annotations

from gangline import PodInfo, model
from gangline.model import ObjectMeta, PodDisruptionBudget
from gangline.testing import Cache, make_pod
from gangline_plugins.preemption.budgets import MOST, Budgets

CACHE = Cache()


def budget(namespace: str, name: str, app: str) -> PodDisruptionBudget:
    made = PodDisruptionBudget(metadata=ObjectMeta(name=name, namespace=namespace))
    made.spec.selector = model.LabelSelector({"app": app})
    made.status.disruptions_allowed = 0
    return made


def pod(namespace: str) -> PodInfo:
    return CACHE.record(make_pod("p", namespace=namespace, labels={"app": "a"}, node="n"))


def test_a_budget_keeps_the_pods_of_its_namespace() -> None:
    budgets = Budgets([budget("a", "one", "a")])

    assert [len(part) for part in budgets.split([pod("a")])] == [1, 0]
    assert [len(part) for part in budgets.split([pod("b")])] == [0, 1]


def test_thousands_of_budgets_do_not_make_the_pods_of_a_namespace_immune_by_what_they_cost() -> None:
    budgets = Budgets([budget("a", f"b-{n:05}", "a") for n in range(5000)])

    violating, _ = budgets.split([pod("a")])

    assert len(violating) == 1 and len(budgets._read("a")) == MOST


def test_budgets_of_other_namespaces_are_not_even_read() -> None:
    budgets = Budgets([budget("flood", f"b-{n}", "a") for n in range(5000)])

    assert budgets.split([pod("b")])[0] == []
    assert budgets._of_namespace == {}
