"""Whose turn it is: in order, and no namespace keeps those of others from theirs."""

from __future__ import annotations

from gangline.queueing.turns import ALLOWANCE, MOST_NAMESPACES, Turns
from gangline.queueing.units import Place, Unit
from gangline.queueing.void_entries import FEWEST
from gangline.state.cache import Cache
from gangline.testing import make_pod

CACHE = Cache()


def push(
    turns: Turns, name: str, namespace: str, since: float, priority: int = 0, profile: str = "default-scheduler"
) -> None:
    pod = CACHE.record(make_pod(name, namespace=namespace, priority=priority, scheduler_name=profile))
    turns.push((-priority, since), Unit([pod], added=since, place=Place.ACTIVE))


def order(turns: Turns, now: float, cost: float = 0.0) -> list[str]:
    """Names in the order in which they are taken, where each decision takes so many seconds."""
    names = []
    while (unit := turns.pop(now)) is not None:
        names.append(unit.pod.name)
        now += cost
        turns.spent(unit.pod.namespace, cost, now)
    return names


def test_units_take_turns_by_their_keys() -> None:
    turns = Turns()
    for name, since, priority in (("late", 3, 0), ("early", 1, 0), ("important", 4, 9)):
        push(turns, name, "a", since, priority)

    assert order(turns, 5.0) == ["important", "early", "late"]


def test_a_namespace_of_thousands_of_expensive_pods_keeps_others_waiting_for_its_allowance_alone() -> None:
    turns = Turns()
    for n in range(5000):
        push(turns, f"hopeless-{n}", "flood", 1.0)
    push(turns, "healthy", "other", 2.0)

    before_it = order(turns, 2.0, cost=0.05).index("healthy")

    assert before_it * 0.05 <= 2.5 * ALLOWANCE


def test_a_namespace_that_is_late_is_served_when_nobody_else_waits_and_in_order() -> None:
    turns = Turns()
    turns.spent("flood", 60.0, 1.0)
    for n in range(9):
        push(turns, f"p-{n}", "flood", float(n))

    assert order(turns, 1.0, cost=0.05) == [f"p-{n}" for n in range(9)]


def test_others_do_not_pass_a_higher_priority() -> None:
    turns = Turns()
    turns.spent("flood", 60.0, 1.0)
    push(turns, "important", "flood", 1.0, priority=9)
    push(turns, "plain", "other", 2.0)
    push(turns, "urgent", "other", 3.0, priority=10)

    assert order(turns, 3.0) == ["urgent", "important", "plain"]


def test_what_a_namespace_has_had_is_forgiven_with_time() -> None:
    turns = Turns()
    turns.spent("a", 1.0, 0.0)
    push(turns, "first", "a", 1.0)
    push(turns, "second", "b", 2.0)

    assert order(turns, 2.0) == ["first", "second"]


def test_accounts_of_namespaces_that_come_and_go_are_closed() -> None:
    turns = Turns()
    for n in range(10 * MOST_NAMESPACES):
        turns.spent(f"n-{n}", 0.001, float(n))

    assert len(turns._spent) <= MOST_NAMESPACES


def test_units_that_are_gone_are_dropped_though_nobody_takes_any() -> None:
    turns = Turns()
    for n in range(5 * FEWEST):
        unit = Unit([CACHE.record(make_pod(f"p-{n}", namespace="a"))], added=float(n), place=Place.ACTIVE)
        turns.push((float(-n),), unit)
        if n % 5:
            unit.move(Place.GONE, float(n))

    assert len(turns) <= 2 * FEWEST
    assert [name for name in order(turns, 0.0) if int(name[2:]) % 5 == 0] == [
        f"p-{n}" for n in range(5 * FEWEST - 5, -1, -5)
    ]


def test_the_units_of_all_profiles_are_in_one_order() -> None:
    turns = Turns()
    turns.spent("flood", 60.0, 1.0)
    for n in range(4):
        push(turns, f"late-{n}", "flood", float(n), profile="xy"[n % 2])
        push(turns, f"p-{n}", "other", float(n), priority=n // 2, profile="yx"[n % 2])
    push(turns, "important", "flood", 9.0, priority=9, profile="x")

    due = ["p-2", "p-3", "p-0", "p-1"]
    assert order(turns, 1.0) == ["important", *due, "late-0", "late-1", "late-2", "late-3"]


def test_other_units_pass_those_of_a_profile_until_its_turn_comes_again() -> None:
    turns = Turns()
    for n in range(3):
        push(turns, f"stuck-{n}", "a", float(n), priority=9, profile="stuck")
        push(turns, f"p-{n}", "a", float(n), profile="whole")

    turns.pass_by("stuck", True)
    assert len(turns) == 3 and len(list(turns)) == 6
    assert order(turns, 5.0) == ["p-0", "p-1", "p-2"] and len(turns) == 0
    turns.pass_by("stuck", False)
    assert order(turns, 5.0) == ["stuck-0", "stuck-1", "stuck-2"]
