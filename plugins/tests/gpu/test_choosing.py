"""The choice tables: compared with trying every set, and the cases for which the policies are there."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import custom_resources
from gangline_plugins.gpu.choosing import Choices, ChoiceTables, Mode, Policy, Rule
from gangline_plugins.gpu.links import LinkClass, LinkClasses, Matrix, ids_of, mask_of
from gangline_plugins.gpu.named_hardware import devices

from .gpu_cases import interned, links_of

Ids = tuple[int, ...]


def chosen(hardware: str, free: str, count: int, rule: Rule | None = None) -> str:
    """The ids that are chosen among the free ones, as digits."""
    mask = mask_of(int(digit) for digit in free)
    return "".join(map(str, ids_of(Choices(links_of(hardware), count, rule or Rule()).choose(mask))))


def of_all(ids: Ids, matrix: Matrix) -> float:
    return round(sum(float(matrix[a, b]) for a, b in combinations(ids, 2)), 6)


def best_by_trying(links: LinkClass, free: Ids, count: int, rule: Rule) -> Ids:
    """The definition, one set after the other."""

    def slowest(ids: Ids) -> float:
        return min((float(links.gbps[a, b]) for a, b in combinations(ids, 2)), default=0.0)

    def together(ids: Ids) -> bool:
        return len(ids) < 2 or (len({links.islands[id] for id in ids}) == 1 and links.islands[ids[0]] >= 0)

    def satisfied(ids: Ids) -> bool:
        return len(ids) < 2 or (together(ids) and slowest(ids) >= rule.min_gbps)

    def worth(ids: Ids) -> tuple[object, ...]:
        left = tuple(sorted(set(free) - set(ids)))
        row = ids[-1] - ids[0] == count - 1
        listed = sum(2 ** (len(rule.prefer_ids) - n) for n, id in enumerate(rule.prefer_ids) if id in ids)
        apart = len({links.islands[id] if links.islands[id] >= 0 else 100 + id for id in ids})
        by_links = (
            satisfied(ids) if rule.min_gbps else 0,
            row and together(ids),
            slowest(ids),
            of_all(ids, links.gbps),
        )
        quality = {
            "spread": (apart, -of_all(ids, links.gbps), -of_all(ids, links.nearness)),
            "preferIds": (listed, *((row,) if rule.mode == "Ignore" else by_links)),
            "contiguous": (row,) if rule.mode == "Ignore" else by_links,
        }[rule.policy]
        near = (of_all(ids, links.nearness), of_all(left, links.nearness), sum(id + 1 in left for id in left))
        return (quality, of_all(left, links.gbps), *near, tuple(-id for id in ids))

    def is_allowed(ids: Ids) -> bool:
        in_row = rule.policy != "contiguous" or ids[-1] - ids[0] == count - 1
        return rule.mode != "Required" or (satisfied(ids) and in_row)

    allowed = [ids for ids in combinations(free, count) if is_allowed(ids)]
    return max(allowed, key=worth, default=())


@st.composite
def machines(draw: st.DrawFn) -> LinkClass:
    """Up to seven devices, each with some id, linked in any way."""
    ids = sorted(draw(st.sets(st.integers(0, 8), min_size=1, max_size=7)))
    named = draw(st.booleans())
    found = []
    for id in ids:
        links = [
            custom_resources.DeviceLink(
                peer, draw(st.sampled_from(["NVLINK", "PIX", "SYS"])), draw(st.sampled_from([16.0, 64.0, 600.0]))
            )
            for peer in ids
            if peer > id and draw(st.booleans())
        ]
        island = draw(st.sampled_from(["", "a", "b"])) if named else ""
        found.append(
            custom_resources.GpuDevice(
                id=id, links=links, island=island, numa_node=draw(st.integers(-1, 1)), bandwidth_gbps=300
            )
        )
    return interned(LinkClasses(), found)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    policies: list[Policy] = ["contiguous", "spread", "preferIds"]
    modes: list[Mode] = ["Required", "Preferred", "Ignore"]
    policy = draw(st.sampled_from(policies))
    prefer = tuple(draw(st.permutations(range(9)))[: draw(st.integers(0, 4))]) if policy == "preferIds" else ()
    return Rule(policy, prefer, draw(st.sampled_from(modes)), draw(st.sampled_from([0, 50, 600])))


@given(machines(), rules(), st.integers(1, 5), st.data())
def test_the_table_holds_what_trying_every_set_finds(
    links: LinkClass, rule: Rule, count: int, data: st.DataObject
) -> None:
    free = tuple(id for id in ids_of(links.present) if data.draw(st.booleans()))

    found = ids_of(Choices(links, count, rule).choose(mask_of(free)))
    assert found == best_by_trying(links, free, count, rule)


@pytest.mark.parametrize(
    ("hardware", "free", "count", "expected"),
    [
        ("hgx-h100", "01234567", 2, "01"),
        ("hgx-h100", "1234567", 4, "4567"),
        ("hgx-h100", "0247", 2, "02"),
        ("pcie-bridged-8", "1234567", 1, "1"),
        ("pcie-bridged-8", "1234567", 2, "23"),
        ("pcie-bridged-8", "12345", 3, "123"),
        ("pcie-8", "024567", 2, "45"),
        ("pcie-8", "1567", 1, "1"),
        ("gb200-tray", "0123", 4, "0123"),
        ("gb200-tray", "012", 4, ""),
    ],
)
def test_neighbours_are_chosen_and_pairs_are_kept(hardware: str, free: str, count: int, expected: str) -> None:
    assert chosen(hardware, free, count) == expected


def test_required_takes_only_what_shares_an_island_and_is_fast_enough() -> None:
    required = Rule(mode="Required", min_gbps=400)

    assert chosen("pcie-bridged-8", "0247", 2, required) == ""
    assert chosen("pcie-bridged-8", "02457", 2, required) == "45"
    assert chosen("pcie-bridged-8", "0", 1, required) == "0"
    assert chosen("hgx-h100", "0123", 2, Rule(mode="Required", min_gbps=1000)) == ""


def test_contiguous_and_required_takes_only_ids_that_follow_each_other() -> None:
    assert chosen("hgx-h100", "0247", 2, Rule(mode="Required")) == ""
    assert chosen("hgx-h100", "02457", 2, Rule(mode="Required")) == "45"
    assert chosen("hgx-h100", "0247", 2, Rule("preferIds", (2, 7), mode="Required")) == "27"


def test_preferred_takes_what_there_is() -> None:
    assert chosen("pcie-bridged-8", "047", 2, Rule(min_gbps=400)) == "47"


def test_spread_goes_across_islands() -> None:
    assert chosen("pcie-bridged-8", "01234567", 2, Rule("spread")) == "07"
    assert chosen("pcie-bridged-8", "01", 2, Rule("spread")) == "01"


@pytest.mark.parametrize("hardware", ["hgx-h100", "dgx-a100"])
def test_spread_within_one_island_goes_across_sockets(hardware: str) -> None:
    sockets = [device.numa_node for device in devices(hardware)]

    found = chosen(hardware, "01234567", 2, Rule("spread"))

    assert len({sockets[int(id)] for id in found}) == 2
    assert chosen(hardware, "0123", 2, Rule()) == "01"


def test_preferred_ids_come_first_and_others_follow() -> None:
    prefer = Rule("preferIds", (6, 3))

    assert chosen("hgx-h100", "01234567", 1, prefer) == "6"
    assert chosen("hgx-h100", "0123457", 1, prefer) == "3"
    assert chosen("hgx-h100", "01234567", 3, prefer) == "367"
    assert chosen("hgx-h100", "01", 2, prefer) == "01"


def test_a_look_up_over_many_nodes_gives_sets_bandwidth_and_what_stays_whole() -> None:
    choices = Choices(links_of("pcie-bridged-4"), 2, Rule())

    sets, gbps, kept = choices.look_up(np.array([0b1111, 0b1110, 0b1001, 0b1000], dtype=np.uint32))
    assert sets.tolist() == [0b0011, 0b1100, 0b1001, 0]
    assert gbps.tolist() == [600, 600, 50, 0]
    assert kept[2] == 1.0
    assert 0.0 < kept[0] < kept[1] < 1.0


def test_sixteen_devices_are_chosen_from_like_eight() -> None:
    choices = Choices(links_of("hgx-a100-16"), 8, Rule())

    assert ids_of(choices.choose(0xFFFF)) == tuple(range(8))
    assert ids_of(choices.choose(0xFF0F)) == tuple(range(8, 16))


def test_bandwidths_that_the_same_links_have_share_a_table() -> None:
    classes = LinkClasses()
    tables, links = ChoiceTables(classes), interned(classes, devices("hgx-h100"))

    assert tables.of(links, 2, Rule(min_gbps=100)) is tables.of(links, 2, Rule(min_gbps=899))
    assert tables.of(links, 2, Rule(mode="Required", min_gbps=901)).choose(0xFF) == 0


def test_nodes_of_several_kinds_are_looked_up_together_each_in_its_own_table() -> None:
    classes = LinkClasses()
    tables = ChoiceTables(classes)
    first = interned(classes, devices("pcie-bridged-4"))
    rule = Rule(min_gbps=500)
    masks = np.array([0b1110, 0b1110, 0b1110], dtype=np.uint32)
    numbers = np.array([first.number, -1, first.number], dtype=np.int32)

    before = tables.look_up(numbers, masks, 2, rule)
    numbers[1:] = interned(classes, devices("hgx-h100")).number
    after = tables.look_up(numbers, masks, 2, rule)
    assert [before.sets.tolist(), after.sets.tolist()] == [[0b1100, 0, 0b1100], [0b1100, 0b0110, 0b0110]]
    assert [before.worth()[0].tolist(), after.worth()[0].tolist()] == [[600, 0, 600], [600, 900, 900]]


@given(
    st.lists(st.tuples(st.integers(-1, 1), st.integers(0, 0b1111)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from([Rule(), Rule(min_gbps=500)])), min_size=1, max_size=4),
)
def test_a_few_nodes_are_looked_up_by_plain_numbers_as_by_arrays(
    nodes: list[tuple[int, int]], asked: list[tuple[int, Rule]]
) -> None:
    classes = LinkClasses()
    interned(classes, devices("pcie-bridged-4"))
    tables, others = ChoiceTables(classes), ChoiceTables(classes)
    numbers, masks = [min(number, 0) for number, _ in nodes], [mask for _, mask in nodes]
    for count, rule in asked:
        by_arrays = others.look_up(np.array(numbers, dtype=np.int32), np.array(masks, dtype=np.uint32), count, rule)
        assert tables.sets_of(numbers, masks, count, rule) == by_arrays.sets.tolist()
        if len(classes.all) == 1:  # a class that comes later has a table, too
            interned(classes, devices("hgx-h100"))
            numbers = [number for number, _ in nodes]
