"""Taint rules: the devices that a rule selects are tainted, and no others; columns are those made from scratch."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.dra import Selectors, SliceTable
from gangline.dra.live import Devices
from gangline.dra.taint_rules import TaintedSlices, TaintRules
from gangline.model import DeviceTaintRule
from gangline.model.resource_slices import DeviceClass, ResourceSlice
from gangline.testing import cluster, make_node

from .offers import GPU, claim, device, exactly, offer

NODES = "abc"
CLASS = msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)
TOLERANT = [{"key": "k", "operator": "Equal", "value": "u", "effect": "NoSchedule"}]
CLAIMS = ([claim(exactly())], [claim(exactly(2))], [claim(exactly(1, tolerations=TOLERANT))])


def rule(name: str, selector: dict[str, str] | None, effect: str = "NoSchedule", value: str = "u") -> DeviceTaintRule:
    spec: dict[str, Any] = {"taint": {"key": "k", "value": value, "effect": effect}}
    if selector is not None:
        spec["deviceSelector"] = selector
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceTaintRule)


def two(node: str, **fields: Any) -> ResourceSlice:
    return offer(f"s-{node}", [device("d0", **fields), device("d1")], nodeName=node, pool=f"pool-{node}")


def added(name: str, time: str | None, **selector: str) -> DeviceTaintRule:
    made = rule(name, selector)
    return msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, taint=msgspec.structs.replace(made.spec.taint, time_added=time))
    )


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    "rules",
    [
        [added("a", LATE), added("b", EARLY)],
        [added("a", EARLY), added("b", LATE, device="d0")],
        [added("a", None), added("b", EARLY)],
    ],
    ids=["by name", "for one device", "without a time"],
)
def test_of_equal_taints_the_one_that_was_added_first_counts(rules: list[DeviceTaintRule]) -> None:
    first, _ = TaintRules(rules).applied(two("a")).spec.devices

    assert [taint.time_added for taint in first.taints] == [EARLY]


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        ({}, ["d0", "d1"]),
        (None, ["d0", "d1"]),
        ({"driver": GPU}, ["d0", "d1"]),
        ({"driver": "other.example.com"}, []),
        ({"pool": "pool-a"}, ["d0", "d1"]),
        ({"pool": "pool-b"}, []),
        ({"device": "d1"}, ["d1"]),
        ({"driver": GPU, "pool": "pool-a", "device": "d0"}, ["d0"]),
        ({"driver": GPU, "pool": "pool-b", "device": "d0"}, []),
    ],
)
def test_a_rule_taints_the_devices_that_it_selects(selector: dict[str, str] | None, tainted: list[str]) -> None:
    found = TaintRules([rule("r", selector)]).applied(two("a"))

    assert [each.name for each in found.spec.devices if each.taints] == tainted


def test_a_slice_without_selected_devices_stays_the_very_same() -> None:
    each = two("a")

    assert TaintRules([rule("r", {"device": "d7"})]).applied(each) is each
    assert TaintRules([rule("r", {}, effect="None")]).applied(each) is each


def test_devices_keep_their_own_taints_and_have_a_taint_once() -> None:
    own = {"key": "mine", "effect": "NoSchedule", "value": "x"}
    rules = TaintRules([rule("r1", {}), rule("r2", {"device": "d0"}), rule("r3", {}, "NoExecute")])

    first = rules.applied(two("a", taints=[own])).spec.devices[0]

    assert [(each.key, each.value, each.effect) for each in first.taints] == [
        ("mine", "x", "NoSchedule"),
        ("k", "u", "NoSchedule"),
        ("k", "u", "NoExecute"),
    ]


@pytest.mark.parametrize("taint", [{"key": "k" * 318}, {"value": "v" * 64}, {"effect": "e" * 64}, {"key": 7}])
def test_a_rule_of_absurd_size_cannot_be_read(taint: dict[str, Any]) -> None:
    data = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule", **taint}}}

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(data, DeviceTaintRule)


def test_a_change_of_status_alone_tells_nothing() -> None:
    told: list[ResourceSlice | None] = []
    slices = TaintedSlices(lambda old, new: told.append(new))
    slices.slice_changed(None, two("a"))
    slices.rule_changed(None, rule("r", {}))
    assert len(told) == 2

    slices.rule_changed(rule("r", {}), rule("r", {}))

    assert len(told) == 2


def test_a_rule_tells_of_the_slices_that_it_selects_alone() -> None:
    told: list[str] = []
    slices = TaintedSlices(lambda old, new: told.append((new or old or two("?")).metadata.name))
    for node in NODES:
        slices.slice_changed(None, two(node))
    told.clear()

    slices.rule_changed(None, rule("r", {"driver": GPU, "pool": "pool-b", "device": "d0"}))
    slices.rule_changed(None, rule("same", {"pool": "pool-b", "device": "d0"}))

    assert told == ["s-b"]


def test_a_rule_changes_the_rows_of_the_devices_that_it_selects_alone() -> None:
    view = cluster([make_node(node) for node in NODES]).nodes.view()
    table = SliceTable([two(node) for node in NODES], view, by_name=True)
    before = table.rows.turnover

    table.drop(1)
    table.put(TaintRules([rule("r", {"pool": "pool-b", "device": "d0"})]).applied(two("b")))
    table.settle(view)

    assert table.rows.turnover - before == 1


class Twice:
    """What has changed one by one, and the same from scratch."""

    def __init__(self) -> None:
        self.nodes = cluster([make_node(node) for node in NODES]).nodes.view()
        self.devices = Devices(lambda: self.nodes)
        self.devices.class_changed(None, CLASS)
        self.table = SliceTable([], self.nodes, by_name=True)
        self.numbers: dict[str, int] = {}
        self.tainted = TaintedSlices(self._told)
        self.slices: dict[str, ResourceSlice] = {}
        self.rules: dict[str, DeviceTaintRule] = {}

    def _told(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        self.devices.slice_changed(old, new)
        if old is not None:
            self.table.drop(self.numbers.pop(old.metadata.name))
        if new is not None:
            self.numbers[new.metadata.name] = self.table.put(new)

    def change(self, random: Random) -> None:
        if random.random() < 0.05:
            self.rules.clear()
            self.tainted.forget_rules()
            return
        if random.random() < 0.5:
            name = random.choice("rst")
            old, new = self.rules.pop(name, None), None if random.random() < 0.3 else some_rule(random, name)
            if new is not None:
                self.rules[name] = new
            if old or new:
                self.tainted.rule_changed(old, new)
            return
        node = random.choice(NODES)
        before, each = self.slices.pop(node, None), None if random.random() < 0.3 else some_slice(random, node)
        if each is not None:
            self.slices[node] = each
        if before or each:
            self.tainted.slice_changed(before, each)

    def answers(self, devices: Devices) -> list[Any]:
        found = []
        for claims in CLAIMS:
            asked = devices.asked(claims)
            verdicts = [devices.allocate(asked, claims, row).allocations for row in range(len(NODES))]
            found.append((devices.codes(asked, self.nodes).tolist(), verdicts))
        return found

    def check(self) -> None:
        rules = TaintRules(self.rules.values())
        scratch = Devices(lambda: self.nodes)
        scratch.class_changed(None, CLASS)
        made = [rules.applied(each) for each in self.slices.values()]
        for each in made:
            scratch.slice_changed(None, each)
        assert self.answers(self.devices) == self.answers(scratch)
        self.table.settle(self.nodes)
        assert columns(self.table) == columns(SliceTable(made, self.nodes))


def columns(table: SliceTable) -> dict[Any, Any]:
    """By device: its taints, its traits, and whether a claim with and without the toleration may have it."""
    rows = np.arange(len(table))
    properties = Selectors(table).properties
    tolerations = CLAIMS[2][0].spec.devices.requests[0].exactly
    assert tolerations is not None
    plain = properties.tolerated((), rows)
    tolerant = properties.tolerated(tuple(tolerations.tolerations), rows)
    return {
        table.ids[row]: (table.devices[row], table.traits_of(row), bool(plain[row]), bool(tolerant[row]))
        for row in rows.tolist()
        if table.ids[row][2]
    }


def some_rule(random: Random, name: str) -> DeviceTaintRule:
    selector = {
        key: value
        for key, value in {
            "driver": random.choice([GPU, "other.example.com"]),
            "pool": f"pool-{random.choice(NODES)}",
            "device": random.choice(["d0", "d1"]),
        }.items()
        if random.random() < 0.5
    }
    effect = random.choice(["NoSchedule", "NoSchedule", "NoExecute", "None"])
    return rule(name, selector if random.random() < 0.9 else None, effect, random.choice("uv"))


def some_slice(random: Random, node: str) -> ResourceSlice:
    own = [{"key": "k", "value": "u", "effect": "NoSchedule"}] if random.random() < 0.3 else []
    return offer(
        f"s-{node}",
        [device(f"d{number}", taints=own) for number in range(random.randint(1, 3))],
        generation=random.randint(1, 2),
        nodeName=node,
        pool=f"pool-{node}",
        driver=random.choice([GPU, "other.example.com"]),
    )


@settings(max_examples=settings().max_examples * 3 // 2)
@given(st.integers(min_value=0, max_value=2**32))
def test_columns_are_those_made_from_scratch(seed: int) -> None:
    random, twice = Random(seed), Twice()
    for _ in range(20):
        twice.change(random)
        twice.check()
