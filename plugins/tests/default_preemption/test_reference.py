"""The same choice as a plain reading of kube-scheduler's rules, one node at a time, on random clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cmp_to_key

from hypothesis import given
from hypothesis import strategies as st

from gangline import Rows, Status
from gangline_plugins.default_preemption import Args
from gangline_plugins.default_preemption.importance import choose
from gangline_plugins.default_preemption.simulating import Simulation

from ..default_preemption_cases import Cluster, budget, cluster, node, pod

CPU = 6
_NEVER_STARTED = 99


@dataclass(frozen=True)
class P:
    name: str
    cpu: int
    priority: int
    start: int
    app: str
    port: int


@dataclass(frozen=True)
class Plan:
    """What the rules give for one node."""

    victims: tuple[P, ...]
    violations: int


def fits(wanted: P, present: list[P]) -> bool:
    ports = {other.port for other in present} - {0}
    return sum(other.cpu for other in present) + wanted.cpu <= CPU and wanted.port not in ports


def more_important(a: P, b: P) -> int:
    if a.priority != b.priority:
        return b.priority - a.priority
    if a.start != b.start:
        return a.start - b.start
    return -1 if a.name < b.name else 1


def select_victims(wanted: P, present: list[P], budgets: dict[str, int]) -> Plan | None:
    potential = sorted((p for p in present if p.priority < wanted.priority), key=cmp_to_key(more_important))
    staying = [p for p in present if p.priority >= wanted.priority]
    if not potential or not fits(wanted, staying):
        return None
    left = dict(budgets)
    violating: list[P] = []
    others: list[P] = []
    for p in potential:
        if p.app in left:
            left[p.app] -= 1
        (violating if left.get(p.app, 0) < 0 else others).append(p)
    victims, violations = [], 0
    for p in violating + others:
        if fits(wanted, [*staying, p]):
            staying.append(p)
        else:
            victims.append(p)
            violations += p in violating
    return Plan(tuple(sorted(victims, key=cmp_to_key(more_important))), violations)


def best_nodes(plans: dict[str, Plan]) -> set[str]:
    names = list(plans)
    for score in (
        lambda plan: plan.violations,
        lambda plan: max(p.priority for p in plan.victims),
        lambda plan: sum(p.priority + 2**31 for p in plan.victims),
        lambda plan: len(plan.victims),
        lambda plan: -min(p.start for p in plan.victims if p.priority == max(q.priority for q in plan.victims)),
    ):
        lowest = min(score(plans[name]) for name in names)
        names = [name for name in names if score(plans[name]) == lowest]
    return set(names)


pods = st.builds(
    P,
    name=st.just(""),
    cpu=st.integers(0, 4),
    priority=st.integers(-1, 3),
    start=st.sampled_from([1, 2, 3, _NEVER_STARTED]),
    app=st.sampled_from(["", "day", "night"]),
    port=st.sampled_from([0, 0, 80, 81]),
)
clusters = st.lists(st.lists(pods, max_size=5), min_size=1, max_size=4)
budgets = st.dictionaries(st.sampled_from(["day", "night"]), st.integers(0, 2))


def build(present: list[list[P]], allowed: dict[str, int]) -> tuple[Cluster, dict[str, list[P]]]:
    named: dict[str, list[P]] = {}
    for i, on_node in enumerate(present):
        named[f"n{i}"] = []
        for j, p in enumerate(on_node):
            fitting = p if fits(p, named[f"n{i}"]) else P("", 0, p.priority, p.start, p.app, 0)
            named[f"n{i}"].append(
                P(f"p{i}-{j}", fitting.cpu, fitting.priority, fitting.start, fitting.app, fitting.port)
            )
    objects = [
        pod(
            p.name,
            p.cpu,
            p.priority,
            name,
            None if p.start == _NEVER_STARTED else f"0{p.start}:00:00",
            {"app": p.app} if p.app else {},
            port=p.port,
        )
        for name, on_node in named.items()
        for p in on_node
    ]
    pdbs = [budget(number, app=app) for app, number in allowed.items()]
    args = Args(min_candidate_nodes_percentage=100)
    return cluster([node(name, CPU) for name in named], objects, pdbs, args), named


@given(
    present=clusters,
    allowed=budgets,
    cpu=st.integers(1, CPU),
    priority=st.integers(0, 4),
    port=st.sampled_from([0, 80]),
)
def test_victims_are_those_of_the_rules(
    present: list[list[P]], allowed: dict[str, int], cpu: int, priority: int, port: int
) -> None:
    found, named = build(present, allowed)
    wanted = P("wanted", cpu, priority, 0, "", port)
    if any(fits(wanted, on_node) for on_node in named.values()):
        return  # nothing to preempt for
    plans = {name: plan for name, p in named.items() if (plan := select_victims(wanted, p, allowed)) is not None}

    decided = found.decide(pod("wanted", cpu, priority, port=port))

    if isinstance(decided, Status):
        assert not plans
    else:
        assert decided.node in best_nodes(plans)
        assert tuple(victim.name for victim in decided.victims) == tuple(p.name for p in plans[decided.node].victims)
        assert decided.violations == plans[decided.node].violations


def simulated(
    present: list[list[P]], allowed: dict[str, int], cpu: int, priority: int
) -> tuple[Callable[[], Simulation], Rows]:
    """Makes simulations for a pod that waits on such a cluster; and the rows of the nodes."""
    found, _ = build(present, allowed)
    waiting, budgets_now = found.pod(pod("wanted", cpu, priority)), found.plugin.budgets()
    return lambda: Simulation(found.handle, waiting, budgets_now), found.handle.nodes.rows


@given(present=clusters, allowed=budgets, cpu=st.integers(1, CPU), priority=st.integers(0, 4))
def test_lock_step_is_the_same_as_one_node_at_a_time(
    present: list[list[P]], allowed: dict[str, int], cpu: int, priority: int
) -> None:
    simulation, rows = simulated(present, allowed, cpu, priority)

    assert simulation().together(rows) == simulation().one_by_one(rows)


@given(present=clusters, allowed=budgets, cpu=st.integers(1, CPU), priority=st.integers(0, 4))
def test_the_best_node_is_the_one_that_is_chosen_among_all(
    present: list[list[P]], allowed: dict[str, int], cpu: int, priority: int
) -> None:
    simulation, rows = simulated(present, allowed, cpu, priority)
    every = simulation().together(rows)

    some, others = simulation().find_best(rows)

    assert choose(some) == choose(every)
    assert len(some) + others == len(every)


def test_a_node_is_examined_no_longer_than_it_may_be_the_best() -> None:
    busy = [P("", 1, 0, n, "", 0) for n in range(1, 6)]
    found, _ = build([[P("", CPU, 0, 0, "", 0)], busy, busy], {})
    waiting = found.pod(pod("wanted", CPU, 1))

    some, others = Simulation(found.handle, waiting, found.plugin.budgets()).find_best(found.handle.nodes.rows)

    assert [[victim.name for victim in each.victims] for each in some] == [["p0-0"]]
    assert others == 2
