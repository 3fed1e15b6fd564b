"""Nodes that are said to be alike have equal problems."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline.dra.asking import read
from gangline.dra.candidates import Candidates
from gangline.dra.cutting import Cutter, Unallocatable, problem_of
from gangline.dra.layout import DeviceLayout
from gangline.dra.likeness import alike
from gangline.dra.problem import NodeProblem
from gangline.dra.selecting import Selectors
from gangline.dra.solving import Solver
from gangline.dra.standing import Standing
from gangline.dra.table import SliceTable
from gangline.dra.usage import Usage
from gangline.model.resource_claims import ResourceClaim
from gangline.testing import cluster, make_node

from .offers import allocated, claim, device, exactly, offer
from .test_live import CLAIMS, ROOT, device_class, some_slices

NODES = "abcdefghijkl"


def candidates(random: Random, claims: list[ResourceClaim]) -> Candidates:
    """A few kinds of nodes, of which each occurs several times, and some devices taken."""
    view = cluster([make_node(node, labels={"zone": "u"}) for node in NODES]).nodes.view()
    kinds = [random.getrandbits(32) for _ in range(3)]
    slices = [each for node in NODES for each in some_slices(Random(random.choice(kinds)), node)]
    if random.random() < 0.3:
        slices += some_slices(random, "z")
    share = {"shareID": "x", "consumedCapacity": {"memory": "10Gi"}}
    taken = [
        allocated(f"d{random.randrange(4)}", pool=f"p-{node}", **(share if random.random() < 0.2 else {}))
        for node in NODES
        if random.random() < 0.5
    ]
    table = SliceTable(slices, view)
    return Candidates(read(claims, {"gpu": device_class()}), Standing(table, Usage(taken)), Selectors(table))


def problem(of: Candidates, node: int, cutter: Cutter | None = None) -> NodeProblem | str:
    try:
        return problem_of(of, (cutter or Cutter(of, Solver())).cut(node))
    except Unallocatable as error:
        return str(error)


@given(st.integers(0, 2**32), st.sampled_from(CLAIMS))
def test_nodes_of_a_group_have_equal_problems(seed: int, claims: list[ResourceClaim]) -> None:
    of = candidates(Random(seed), claims)

    groups = [each.nodes.tolist() for each in alike(of, DeviceLayout(of.standing), np.arange(len(NODES)))]

    assert sorted(node for group in groups for node in group) == list(range(len(NODES)))
    for group in groups:
        problems = {problem(of, node) for node in group}
        assert len(problems) == 1 or all(isinstance(each, str) for each in problems)


@given(st.integers(0, 2**32), st.sampled_from(CLAIMS))
def test_a_node_has_the_same_problem_whichever_nodes_were_cut_before(seed: int, claims: list[ResourceClaim]) -> None:
    of = candidates(Random(seed), claims)
    cutter = Cutter(of, Solver())

    for node in range(len(NODES)):
        assert problem(of, node, cutter) == problem(of, node)


def test_nodes_that_differ_in_names_alone_are_alike() -> None:
    view = cluster([make_node(node) for node in NODES]).nodes.view()
    slices = [
        offer(
            f"s-{node}",
            [device(f"{node}{i}", attributes={"root": f"{node}{i // 2}", "uuid": f"{node}{i}"}) for i in range(4)],
            pool=node,
            nodeName=node,
        )
        for node in NODES
    ]
    table = SliceTable(slices, view)
    ask = read([claim(exactly(2), constraints=[{"matchAttribute": ROOT}])], {"gpu": device_class()})
    taken = Usage([allocated("c0", pool="c"), allocated("f1", pool="f"), allocated("h0", pool="h")])
    of = Candidates(ask, Standing(table, taken), Selectors(table))

    groups = sorted(
        (each.nodes.tolist() for each in alike(of, DeviceLayout(of.standing), np.arange(len(NODES)))), key=len
    )

    assert groups == [[5], [2, 7], [0, 1, 3, 4, 6, 8, 9, 10, 11]]
