"""Matrices of devices by nodes: equal columns are found, and answers by matrices are those by single nodes."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.dra import counting, matrices
from gangline.dra.asking import read
from gangline.dra.candidates import Candidates
from gangline.dra.counters import CounterRoom
from gangline.dra.counting import Counting
from gangline.dra.losses import Losses
from gangline.dra.matrices import NO_DEVICE, OwnDevices, equal_columns, relative
from gangline.dra.properties import UNKNOWN
from gangline.dra.rows import RowNumbers
from gangline.dra.selecting import Selectors
from gangline.dra.standing import Standing
from gangline.dra.table import SliceTable
from gangline.dra.usage import Usage
from gangline.dra.weighing import Weighing
from gangline.model.resource_claims import ResourceClaim
from gangline.testing import cluster, make_node

from .offers import allocated, claim, device, exactly, offer
from .test_likeness import NODES, candidates
from .test_live import CAREFUL, CLAIMS, ROOT, X, device_class

SIZE = len(NODES)


@given(st.integers(0, 2**32), st.booleans())
def test_equal_columns_have_equal_numbers(seed: int, are_keys_bad: bool) -> None:
    chance = Random(seed)
    length = chance.randrange(1, 4)
    matrix = np.array([[chance.randrange(-1, 2) for _ in range(20)] for _ in range(length)], dtype=np.int32)

    with patch.object(matrices, "_FACTOR", 1 if are_keys_bad else matrices._FACTOR):
        numbers, first = equal_columns(matrix)

    columns = [tuple(column) for column in matrix.T.tolist()]
    assert len(first) == len(set(columns)) == len(set(zip(columns, numbers.tolist(), strict=True)))
    assert [columns[at] for at in first[numbers]] == columns
    assert first.tolist() == [numbers.tolist().index(number) for number in range(len(first))]


@pytest.mark.parametrize("length", [1, 5, 40])
@given(st.integers(0, 2**32))
def test_values_count_by_where_in_the_node_they_occur_first(length: int, seed: int) -> None:
    chance = Random(seed)
    values = np.array([[chance.randrange(-4, 4) for _ in range(6)] for _ in range(length)], dtype=np.int32)

    found = relative(values)

    for column, given_ in zip(found.T.tolist(), values.T.tolist(), strict=True):
        assert column == [given_.index(each) if each >= 0 else max(each, UNKNOWN) for each in given_]


@given(st.integers(0, 2**32))
def test_a_matrix_has_the_devices_that_nodes_have_for_themselves(seed: int) -> None:
    table = candidates(Random(seed), CLAIMS[0]).table

    rows = OwnDevices(table).rows(SIZE)

    if rows is not None:
        for node, column in enumerate(rows.T.tolist()):
            assert [row for row in column if row != NO_DEVICE] == sorted(table.rows_on([node]).tolist())


ROOTS = [{"matchAttribute": ROOT}]
SEVERAL = [
    [claim(exactly(1, selectors=[CAREFUL]), exactly())],
    [claim(exactly(2, selectors=[CAREFUL]), exactly())],
    [claim(exactly(1, selectors=[X]), exactly(2))],
    [claim(exactly(1, selectors=[CAREFUL]), exactly(), constraints=ROOTS)],
    [claim(exactly(1, selectors=[CAREFUL]), {"firstAvailable": [{"name": f"n{n}", **exactly(n)} for n in (2, 1)]})],
    [claim(exactly(1, selectors=[CAREFUL]), exactly(), constraints=[{"distinctAttribute": ROOT}])],
]
"""Requests of which the candidates overlap."""


def few_kinds(chance: Random, claims: list[ResourceClaim]) -> Candidates:
    """Nodes of two shapes that differ in roots, with one of two sets of devices taken; half may see one more."""
    models = [chance.choice(["x", "y", ""]) for _ in range(chance.randrange(3, 5))]
    shapes = [[(model, chance.randrange(2)) for model in models] for _ in range(2)]
    sets = [[f"d{at}" for at in range(4) if chance.random() < 0.4] for _ in range(2)]
    slices, taken = [], []
    for node in NODES:
        shape = chance.choice(shapes)
        devices = [
            device(f"d{at}", attributes={"root": f"{node}{root}", **({"model": model} if model else {})})
            for at, (model, root) in enumerate(shape)
        ]
        slices.append(offer(f"s-{node}", devices, pool=node, nodeName=node))
        taken.append(allocated(*chance.choice(sets), pool=node))
    if chance.random() < 0.3:
        zone = {"key": "zone", "operator": "In", "values": ["0"]}
        selector = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
        slices.append(offer("s-some", [device("d0")], pool="some", nodeSelector=selector))
    made = [make_node(node, labels={"zone": str(at % 2)}) for at, node in enumerate(NODES)]
    table = SliceTable(slices, cluster(made).nodes.view())
    return Candidates(read(claims, {"gpu": device_class()}), Standing(table, Usage(taken)), Selectors(table))


Counts = tuple[list[int], list[int], list[int]]


def counted(asked: Candidates, is_bare: bool, of: RowNumbers | None, many: int) -> Counts:
    counts = Counting(asked, CounterRoom(asked.standing, asked.properties, lambda: None), OwnDevices(asked.table))
    with patch.object(counting, "_MANY", many):
        found = counts.count(SIZE, of, is_bare)
        firsts = counts.first_fits(SIZE, np.arange(SIZE) if of is None else of)
    room = np.where(found.outcomes == counting.OPEN, 0, found.room)
    return found.outcomes.tolist(), room.tolist(), firsts.tolist()


@given(st.integers(0, 2**32), st.sampled_from(SEVERAL), st.booleans(), st.booleans())
def test_counting_one_node_of_each_kind_says_what_counting_all_says(
    seed: int, claims: list[ResourceClaim], is_bare: bool, is_part: bool
) -> None:
    asked = few_kinds(Random(seed), claims)
    of = np.array([node for node in range(SIZE) if node % 3]) if is_part else None

    assert counted(asked, is_bare, of, 1) == counted(asked, is_bare, of, SIZE + 1)


@given(st.integers(0, 2**32), st.sampled_from(CLAIMS))
def test_nodes_weigh_the_same_with_and_without_a_matrix(seed: int, claims: list[ResourceClaim]) -> None:
    asked = candidates(Random(seed), claims)
    weighing = Weighing(asked, Losses(asked.standing, asked.properties), OwnDevices(asked.table))
    parts = (None, np.array([node for node in range(SIZE) if node % 3]))

    found = [weighing.weigh(SIZE, of).tolist() for of in parts]

    with patch.object(OwnDevices, "rows", return_value=None):
        assert found == [weighing.weigh(SIZE, of).tolist() for of in parts]
