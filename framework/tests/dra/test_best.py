"""The order `best`: its solutions obey the rules, and cost no more than those in the order of kube-scheduler."""

from __future__ import annotations

from random import Random
from time import process_time
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given

from gangline.dra.best import improved, loss_of
from gangline.dra.problem import NodeProblem
from gangline.dra.search import MOST_STEPS, Ending, solve
from gangline.dra.sharing import CounterSharing
from gangline.dra.stakes import CROWD, LEVELS, Stakes
from gangline.model.resource_claims import ResourceClaim
from gangline.model.resource_slices import ResourceSlice

from .offers import claim, device, exactly, offer
from .test_live import live
from .test_search import RANDOM, is_valid, some_problem

ROOT, NUMA = LEVELS[2], LEVELS[3]
OVERALL = ("multiprocessors", *(f"slice-{at}" for at in range(8)))
PROFILES = {
    "1g": (1, 1, range(7)),
    "2g": (2, 2, (0, 2, 4)),
    "3g": (3, 4, (0, 4)),
    "4g": (4, 4, (0,)),
    "7g": (7, 8, (0,)),
}
"""Multiprocessors, slices and starts of partitions of one GPU."""


def some_stakes(random: Random, of: NodeProblem) -> Stakes:
    """Stakes of the positions of a problem: two counter sets, two groups on each level."""
    sharings = [CounterSharing([4], [[random.randint(0, 4)] for _ in range(of.size)]) for _ in range(2)]
    return Stakes(
        tuple((each, (0, (random.randint(0, 8),))) for each in sharings),
        tuple(((random.randrange(2), at),) if random.random() < 0.5 else () for at in range(of.size)),
        tuple(random.random() for _ in range(of.size)),
        tuple(random.choice([0.0, random.random()]) for _ in range(of.size)),
        tuple(tuple(random.randrange(2) for _ in LEVELS) for _ in range(of.size)),
        tuple(((of.size, of.size), (of.size, of.size)) for _ in LEVELS),
    )


@given(RANDOM)
def test_what_is_chosen_is_valid_and_costs_no_more_than_the_first_solution(random: Random) -> None:
    problem = some_problem(random)
    first, stakes = solve(problem), some_stakes(random, problem)
    if first.ending is not Ending.FOUND:
        return

    answer = improved(problem, stakes, first, MOST_STEPS)

    assert answer.ending is Ending.FOUND
    assert answer.chosen == first.chosen
    assert loss_of(problem, stakes, answer) <= loss_of(problem, stakes, first)
    if not any(rule.is_distinct for rules in problem.rules for rule in rules):  # see test_search
        assert is_valid(problem, list(answer.given))


def by_hand(total: list[int], parts: list[list[int]], taken: int, left: list[int], part: int) -> float:
    """The loss of a part, one sum after the other."""
    shares = [max((have / max(whole, 1) for have, whole in zip(each, total, strict=True)), default=0) for each in parts]

    def worth(taken: int, left: list[int]) -> float:
        return sum(
            share
            for number, (each, share) in enumerate(zip(parts, shares, strict=True))
            if not taken >> number & 1 and all(have <= free for have, free in zip(each, left, strict=True))
        )

    after = [free - have for free, have in zip(left, parts[part], strict=True)]
    return (worth(taken, left) - worth(taken | 1 << part, after)) / max(sum(shares), 1e-9)


@given(RANDOM)
def test_the_loss_of_a_part_is_what_becomes_impossible(random: Random) -> None:
    counters = random.randint(1, 3)
    total = [random.randint(0, 6) for _ in range(counters)]
    parts = [[random.randint(0, 4) for _ in total] for _ in range(random.randint(1, 6))]
    taken, left = random.getrandbits(len(parts)), [random.randint(0, each) for each in total]

    losses = CounterSharing(total, parts).losses((taken, tuple(left)))

    for part, loss in enumerate(losses.tolist()):
        is_possible = not taken >> part & 1 and all(have <= free for have, free in zip(parts[part], left, strict=True))
        assert np.isfinite(loss) == is_possible
        if is_possible:
            assert abs(loss - by_hand(total, parts, taken, left, part)) < 1e-9


# On one node


def given_to(slices: list[ResourceSlice], *asks: ResourceClaim) -> list[list[str]]:
    """The devices that claims get, one after the other."""
    devices, _ = live(slices)
    found = []
    for key, each in enumerate(asks):
        allocations = devices.allocate(devices.asked([each]), [each], 0, "best").allocations
        assert allocations is not None
        devices.take(key, allocations[0])
        found.append([result.device for result in allocations[0].devices.results])
    return found


def linked(numbers: range = range(8)) -> list[ResourceSlice]:
    """GPUs of a node: two of each PCIe root, four of each NUMA node; the first slice has every second one."""
    gpus = [device(f"gpu-{number}", attributes={ROOT: f"r{number // 2}", NUMA: f"{number // 4}"}) for number in numbers]
    return [offer("s", [*gpus[::2], *gpus[1::2]])]


def test_devices_of_one_claim_are_linked() -> None:
    assert [sorted(each) for each in given_to(linked(), claim(exactly(2)), claim(exactly(4)))] == [
        ["gpu-0", "gpu-1"],
        ["gpu-4", "gpu-5", "gpu-6", "gpu-7"],
    ]


def test_devices_of_several_requests_are_linked_too() -> None:
    (devices,) = given_to(linked(), claim(exactly(), exactly()))

    assert sorted(devices) == ["gpu-0", "gpu-1"]


def test_one_device_is_taken_where_a_group_is_begun() -> None:
    assert given_to(linked(), claim(exactly()), claim(exactly()), claim(exactly(2)), claim(exactly())) == [
        ["gpu-0"],
        ["gpu-1"],
        ["gpu-2", "gpu-3"],
        ["gpu-4"],
    ]


def test_constraints_hold() -> None:
    (devices,) = given_to(linked(), claim(exactly(2), constraints=[{"distinctAttribute": NUMA}]))
    (others,) = given_to(linked(), claim(exactly(4), constraints=[{"matchAttribute": NUMA}]))

    assert [int(each[-1]) // 4 for each in sorted(devices)] != [0, 0]
    assert len({int(each[-1]) // 4 for each in others}) == 1


def test_the_smallest_device_that_serves_is_taken() -> None:
    gpus = [device(f"gpu-{gib}", capacity={"memory": {"value": f"{gib}Gi"}}) for gib in (80, 24, 40)]

    assert given_to([offer("s", gpus)], claim(exactly()), claim(exactly()), claim(exactly())) == [
        ["gpu-24"],
        ["gpu-40"],
        ["gpu-80"],
    ]


def test_of_shared_devices_the_fullest_with_room_is_taken() -> None:
    gpus = [
        device(f"gpu-{number}", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
        for number in range(3)
    ]

    def share(gib: int) -> ResourceClaim:
        return claim(exactly(capacity={"requests": {"memory": f"{gib}Gi"}}))

    assert given_to([offer("s", gpus)], share(50), share(60), share(25), share(20)) == [
        ["gpu-0"],
        ["gpu-1"],
        ["gpu-0"],
        ["gpu-1"],
    ]


def partitions(gpus: int = 2, **where: Any) -> list[ResourceSlice]:
    """GPUs with MIG: all partitions, which share slices and multiprocessors."""
    total = {"multiprocessors": {"value": "7"}, **{f"slice-{at}": {"value": "1"} for at in range(8)}}
    devices = [
        device(
            f"gpu-{gpu}-{profile}-{start}",
            attributes={"model": profile},
            consumesCounters=[
                {
                    "counterSet": f"gpu-{gpu}",
                    "counters": {
                        "multiprocessors": {"value": f"{amount}"},
                        **{f"slice-{at}": {"value": "1"} for at in range(start, start + slices)},
                    },
                }
            ],
        )
        for gpu in range(gpus)
        for profile, (amount, slices, starts) in PROFILES.items()
        for start in starts
    ]
    counters = [{"name": f"gpu-{gpu}", "counters": total} for gpu in range(gpus)]
    name = str(where.get("pool", "node-pool"))
    return [
        offer(f"{name}-counters", [], slices=2, sharedCounters=counters, **where),
        offer(f"{name}-devices", devices, slices=2, **where),
    ]


def asked_of(profile: str, count: int = 1) -> dict[str, Any]:
    """What a request for partitions asks for."""
    selector = {"cel": {"expression": f'device.attributes["gpu.example.com"].model == "{profile}"'}}
    return exactly(count, selectors=[selector])


def partition(profile: str, count: int = 1) -> ResourceClaim:
    return claim(asked_of(profile, count))


def test_partitions_leave_room_for_larger_ones() -> None:
    asked = ("1g", "4g", "2g", "7g")

    assert given_to(partitions(), *map(partition, asked)) == [
        ["gpu-0-1g-6"],
        ["gpu-0-4g-0"],
        ["gpu-0-2g-4"],
        ["gpu-1-7g-0"],
    ]


def test_partitions_of_one_claim_are_of_one_gpu_if_that_leaves_more() -> None:
    (three, whole) = given_to(partitions(), partition("1g", 3), partition("7g"))

    assert (sorted(three), whole) == (["gpu-0-1g-4", "gpu-0-1g-5", "gpu-0-1g-6"], ["gpu-1-7g-0"])


# On several nodes


def test_nodes_are_compared_by_what_is_lost_on_them() -> None:
    slices = [each for node in "ab" for each in partitions(1, pool=node, nodeName=node)]
    devices, nodes = live(slices, "ab")
    small, large = partition("1g"), partition("4g")
    allocations = devices.allocate(devices.asked([small]), [small], 1, "best").allocations
    assert allocations is not None
    devices.take("t", allocations[0])

    first, second = devices.losses(devices.asked([small]), nodes).tolist()[:2]
    assert first > second
    first, second = devices.losses(devices.asked([large]), nodes).tolist()[:2]
    assert first > second


def test_a_node_loses_what_the_cheapest_device_costs() -> None:
    devices, nodes = live(partitions(1))
    total = [7, *[1] * 8]
    parts = [
        [amount, *(int(start <= at < start + slices) for at in range(8))]
        for amount, slices, starts in PROFILES.values()
        for start in starts
    ]
    least = min(by_hand(total, parts, 0, total, part) for part in range(7))

    assert devices.losses(devices.asked([partition("1g")]), nodes)[0] == pytest.approx(least, abs=2 * CROWD)


def test_the_chosen_alternatives_decide_what_a_node_loses() -> None:
    devices, nodes = live(partitions(1))
    first = [{"name": profile, **asked_of(profile)} for profile in ("7g", "1g")]
    asked = devices.asked([claim({"firstAvailable": first})])

    small = devices.losses(devices.asked([partition("1g")]), nodes)[0]
    large = devices.losses(devices.asked([partition("7g")]), nodes)[0]
    assert devices.losses(asked, nodes)[0] == large > small
    assert devices.losses(asked, nodes.at(nodes.rows[:1]), frozenset({(0, "r0/1g")}))[0] == small


def test_a_very_large_problem_is_solved_in_the_order_of_its_positions() -> None:
    gpus = [device(f"gpu-{number}", attributes={ROOT: f"r{number % 64}"}) for number in range(128)]
    slices = [offer(f"s{at}", gpus, pool=f"p{at}") for at in range(16)]
    before = process_time()

    (found,) = given_to(slices, claim(*[exactly()] * 32))

    assert len(found) == 32
    assert process_time() - before < 5


def test_the_order_of_kube_scheduler_is_as_it_was() -> None:
    devices, _ = live(linked())
    wanted = [claim(exactly(2))]
    allocations = devices.allocate(devices.asked(wanted), wanted, 0).allocations

    assert [each["device"] for each in msgspec.to_builtins(allocations)[0]["devices"]["results"]] == ["gpu-0", "gpu-2"]
