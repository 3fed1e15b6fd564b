"""What is kept of devices for later questions is what is worked out anew, whatever has changed before."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline.dra import selecting
from gangline.dra.asking import read
from gangline.dra.candidates import Candidates
from gangline.dra.layout import DeviceLayout
from gangline.dra.likeness import alike
from gangline.dra.losses import Losses
from gangline.dra.matrices import OwnDevices, picked
from gangline.dra.selecting import Selectors
from gangline.dra.standing import Standing
from gangline.dra.table import SliceTable
from gangline.dra.usage import Usage
from gangline.state.changes import Changes
from gangline.testing import cluster, make_node

from .offers import GPU, allocated, claim, exactly
from .test_likeness import NODES
from .test_live import CAREFUL, PCIE_ROOT, ROOT, device_class, some_slices

SEEDS = st.integers(0, 2**32)
CONSTRAINED = [
    [claim(exactly(2, selectors=[CAREFUL]), constraints=[{"matchAttribute": attribute}])]
    for attribute in (ROOT, PCIE_ROOT)
] + [[claim(exactly(2), constraints=[{"matchAttribute": ROOT}])]]


class ChangingDevices:
    """A table whose slices are written again now and then, and of whose devices some are taken and given back."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._view = cluster([make_node(node, labels={"zone": "u"}) for node in NODES]).nodes.view()
        self.table = SliceTable([], self._view)
        self.standing = Standing(self.table, Usage())
        self._numbers: dict[str, list[int]] = {}
        self._taken: set[tuple[str, str]] = set()
        for node in NODES:
            self._publish(node)

    def _publish(self, node: str) -> None:
        for number in self._numbers.pop(node, ()):
            self.table.drop(number)
        self._numbers[node] = [self.table.put(each) for each in some_slices(self._random, node)]
        self.table.settle(self._view)

    def states(self) -> Iterator[int]:
        """Numbers of states, one for each change."""
        for number in range(6):
            yield number
            node = self._random.choice(NODES)
            if self._random.random() < 0.4:
                self._publish(node)
                continue
            device = f"p-{node}", f"d{self._random.randrange(4)}"
            allocation = allocated(device[1], pool=device[0]).status.allocation
            assert allocation is not None
            change = self.standing.give if device in self._taken else self.standing.take
            change(allocation.devices.results, Changes())
            self._taken ^= {device}


@given(SEEDS)
def test_new_expressions_take_the_kinds_of_the_devices_that_there_are_now(seed: int) -> None:
    devices = ChangingDevices(Random(seed))
    kept = Selectors(devices.table)

    with patch.object(selecting, "_FEW", 0):
        for number in devices.states():
            model = f'device.attributes["{GPU}"].?model.orValue("")'
            for new in (f'{model} == "x" || {number} < 0', f'device.driver + {model} == "{GPU}y" || {number} < 0'):
                assert kept.verdicts((new,)).tolist() == Selectors(devices.table).verdicts((new,)).tolist()


@given(SEEDS)
def test_losses_follow_the_nodes_that_change(seed: int) -> None:
    devices = ChangingDevices(Random(seed))
    table, standing = devices.table, devices.standing
    properties = Selectors(table).properties
    kept, own = Losses(standing, properties), OwnDevices(table)

    for _ in devices.states():
        fresh = Losses(standing, properties)
        of_node = table.node >= 0
        assert np.allclose(kept.values[of_node], fresh.values[of_node])
        rows = own.rows(len(NODES))
        if rows is not None:
            assert np.allclose(kept.matrix(rows), picked(fresh.values, rows, np.inf))


@given(SEEDS)
def test_nodes_are_alike_as_with_a_layout_that_keeps_nothing(seed: int) -> None:
    devices = ChangingDevices(Random(seed))
    selectors, kept = Selectors(devices.table), DeviceLayout(devices.standing)

    for _ in devices.states():
        for claims in CONSTRAINED:
            asked = Candidates(read(claims, {"gpu": device_class()}), devices.standing, selectors)
            of_kept, of_fresh = (
                sorted(each.nodes.tolist() for each in alike(asked, layout, np.arange(len(NODES))))
                for layout in (kept, DeviceLayout(devices.standing))
            )
            assert of_kept == of_fresh
