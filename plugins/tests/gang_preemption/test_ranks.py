"""Whatever runs: a group that can remove nobody is told so without a look at all pods, as a look at them would tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import Handle, model, resources
from gangline.testing import make_pod
from gangline_plugins.gang_preemption.occupants import Occupants, find_occupants
from gangline_plugins.gang_preemption.ranks import Ranks
from gangline_plugins.gang_preemption.sparing import GangPreemptionArgs, Sparing

from .preemption_cases import Bench

NODES = [f"l{leaf}-n{n}" for leaf in range(2) for n in range(2)]
PRIORITIES = st.integers(-2, 3)


class Always(Ranks):
    """Never certain."""

    def has_lower(self, priority: int, handle: Handle) -> bool:
        """Whether a pod may be of lower priority."""
        return True


def name_priority(bench: Bench, name: str, priority: int | None) -> None:
    spec = model.PodGroupSpec(scheduling_policy=model.PodGroupPolicy(basic={}), priority=priority)
    meta = model.ObjectMeta(name=name, namespace="default")
    bench.cache.store(resources.POD_GROUPS_V1BETA1).upsert(model.PodGroup(meta, spec))


def step(bench: Bench, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, 5))
    kind = data.draw(st.sampled_from(["run", "run", "upstream", "end", "name"]))
    if kind == "run":
        bench.run(f"p{number}", NODES[number % 4], data.draw(PRIORITIES), gpus=1, gone=data.draw(st.booleans()))
    elif kind == "upstream":
        group = model.SchedulingGroup(pod_group_name=f"g{number % 2}")
        bench.run(f"p{number}", NODES[number % 4], data.draw(PRIORITIES), gpus=1, scheduling_group=group)
    elif kind == "end":
        uid = next((uid for uid, pod in bench.cache.pods.items() if pod.name == f"p{number}"), "")
        bench.cache.remove_pod(uid)
    else:
        name_priority(bench, f"g{number % 2}", data.draw(st.none() | PRIORITIES))


def found(bench: Bench, priority: int, ranks: Ranks) -> tuple[list[str], set[str]]:
    sparing = Sparing(bench.handle, GangPreemptionArgs())
    occupants: Occupants = find_occupants(bench.handle, "", priority, sparing, ranks)
    return [pod.uid for pod in occupants.pods], {pod.uid for pod in occupants.leaving}


@given(st.data())
def test_what_may_go_is_the_same_with_and_without_the_counts(data: st.DataObject) -> None:
    bench = Bench()
    ranks = bench.cache.tracker(Ranks)
    for _ in range(data.draw(st.integers(1, 12))):
        step(bench, data)
    with bench.cache.transaction() as tx:
        lifted = data.draw(st.integers(0, len(bench.cache.pods)))
        for pod in list(bench.cache.pods.values())[:lifted]:
            tx.unplace(pod)
        inside = [(found(bench, each, ranks), found(bench, each, Always())) for each in range(-3, 5)]
    after = [(found(bench, each, ranks), found(bench, each, Always())) for each in range(-3, 5)]

    assert all(kept == read for kept, read in (*inside, *after))


@pytest.mark.parametrize("priority, named, is_lower", [(5, None, False), (4, None, False), (5, 4, True), (5, 5, False)])
def test_a_group_counts_by_the_priority_that_it_names(priority: int, named: int | None, is_lower: bool) -> None:
    bench = Bench()
    ranks = bench.cache.tracker(Ranks)
    name_priority(bench, "g", named)
    bench.run("p", NODES[0], 5, scheduling_group=model.SchedulingGroup(pod_group_name="g"))

    assert ranks.has_lower(priority, bench.handle) == is_lower


def test_members_that_are_placed_at_once_count_though_only_the_second_is_in_a_podgroup_of_kubernetes() -> None:
    """Pods of one class may differ in their group: the class says nothing of it."""
    bench = Bench()
    ranks = bench.cache.tracker(Ranks)
    name_priority(bench, "g", 4)
    groups = (None, model.SchedulingGroup(pod_group_name="g"))
    pods = [bench.cache.record(make_pod(f"p{n}", priority=5, scheduling_group=each)) for n, each in enumerate(groups)]

    with bench.cache.transaction() as tx:
        tx.place_all(pods, [0, 1])
        assert ranks.has_lower(5, bench.handle)
    assert not ranks.has_lower(5, bench.handle)
