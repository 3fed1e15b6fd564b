"""Gangs whose pods look for each other: affinity between roles, even spreads, and slices that lose a pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gangline import PodInfo, model
from gangline.testing import make_pod
from gangline.testing.gangs import GROUP, LEAF, Gangs, fabric, leaves_of
from gangline_plugins.counting.inter_pod_affinity import InterPodAffinity
from gangline_plugins.counting.pod_topology_spread import PodTopologySpread

from .test_group_scheduling import sliced

WORKERS = {"matchLabels": {"role": "worker"}}


def member(gangs: Gangs, index: int, role: str, **spec: Any) -> PodInfo:
    return gangs.cache.record(make_pod(f"a-{index}", gpus=8, cpu=1, labels={GROUP: "a", "role": role}, **spec))


def near(role: str) -> model.Affinity:
    """Required to be in the leaf of a pod with this role."""
    term = {"labelSelector": {"matchLabels": {"role": role}}, "topologyKey": LEAF}
    wanted = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return msgspec.convert(wanted, model.Affinity)


def evenly() -> Sequence[model.TopologySpreadConstraint]:
    """As many workers in each leaf, give or take one."""
    wanted = {"maxSkew": 1, "topologyKey": LEAF, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WORKERS}
    return msgspec.convert([wanted], list[model.TopologySpreadConstraint])


def test_workers_find_the_leaf_of_a_leader_that_is_placed_with_them() -> None:
    gangs = Gangs(fabric(spines=1), InterPodAffinity)
    gangs.define("a", 4)
    workers = [member(gangs, number, "worker", affinity=near("leader")) for number in (1, 2, 3)]

    placed = gangs.place([*workers, member(gangs, 0, "leader")])

    assert len(placed) == 4 and len(leaves_of(placed)) == 1


def test_a_gang_that_is_spread_evenly_goes_where_only_its_own_pods_make_it_even() -> None:
    gangs = Gangs(fabric(spines=1, leaves=2), PodTopologySpread)
    gangs.define("a", 7)
    gangs.cache.upsert_pod(gangs.cache.record(make_pod("x", gpus=1, labels={"role": "worker"}, node="s0-l0-n0")))

    placed = gangs.place([member(gangs, n, "worker", topology_spread_constraints=evenly()) for n in range(7)])

    assert leaves_of(placed) == {"s0-l0": 3, "s0-l1": 4}


def test_a_pod_that_takes_the_place_of_one_of_a_slice_goes_to_the_leaf_of_the_others() -> None:
    gangs = Gangs(fabric(spines=1, leaves=2))
    pods = sliced(gangs, 6, gpus=1)
    first = gangs.place(pods)
    lost = pods[5]
    gangs.cache.remove_pod(lost.uid)
    for number in range(4):  # the fuller leaf is the better fit
        gangs.occupy(f"s0-l{1 - int(first['a-4'][4])}-n{number}", 7 if number else 2)

    again = gangs.place([sliced(gangs, 6, gpus=1)[5]])

    assert leaves_of(again).keys() == leaves_of({"a-4": first["a-4"]}).keys()
