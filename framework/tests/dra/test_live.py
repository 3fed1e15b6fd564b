"""The live devices answer as an allocator that is made from scratch, whatever has changed before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gangline.deadline import Deadline
from gangline.dra import (
    Allocator,
    NodeVerdict,
    Selectors,
    SliceTable,
    Standing,
    Usage,
    allocator,
    kept_cuts,
    properties,
    questions,
    selecting,
    solving,
)
from gangline.dra import kept as kept_module
from gangline.dra import table as table_module
from gangline.dra.asked import Asked
from gangline.dra.cutting import Cutter
from gangline.dra.live import INVALID_POOLS, NO_DEVICES, Devices
from gangline.dra.pools import PoolCondition
from gangline.dra.preparing import MOST_WAITING
from gangline.dra.questions import FEW_DEVICES, FIRST_TEXT, GAVE_UP, SEES_INVALID
from gangline.dra.solving import Solver
from gangline.errors import DeadlineExceeded
from gangline.model.base import ObjectMeta
from gangline.model.resource_claims import ResourceClaim, ResourceClaimAllocation
from gangline.model.resource_slices import DeviceClass, ResourceSlice
from gangline.state.node_view import NodeView
from gangline.testing import cluster, make_node

from .offers import GPU, claim, device, exactly, offer

NODES = "abcd"
ROOT = f"{GPU}/root"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
X = {"cel": {"expression": f'device.attributes["{GPU}"].model == "x"'}}
"""Fails where a device says nothing of its model."""
CAREFUL = {"cel": {"expression": f'device.attributes["{GPU}"].?model.orValue("") == "x"'}}
UNCOUNTED = [{"matchAttribute": ROOT}, {"distinctAttribute": f"{GPU}/id"}]
"""Only a search can tell which nodes have devices for them."""
EVERY = {"deviceClassName": "gpu", "allocationMode": "All"}
FEW = (FEW_DEVICES, SEES_INVALID)
"""The codes of nodes that lack devices."""
CLAIMS: list[list[ResourceClaim]] = [
    [claim(exactly())],
    [claim(exactly(2))],
    [claim(exactly(2), constraints=[{"matchAttribute": ROOT}])],
    [claim(exactly(2), constraints=[{"distinctAttribute": ROOT}])],
    [claim(exactly(1, selectors=[X]))],
    [claim(exactly(1, selectors=[CAREFUL]), exactly())],
    [claim(exactly(1, selectors=[CAREFUL])), claim(exactly())],
    [claim({"firstAvailable": [{"name": "two", **exactly(2, selectors=[CAREFUL])}, {"name": "one", **exactly()}]})],
    [claim(EVERY)],
    [claim(exactly(1, adminAccess=True))],
    [claim(exactly(1, tolerations=[{"operator": "Exists"}]))],
    [claim(exactly(1, capacity={"requests": {"memory": "30Gi"}}))] * 2,
    [claim(exactly(0))],
]


def device_class(*expressions: str) -> DeviceClass:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return msgspec.convert({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}, DeviceClass)


def some_device(random: Random, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "attributes": {
            key: random.choice("xy") for key in ("model", "root", PCIE_ROOT, "island") if random.random() < 0.9
        }
    }
    if random.random() < 0.2:
        fields["capacity"] = {"memory": {"value": random.choice(["40Gi", "80Gi"])}}
    if random.random() < 0.1:
        fields["taints"] = [{"key": "k", "effect": "NoSchedule", "value": random.choice("uv")}]
    if random.random() < 0.15:
        fields |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
    if random.random() < 0.1:
        fields["bindingConditions"] = ["ready"]
    return device(name, **fields)


def some_slices(random: Random, node: str) -> list[ResourceSlice]:
    """What a driver publishes of a node, or (`z`) of several nodes; now and then it is not complete, or not valid."""
    devices = [some_device(random, f"d{number}") for number in range(random.randint(0, 4))]
    if random.random() < 0.05:
        devices += devices[:1]
    pool: dict[str, Any] = {"pool": f"p-{node}", "generation": random.randint(1, 2), "nodeName": node}
    if node == "z":
        where = random.choice(["all", "zone", "each", "with a"])
        pool = {"pool": "p-a" if where == "with a" else "p-z", "generation": random.randint(1, 2)}
        if where == "zone":
            zones = [{"key": "zone", "operator": "In", "values": ["u"]}]
            pool["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": zones}]}
        elif where == "each":
            pool["perDeviceNodeSelection"] = True
            devices = [each | random.choice([{"nodeName": "a"}, {"allNodes": True}]) for each in devices]
        else:
            pool["allNodes"] = True
    if random.random() < 0.25:
        counters = [{"name": "c", "counters": {"memory": {"value": random.choice(["2", "3"])}}}]
        consumed = [{"counterSet": "c", "counters": {"memory": {"value": "1"}}}]
        devices = [each | {"consumesCounters": consumed} for each in devices]
        return [
            offer(f"s-{node}", devices, slices=2, **pool),
            offer(f"t-{node}", [], slices=2, sharedCounters=counters, **pool),
        ]
    return [offer(f"s-{node}", devices, slices=1 if random.random() < 0.9 else 2, **pool)]


def shared_counters() -> list[ResourceSlice]:
    """A pool with devices for two nodes that consume the same counters."""
    counters = [{"name": "c", "counters": {"memory": {"value": "2"}}}]
    consumed = [{"counterSet": "c", "counters": {"memory": {"value": "1"}}}]
    devices = [device(f"d{number}", consumesCounters=consumed) for number in range(2)]
    pool: dict[str, Any] = {"pool": "p-y", "slices": 3}
    return [
        offer("s-y", devices, nodeName="a", **pool),
        offer("t-y", [], sharedCounters=counters, allNodes=True, **pool),
        offer("u-y", [each | {"name": f"{each['name']}b"} for each in devices], nodeName="b", **pool),
    ]


class World:
    """Live devices, and all that they were told."""

    def __init__(self) -> None:
        self.cache = cluster([make_node(name, labels={"zone": "u"}) for name in NODES])
        self.devices = Devices(lambda: self.cache.nodes.view())
        self.slices: dict[str, ResourceSlice] = {}
        self.taken: dict[int, ResourceClaimAllocation] = {}
        self.device_class = device_class()
        self.devices.class_changed(None, self.device_class)
        self.kept: dict[int, NDArray[np.uint8]] = {}
        self.position = -1
        self.of_nodes = -1

    def publish(self, random: Random, node: str) -> None:
        """Some slices change; those that the driver wrote before and does not write now go."""
        published = shared_counters() if node == "y" else some_slices(random, node)
        found = {each.metadata.name: each for each in published}
        for name in (f"s-{node}", f"t-{node}", f"u-{node}"):
            before, now = self.slices.pop(name, None), found.get(name)
            if now is not None:
                self.slices[name] = now
            if before is not None or now is not None:
                self.devices.slice_changed(before, now)

    def withdraw(self, node: str) -> None:
        for name in (f"s-{node}", f"t-{node}", f"u-{node}"):
            if name in self.slices:
                self.devices.slice_changed(self.slices.pop(name), None)

    def take(self, random: Random) -> None:
        number = random.randrange(len(CLAIMS))
        claims = CLAIMS[number]
        rows = [row for row, name in enumerate(self.cache.nodes.names) if name]
        found = self.devices.allocate(self.devices.asked(claims), claims, random.choice(rows)).allocations
        for allocation in found or ():
            key = random.randrange(8)
            self.taken[key] = allocation
            self.devices.take(key, allocation)

    def give(self, random: Random) -> None:
        key = random.randrange(8)
        self.taken.pop(key, None)
        self.devices.give(key)

    def try_out(self, random: Random) -> None:
        """Takes of a transaction, undone in reverse order."""
        before = dict(self.taken)
        for _ in range(3):
            self.take(random)
        for key in sorted(self.taken, reverse=True):
            if key in before:
                self.taken[key] = before[key]
                self.devices.take(key, before[key])
            else:
                del self.taken[key]
                self.devices.give(key)

    def change_node(self, random: Random) -> None:
        """A node goes, comes, or moves to another zone."""
        name = random.choice(NODES)
        row = self.cache.nodes.row_of(name)
        if row is not None and len([each for each in self.cache.nodes.names if each]) > 1 and random.random() < 0.3:
            self.cache.remove_node(name)
        else:
            self.cache.upsert_node(make_node(name, labels={"zone": random.choice("uv")}))
        self.devices.node_changed(name)

    def change_class(self, random: Random) -> None:
        new = device_class(*random.choice([(), (f'device.driver == "{GPU}"',), ("false",)]))
        self.devices.class_changed(self.device_class, new)
        self.device_class = new

    def check(self) -> None:
        """Hold all answers against those of an allocator that is made from scratch."""
        nodes = self.cache.nodes.view()
        table = SliceTable([self.slices[each] for each in sorted(self.slices)], nodes)
        results = [each.devices.results for each in self.taken.values()]
        usage = Usage()
        for each in results:
            usage.add(each)
        fresh = Allocator(Standing(table, usage), {"gpu": self.device_class}, Selectors(table))
        untouched = Allocator(Standing(table, Usage()), {"gpu": self.device_class}, Selectors(table))
        names = nodes.names
        alive = [row for row, name in enumerate(names) if name]
        rows = self.changed(len(names))
        for index, claims in enumerate(CLAIMS):
            asked = self.devices.asked(claims)
            kept = self.kept.get(index)
            if kept is None or len(kept) != len(names):
                kept = self.kept[index] = self.devices.codes(asked, nodes)
            elif len(rows):
                kept[rows] = self.devices.codes(asked, nodes.at(rows))
            pod = fresh.ask(claims)
            expected = {row: pod.on(row, names[row]) for row in alive}
            assert {row: int(kept[row]) == 0 for row in alive} == {
                row: verdict.allocations is not None for row, verdict in expected.items()
            }
            for row, verdict in expected.items():
                live = self.devices.allocate(asked, claims, row)
                assert plain(live.allocations) == plain(verdict.allocations)
                assert live.error == verdict.error
                assert (kept[row] >= FIRST_TEXT) == bool(verdict.error)
                has_invalid = any(each.pool.condition is PoolCondition.INVALID for each in table.pools_of(row))
                assert (kept[row] == SEES_INVALID) == (verdict == NodeVerdict() and has_invalid)
                best = self.devices.allocate(asked, claims, row, "best")
                assert plain(best.allocations) == plain(pod.on(row, names[row], order="best").allocations)
            self.check_room(index, fresh)
            self.check_choices(index, fresh)
            self.check_hope(index, untouched)

    def check_hope(self, index: int, untouched: Allocator) -> None:
        """A node that lacks devices may get them if it has them while nothing is taken, and never if nothing is."""
        nodes = self.cache.nodes.view()
        lacking = [row for row, name in enumerate(nodes.names) if name and self.kept[index][row] in FEW]
        may_have = self.devices.may_have(self.devices.asked(CLAIMS[index]), np.array(lacking, dtype=np.intp))
        pod = untouched.ask(CLAIMS[index])
        for row, hope in zip(lacking, may_have.tolist(), strict=True):
            assert hope or pod.on(row, nodes.names[row]).allocations is None
            assert not hope or self.taken

    def check_choices(self, index: int, fresh: Allocator) -> None:
        """The alternatives that nodes choose, and what is lost with them."""
        nodes, claims = self.cache.nodes.view(), CLAIMS[index]
        asked, pod = self.devices.asked(claims), fresh.ask(claims)
        rows = np.array([row for row, name in enumerate(nodes.names) if name and not self.kept[index][row]])
        if not len(rows):
            return
        expected = {row: names for names, at in pod.choices(len(nodes.whole), rows) for row in rows[at].tolist()}
        chosen = dict(self.devices.choices(asked, nodes))
        assert {row: names for names, places in chosen.items() for row in nodes.rows[places].tolist()} == expected
        for names, places in chosen.items():
            lost = self.devices.losses(asked, nodes, names)[places]
            assert np.array_equal(lost, pod.weighed(len(nodes.whole), None, names)[nodes.rows[places]])

    def check_room(self, index: int, fresh: Allocator) -> None:
        """Room is no less than the number of such pods that get devices one after the other."""
        nodes = self.cache.nodes.view()
        asked = self.devices.asked(CLAIMS[index])
        room = self.devices.room(asked, nodes)
        if room is None:
            return
        kept = self.kept[index]
        assert len(room) == len(nodes)
        for row, name in enumerate(nodes.names):
            assert not name or room[row] > 0 or kept[row]

    def changed(self, size: int) -> NDArray[np.intp]:
        """The rows for which an answer may have changed, as a plugin's answers are kept."""
        found: list[NDArray[np.intp]] = []
        for log, position in ((self.devices.changes, self.position), (self.cache.nodes.changes, self.of_nodes)):
            rows = log.since(position, 1000)
            found.append(np.arange(size) if rows is None else rows[0])
        self.position, self.of_nodes = self.devices.changes.position, self.cache.nodes.changes.position
        every = np.unique(np.concatenate(found))
        return every[every < size]


class Prepared(World):
    """Devices that expect to be weighed."""

    def __init__(self) -> None:
        super().__init__()
        self.devices.expect_weighing()


def plain(allocations: tuple[ResourceClaimAllocation, ...] | None) -> Any:
    """Allocations with any shareID as one."""
    found = msgspec.to_builtins(allocations)
    for each in found or ():
        for result in each["devices"].get("results", ()):
            if "shareID" in result:
                result["shareID"] = "any"
    return found


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
STEPS = st.lists(
    st.sampled_from(
        ("publish",) * 4 + ("take",) * 4 + ("give", "give", "try", "try", "gone", "node", "several", "class", "check")
    ),
    max_size=14,
)


@settings(max_examples=settings().max_examples * 4 // 5, phases=PHASES)
@given(STEPS, st.integers(0, 2**32))
def test_answers_are_those_of_a_fresh_allocator(steps: list[str], seed: int) -> None:
    go_through(steps, seed)


@settings(max_examples=settings().max_examples * 2 // 5, phases=PHASES)
@given(STEPS, st.integers(0, 2**32))
def test_answers_do_not_depend_on_what_is_kept(steps: list[str], seed: int) -> None:
    """Caches without room keep the newest entry alone; a table that wears out soon is made anew now and then. All that
    can be made beforehand is.
    """
    bounds = [
        (kept_module, "MOST_WAITING"),
        (kept_module, "_MOST_BYTES"),
        (kept_module, "_MOST_SPEC_BYTES"),
        (properties, "_MOST_BYTES"),
        (selecting, "_MOST_BYTES"),
        (solving, "_MOST_BYTES"),
        (kept_cuts, "_MOST_CUT_BYTES"),
        (table_module, "_WEAR"),
    ]
    with ExitStack() as stack:
        for module, name in bounds:
            stack.enter_context(patch.object(module, name, 0))
        go_through(steps, seed, Prepared)


def go_through(steps: list[str], seed: int, made: type[World] = World) -> None:
    world, random = made(), Random(seed)
    for node in NODES[:3]:
        world.publish(random, node)
    for step in steps:
        if step == "publish":
            world.publish(random, random.choice(NODES))
        elif step == "several":
            world.publish(random, random.choice("yz"))
        elif step == "gone":
            world.withdraw(random.choice(NODES + "yz"))
        elif step == "take":
            world.take(random)
        elif step == "give":
            world.give(random)
        elif step == "try":
            world.try_out(random)
        elif step == "node":
            world.change_node(random)
        elif step == "class":
            world.change_class(random)
        else:
            world.check()
    world.check()


def live(slices: list[ResourceSlice], nodes: str = "a") -> tuple[Devices, Any]:
    view = cluster([make_node(name) for name in nodes]).nodes.view()
    devices = Devices(lambda: view)
    devices.class_changed(None, device_class())
    for each in slices:
        devices.slice_changed(None, each)
    return devices, view


def test_a_refusal_is_told_in_the_words_of_kube_scheduler() -> None:
    devices, nodes = live([])
    asked = devices.asked(CLAIMS[0])
    (code, *_) = devices.codes(asked, nodes).tolist()
    assert devices.reason(asked, code, ()) == NO_DEVICES


def test_a_pool_that_contradicts_itself_is_named_for_the_nodes_that_see_it_alone() -> None:
    """`a` has two devices of one name; `b` has a device that a claim has."""
    twice = [offer(f"s-{each}", [device("d")], slices=2, pool="a", nodeName="a") for each in "12"]
    devices, nodes = live([*twice, offer("s-b", [device("d")], pool="b", nodeName="b")], "abc")
    asked = devices.asked(CLAIMS[0])
    given = devices.allocate(asked, CLAIMS[0], 1).allocations
    assert given is not None
    devices.take("other", given[0])

    def told() -> list[str]:
        return [devices.reason(asked, code, ()) for code in devices.codes(asked, nodes).tolist()[:3]]

    assert told() == [INVALID_POOLS, NO_DEVICES, NO_DEVICES]
    devices.slice_changed(twice[1], None)
    assert told() == [NO_DEVICES] * 3


def test_a_node_on_which_the_search_is_given_up_is_rejected_and_another_serves() -> None:
    """Of the devices of `a` the last two agree; `b` has the two alone."""
    few = [device(f"d{i}", attributes={"root": root, "id": f"{i}"}) for i, root in enumerate("xx")]
    many = [device(f"d{i}", attributes={"root": root, "id": f"{i}"}) for i, root in enumerate("abcdefghijkxx")]
    view = cluster([make_node(name) for name in "ab"]).nodes.view()
    devices = Devices(lambda: view, Solver(most_steps=20))
    devices.class_changed(None, device_class())
    for name, some in (("a", many), ("b", few)):
        devices.slice_changed(None, offer(f"s-{name}", some, pool=name, nodeName=name))
    claims = [claim(exactly(2), constraints=UNCOUNTED)]
    asked = devices.asked(claims)

    codes = devices.codes(asked, view).tolist()

    assert codes == [GAVE_UP, 0] and GAVE_UP < FIRST_TEXT
    assert devices.reason(asked, GAVE_UP, claims) == "timed out trying to allocate devices"


def test_a_claim_for_too_many_devices_is_named() -> None:
    """Also where an equal question was asked about other claims before."""
    devices, nodes = live([offer("s", [device(f"d{number}") for number in range(40)])])
    for name in ("x", "y"):
        many = claim(exactly(33))
        claims = [claim(exactly()), msgspec.structs.replace(many, metadata=ObjectMeta(name, "default"))]
        asked = devices.asked(claims)
        told = devices.reason(asked, int(devices.codes(asked, nodes)[0]), claims)
        assert told == f"claim default/{name}: number of requested devices 33 exceeds the claim limit of 32"


def test_of_too_many_different_errors_a_node_shows_its_own_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_MOST_TEXTS", 3)
    slices = []
    for number, name in enumerate(NODES, 1):  # nodes with different numbers of devices are not taken for alike
        some = [device(f"d{each}", attributes={"wants": f"of-{name}"}) for each in range(number)]
        slices.append(offer(f"s-{name}", some, pool=name, nodeName=name))
    devices, nodes = live(slices, NODES)
    looked_up = {"cel": {"expression": f'device.attributes["{GPU}"][device.attributes["{GPU}"].wants] == "x"'}}
    claims = [claim(exactly(1, selectors=[looked_up]))]
    asked = devices.asked(claims)

    told = [devices.reason(asked, code, claims) for code in devices.codes(asked, nodes).tolist()]

    assert ["of-a" in told[0], "of-b" in told[1]] == [True, True]
    assert told[2] == told[3] and "too many different errors" in told[2]


def test_room_is_how_many_such_claims_have_devices() -> None:
    roots = [device(f"d{i}", attributes={"root": root, "model": "x"}) for i, root in enumerate("uuuvvww")]
    devices, nodes = live([offer("s", roots)])

    def room(*claims: ResourceClaim) -> Any:
        found = devices.room(devices.asked(claims), nodes)
        return None if found is None else found[0]

    assert room(claim(exactly())) == 7
    assert room(claim(exactly(2))) == 3
    assert room(claim(exactly(2)), claim(exactly())) == 2
    assert room(claim(exactly(2), constraints=[{"matchAttribute": ROOT}])) == 3
    assert room(claim(exactly(3), constraints=[{"matchAttribute": ROOT}])) == 1
    assert room(claim(exactly(2), constraints=UNCOUNTED)) == 3
    assert room(claim({"firstAvailable": [{"name": "two", **exactly(2)}]})) is None


def linked(number: int) -> dict[str, Any]:
    """A device of the root x, with a number of its own."""
    return device(f"d{number}", attributes={"root": "x", "id": f"{number}"})


def test_what_is_searched_before_the_deadline_is_not_searched_again() -> None:
    slices = [
        offer(f"s-{node}", [linked(i) for i in range(count)], pool=node, nodeName=node)
        for count, node in enumerate(NODES)
    ]
    devices, nodes = live(slices, NODES)
    asked = devices.asked([claim(exactly(2), constraints=UNCOUNTED)])
    times = iter(range(100))

    with pytest.raises(DeadlineExceeded):
        devices.codes(asked, nodes, Deadline(2.5, lambda: float(next(times))))

    times = iter(range(100))
    codes = devices.codes(asked, nodes, Deadline(2.5, lambda: float(next(times))))
    assert (codes == 0).tolist()[: len(NODES)] == [False, False, True, True]


UNLIKE = [offer(f"s-{node}", [device("d", attributes={"uuid": node})], pool=node, nodeName=node) for node in NODES]
"""Devices of which an expression that reads the uuid finds no two alike."""
LAST = {"cel": {"expression": f'device.attributes["{GPU}"].uuid == "d"'}}


def stepping(seconds: float) -> Deadline:
    """A deadline by a clock that goes on a second with each look."""
    times = iter(range(100))
    return Deadline(seconds, lambda: float(next(times)))


def test_selectors_that_take_long_end_with_the_deadline_and_go_on_where_they_ended() -> None:
    devices, nodes = live(UNLIKE, NODES)
    asked = devices.asked([claim(exactly(selectors=[LAST]))])

    for looks in (3.5, 2.5, 2.5):  # the first look is before the request, and one before the expression is compiled
        with pytest.raises(DeadlineExceeded):
            devices.codes(asked, nodes, stepping(looks))  # each evaluates one of four kinds

    codes = devices.codes(asked, nodes, stepping(3.5))  # the last look is before nodes are counted
    assert codes.tolist()[: len(NODES)] == [FEW_DEVICES] * 3 + [0]


def test_gpus_and_supply_are_counted_within_a_deadline_too() -> None:
    devices, _ = live(UNLIKE, NODES)
    asked = devices.asked([claim(exactly(selectors=[LAST]))])

    with pytest.raises(DeadlineExceeded):
        devices.gpus_wanted(asked, stepping(1.5))
    with pytest.raises(DeadlineExceeded):
        devices.supply([asked], len(NODES), stepping(1.5))

    assert devices.gpus_wanted(asked)[0] == 1
    assert devices.supply([asked], len(NODES)) is not None


def test_a_change_of_the_nodes_after_a_deadline_has_passed_leaves_no_half_answer() -> None:
    names = list(NODES)
    cache = cluster([make_node(name) for name in names])
    devices = Devices(lambda: cache.nodes.view())
    devices.class_changed(None, device_class())
    for each in UNLIKE[:3]:
        devices.slice_changed(None, each)
    asked = devices.asked([claim(exactly(selectors=[LAST]))])
    with pytest.raises(DeadlineExceeded):
        devices.codes(asked, cache.nodes.view(), stepping(0.5))
    assert devices.codes(asked, cache.nodes.view()).tolist()[:3] == [FEW_DEVICES] * 3
    devices.slice_changed(None, UNLIKE[3])
    with pytest.raises(DeadlineExceeded):
        devices.codes(asked, cache.nodes.view(), stepping(0.5))

    assert devices.codes(asked, cache.nodes.view()).tolist()[:4] == [FEW_DEVICES] * 3 + [0]


def test_what_one_node_takes_of_shared_counters_is_not_left_for_another() -> None:
    devices, nodes = live(shared_counters(), "abc")
    claims = CLAIMS[0]
    asked = devices.asked(claims)
    assert devices.codes(asked, nodes).tolist()[:3] == [0, 0, 1]
    assert devices.allocate(asked, claims, 1).allocations is not None

    position = devices.changes.position
    for key in range(2):
        allocations = devices.allocate(asked, claims, 0).allocations
        assert allocations is not None
        devices.take(key, allocations[0])

    changed = devices.changes.since(position, 10)
    assert changed is None or {0, 1} <= set(changed[0].tolist())
    assert devices.codes(asked, nodes).tolist()[:3] == [1, 1, 1]
    assert devices.allocate(asked, claims, 1).allocations is None

    devices.give(1)

    assert devices.codes(asked, nodes).tolist()[:3] == [0, 0, 1]
    assert devices.allocate(asked, claims, 1).allocations is not None


def test_devices_follow_the_labels_that_they_select() -> None:
    cache = cluster([make_node(name, labels={"zone": "v"}) for name in "ab"])
    devices = Devices(lambda: cache.nodes.view())
    devices.class_changed(None, device_class())
    zones = [{"key": "zone", "operator": "In", "values": ["u"]}]
    selector = {"nodeSelectorTerms": [{"matchExpressions": zones}]}
    devices.slice_changed(None, offer("s", [device("d0")], nodeSelector=selector))
    devices.slice_changed(None, offer("t", [device("d0")], pool="b", nodeName="c"))
    asked = devices.asked(CLAIMS[0])
    assert devices.codes(asked, cache.nodes.view()).tolist()[:2] == [1, 1]

    position = devices.changes.position
    cache.upsert_node(make_node("b", labels={"zone": "u"}))
    devices.node_changed("b")
    changed = devices.changes.since(position, 10)
    assert changed is None or 1 in changed[0]
    assert devices.codes(asked, cache.nodes.view()).tolist()[:2] == [1, 0]

    cache.upsert_node(make_node("c"))
    devices.node_changed("c")
    assert devices.codes(asked, cache.nodes.view()).tolist()[:3] == [1, 0, 0]


_VERDICTS = allocator.PodAllocator.verdicts


def test_questions_about_one_node_do_not_search_the_others() -> None:
    offered = [linked(i) for i in range(3)]
    slices = [offer(f"s-{node}", offered, pool=node, nodeName=node) for node in NODES]
    devices, nodes = live(slices, NODES)
    asked = devices.asked([claim(exactly(2), constraints=UNCOUNTED)])
    devices.codes(asked, nodes)
    allocations = devices.allocate(asked, CLAIMS[1], 2).allocations
    assert allocations is not None

    with patch.object(allocator.PodAllocator, "verdicts", autospec=True, side_effect=_VERDICTS) as verdicts:
        devices.take("t", allocations[0])
        assert devices.codes(asked, nodes).tolist()[:4] == [0, 0, 1, 0]
        devices.slice_changed(None, slices[1])
        devices.codes(asked, nodes)

    assert [call.args[1].tolist() for call in verdicts.call_args_list] == [[2]]


def test_alternatives_are_chosen_for_all_nodes_without_a_search() -> None:
    nodes = "abcde"
    slices = [
        offer(f"s-{node}", [device(f"d{i}") for i in range(count)], pool=node, nodeName=node)
        for count, node in enumerate(nodes)
    ]
    devices, view = live(slices, nodes)
    either = {"firstAvailable": [{"name": "two", **exactly(2)}, {"name": "one", **exactly()}]}
    asked = devices.asked([claim(either)])

    with patch.object(Cutter, "cut", side_effect=AssertionError("a node is searched")):
        chosen = {names: places.tolist() for names, places in devices.choices(asked, view)}

    assert chosen == {frozenset({(0, "r0/two")}): [2, 3, 4], frozenset({(0, "r0/one")}): [1]}


@pytest.mark.parametrize("ask", [Devices.codes, Devices.losses, Devices.choices])
def test_answers_to_questions_count_where_memory_is_bounded(ask: Callable[[Devices, Asked, NodeView], object]) -> None:
    with patch.object(kept_module, "_MOST_BYTES", 1):
        devices, nodes = live([offer("s", [device("d0")])])
    first, second = (devices.asked([claim(exactly(count))]) for count in (1, 2))

    ask(devices, first, nodes)
    ask(devices, second, nodes)
    with patch.object(allocator.Allocator, "ask", autospec=True, side_effect=allocator.Allocator.ask) as again:
        ask(devices, first, nodes)

    assert again.call_count == 1  # there was room for one of them


def test_most_slices_are_worked_out_before_a_question_asks() -> None:
    nodes = [f"n{number}" for number in range(100)]
    view = cluster([make_node(name) for name in nodes]).nodes.view()
    judged: list[str] = []

    class Judging:
        """A selector that notes which devices it is asked about."""

        reads = None

        def __init__(self, expression: str) -> None:
            pass

        def __call__(self, of: Mapping[str, Any]) -> bool:
            judged.append(of["attributes"]["node"]["string"])
            return True

    with patch.object(kept_module, "compile_selector", Judging):
        devices = Devices(lambda: view)
    devices.class_changed(None, device_class("x"))

    for name in nodes:
        devices.slice_changed(
            None, offer(f"s-{name}", [device("d0", attributes={"node": name})], pool=name, nodeName=name)
        )
    before = len(judged)
    codes = devices.codes(devices.asked(CLAIMS[0]), view)

    assert not codes.any() and sorted(judged) == sorted(nodes)
    assert before >= len(nodes) - MOST_WAITING - 1


def test_objects_that_are_written_again_without_a_change_are_no_change() -> None:
    slices = [offer("s", [device("d0")])]
    devices, nodes = live(slices)
    asked = devices.asked(CLAIMS[0])
    devices.codes(asked, nodes)
    position = devices.changes.position

    again = msgspec.convert(msgspec.to_builtins(slices[0]), ResourceSlice)
    devices.slice_changed(slices[0], again)
    devices.class_changed(device_class(), device_class())

    assert devices.changes.position == position
    assert devices.asked([claim(exactly())]) is asked


def test_the_supply_counts_devices_that_are_meant_and_what_claims_give_back_of_them() -> None:
    slices = [
        offer(
            f"s-{node}",
            [device(f"d{i}", attributes={"model": "xy"[i % 2]}) for i in range(4)],
            pool=node,
            nodeName=node,
        )
        for node in "ab"
    ]
    devices, _ = live(slices, NODES)
    claims = [claim(exactly(2, selectors=[CAREFUL]))]
    asked = devices.asked(claims)
    found = devices.allocate(asked, claims, 0).allocations
    assert found is not None
    devices.take("c", found[0])

    supply = devices.supply([asked], 3)

    assert supply is not None and devices.least(asked) == 2
    assert supply.free.tolist() == [0, 2, 0]
    assert (supply.held(found[0], 0), supply.held(found[0], 1)) == (2, 0)


def test_devices_of_several_nodes_or_claims_have_no_supply() -> None:
    shared = device("d", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
    for slices in ([offer("s", [device("d")], allNodes=True)], [offer("s", [shared], nodeName="a")]):
        devices, _ = live(slices, NODES)
        assert devices.supply([devices.asked(CLAIMS[0])], 4) is None


def test_a_claim_takes_at_least_what_its_smallest_alternatives_take() -> None:
    devices, _ = live([], NODES)
    several = {"firstAvailable": [{"name": "two", **exactly(2)}, {"name": "three", **exactly(3)}]}
    found = [claim(exactly(1), several), claim(EVERY), claim(exactly(1, adminAccess=True))]

    assert devices.least(devices.asked(found)) == 1 + 2 + 1


def test_nodes_change_no_answer_while_no_driver_offers_anything() -> None:
    nodes = cluster([make_node("a")]).nodes.view()
    devices = Devices(lambda: nodes)
    before = devices.changes.position

    devices.node_changed("a")

    assert devices.changes.position == before
