"""On clusters at random: what a plan says can be done in its order, harms nobody, and is enough."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gangline.testing import GPU
from gangline_plugins.defragmentation import Move, MovePlan

from .moving_cases import Fragmented

STAYS = {"gangline.dev/never-move": "true"}


def random_cluster(seed: int) -> Fragmented:
    """Two spines of three leaves of four nodes, half full of pods and gangs, some of which stay."""
    chance = random.Random(seed)
    cluster = Fragmented(spines=2, leaves=3, most_moves=chance.randint(1, 5))
    names = list(cluster.handle.nodes.names)
    free = dict.fromkeys(names, 8)
    for number in range(chance.randint(8, 18)):
        size, gpus = chance.choice((1, 1, 2, 3)), chance.choice((1, 1, 2, 4))
        nodes = [name for name in chance.sample(names, len(names)) if free[name] >= gpus][:size]
        notes = STAYS if chance.random() < 0.15 else {"gangline.dev/checkpoint-interval": f"{chance.randint(5, 50)}m"}
        for name in nodes:
            free[name] -= gpus
        if size == 1:
            cluster.occupy(f"single-{number}", nodes[0], gpus, annotations=notes)
        else:
            least = chance.choice((len(nodes), max(1, len(nodes) - 1)))
            cluster.run_gang(f"gang-{number}", nodes, gpus, least, annotations=notes)
    return cluster


def amounts(cluster: Fragmented, move: Move, field: str) -> np.ndarray:
    """GPUs of a move on each node."""
    found = np.zeros(len(cluster.handle.nodes), dtype=np.int64)
    for step in move.steps:
        row = cluster.handle.nodes.row_of(getattr(step, field))
        assert row is not None
        found[row] += step.requests[GPU]
    return found


def carried_out(cluster: Fragmented, plan: MovePlan) -> np.ndarray:
    """GPUs in use on each node in the end; every batch has its room before anybody else of it has left."""
    nodes = cluster.handle.nodes
    used = nodes.requested(GPU).copy()
    for batch in plan.batches:
        assert len(batch) <= cluster.args.most_moves
        leave = [amounts(cluster, move, "source") for move in batch]
        come = [amounts(cluster, move, "destination") for move in batch]
        own = sum(np.where(there > 0, gone, 0) for gone, there in zip(leave, come, strict=True))
        assert (used + sum(come) - own <= nodes.allocatable(GPU)).all()
        used = used + sum(come) - sum(leave)
    return used


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("size", "required"), [(3, "leaf"), (8, "spine"), (10, "")], ids=["leaf", "spine", "any"])
def test_a_plan_for_a_gang_can_be_carried_out_and_is_enough(seed: int, size: int, required: str) -> None:
    cluster = random_cluster(seed)
    pods = {pod.name: pod for pod in cluster.cache.pods.values()}

    plan = cluster.wants(size, required=required)

    used = carried_out(cluster, plan)
    freed = [row for name in plan.frees if (row := cluster.handle.nodes.row_of(name)) is not None]
    assert not used[freed].any()
    assert len(freed) == (size if plan.moves else 0)
    assert not {step.destination for step in plan.steps} & set(plan.frees)
    assert all("gangline.dev/never-move" not in pods[step.name].annotations for step in plan.steps)
    assert not plan.moves or plan.worth >= cluster.args.factor * plan.cost


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_for_leaves_can_be_carried_out_and_is_enough(seed: int) -> None:
    cluster = random_cluster(seed)

    plan = cluster.planner.for_domains("leaf", 2)

    used = carried_out(cluster, plan)
    leaf_of = cluster.handle.topology.find("leaf")
    assert leaf_of is not None
    complete = int((leaf_of.sums(used) == 0).sum())
    assert plan.is_met == (int((leaf_of.sums(cluster.handle.nodes.requested(GPU)) == 0).sum()) >= 2)
    assert complete >= 2 or not plan.moves
