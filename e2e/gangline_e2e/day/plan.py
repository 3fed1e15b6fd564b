"""Makes a day's workloads from a seed: few at night, most at noon, and together as many as nearly fill the cluster.

Nothing here knows a scheduler or an API server. The same numbers give the same day.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from gangline_e2e.day.fabric import Fabric
from gangline_e2e.day.workload import WHOLE, Kind, Workload
from gangline_e2e.gangs import LEAF, SPINE

T = TypeVar("T")
NIGHT = 0.2
"""The part of the day, at its end, in which nothing comes."""
DAWN = 0.12
"""The part of the day, at its start, in which the largest gangs come."""
NOON = 0.45
"""When a whole leaf is lost, as a part of the day."""
AWAY = 0.1
"""For how long lost nodes are away, as a part of the day."""
LOAD = 1.25
"""The GPU-seconds of all workloads, as a multiple of the cluster's GPU-seconds until the night."""
SHARES: dict[Kind, float] = {"pod": 0.45, "fraction": 0.2, "claim": 0.1, "gang": 0.25}
"""The share of each kind of workload in all pods."""
WHOLE_GPUS = {1: 45, 2: 20, 4: 20, 8: 15}
GANG_GPUS = {1: 15, 2: 10, 4: 15, 8: 60}
MILLI = {100: 1, 250: 2, 500: 2}
PRIORITIES = {"low": 30, "normal": 65, "high": 5}
LARGEST = 1024
"""The pods of the largest gang, if the cluster is large enough."""
LARGEST_PART = 0.21
"""The largest part of the cluster that one gang asks for."""
DIALECTS = (
    "upstream",
    "scheduler_plugins",
    "kai",
    "volcano",
    "koordinator",
    "kueue",
    "leader_worker_set",
    "job_set",
    "gang_ref",
)
SLICED = ("kai", "kueue")
"""Dialects that can ask for parts of consecutive pods."""
SPREAD, SHORTEST, LONGEST = 0.5, 0.2, 2.2
"""How much the runtimes of workloads differ: the width of their lognormal distribution, and its ends as multiples of
the mean."""


@dataclass(frozen=True, slots=True)
class Day:
    """How long the day is, and how many pods come."""

    pods: int = 20_000
    seconds: float = 300.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Loss:
    """Nodes that go at the same time, by number; times are seconds from the start of the day."""

    at_s: float
    away_s: float
    nodes: tuple[int, ...]


def plan(day: Day, fabric: Fabric) -> list[Workload]:
    """The workloads of a day in the order in which they come, those that can never start among them."""
    dice = random.Random(day.seed)
    drawn = [*_singles(day, fabric, dice), *_gangs(day, fabric, dice)]
    wanted = LOAD * fabric.nodes * fabric.gpus * day.seconds * (1 - NIGHT)
    scale = wanted / sum(each.gpu_seconds for each in drawn)
    timed = [_timed(each, scale, day, fabric, dice) for each in drawn]
    return sorted([*timed, *_impossible(day, fabric)], key=lambda each: each.at_s)


def losses(day: Day, fabric: Fabric) -> list[Loss]:
    """When which nodes are lost: one in five hundred on its own, at any time, and at noon all nodes of a leaf."""
    dice = random.Random(day.seed + 1)
    dark = dice.randrange(fabric.leaves)
    others = [number for number in range(fabric.nodes) if fabric.leaf(number) != dark]
    single = dice.sample(others, max(1, fabric.nodes // 500))
    away = day.seconds * AWAY
    found = [Loss(day.seconds * dice.uniform(0.1, 1 - NIGHT), away, (number,)) for number in single]
    leaf = tuple(number for number in range(fabric.nodes) if fabric.leaf(number) == dark)
    return [*found, Loss(day.seconds * NOON, away, leaf)]


def _timed(drawn: Workload, scale: float, day: Day, fabric: Fabric, dice: random.Random) -> Workload:
    is_huge = drawn.size * drawn.gpus > fabric.nodes * fabric.gpus // 16
    moment = dice.random() * DAWN if is_huge else _moment(dice) * (1 - NIGHT)
    return replace(
        drawn,
        at_s=moment * day.seconds,
        runs_s=round(drawn.runs_s * scale, 1),
        priority="high" if is_huge else drawn.priority,
    )


def _moment(dice: random.Random) -> float:
    """A time between 0 and 1; seven times as likely at noon as at the ends."""
    while True:
        moment = dice.random()
        if dice.random() < (1 + 6 * math.sin(math.pi * moment) ** 2) / 7:
            return moment


def _largest(day: Day, fabric: Fabric) -> int:
    """Pods of the largest gang."""
    most = min(LARGEST, int(fabric.nodes * fabric.gpus * LARGEST_PART), day.pods // 3)
    return 1 << (most.bit_length() - 1)


def _singles(day: Day, fabric: Fabric, dice: random.Random) -> Iterator[Workload]:
    pods = day.pods - _largest(day, fabric)
    for kind in ("pod", "fraction", "claim"):
        for number in range(round(pods * SHARES[kind])):
            name = f"{kind}-{number:06}"
            gpus = 1 if kind == "fraction" else min(_draw(dice, WHOLE_GPUS), fabric.gpus)
            milli = _draw(dice, MILLI) if kind == "fraction" else WHOLE
            yield Workload(name, 0, kind, 1, gpus, _draw(dice, PRIORITIES), _length(dice), milli)


def _gangs(day: Day, fabric: Fabric, dice: random.Random) -> Iterator[Workload]:
    """One that is the largest, and as many pods in gangs of each other size; sizes that leave too little aside."""
    largest = _largest(day, fabric)
    left = round((day.pods - largest) * SHARES["gang"])
    sizes = [2**power for power in range(1, largest.bit_length() - 1) if 2**power <= left / 6]
    counts = [(largest, 1)] + [(size, max(1, round(left / len(sizes) / size))) for size in reversed(sizes)]
    all_sizes = [size for size, count in counts for _ in range(count)]
    for number, size in enumerate(all_sizes):
        yield _gang(f"gang-{number:05}", size, DIALECTS[number % len(DIALECTS)], fabric, dice)


def _gang(name: str, size: int, dialect: str, fabric: Fabric, dice: random.Random) -> Workload:
    if dialect == "job_set":  # a driver, and two Jobs of workers
        size = max(3, size - 1)
    gpus = min(_draw(dice, GANG_GPUS), fabric.gpus)
    while gpus > 1 and size * gpus > LARGEST_PART * fabric.nodes * fabric.gpus:
        gpus //= 2
    nodes = -(-size // (fabric.gpus // gpus))
    level, part, part_size = _level(nodes, fabric, dice), "", 0
    if dialect in SLICED and level != LEAF and size % 4 == 0 and size >= 8:
        part, part_size = LEAF, 4
    return Workload(
        name,
        0,
        "gang",
        size,
        gpus,
        _draw(dice, PRIORITIES),
        _length(dice),
        dialect=dialect,
        level=level,
        part=part,
        part_size=part_size,
    )


def _level(nodes: int, fabric: Fabric, dice: random.Random) -> str:
    """The level that a gang of so many nodes asks for: mostly the narrowest with room for this gang and others."""
    chance = dice.random()
    if nodes <= fabric.leaf_size * 0.8 and chance < 0.7:
        return LEAF
    return SPINE if nodes <= fabric.spine_size * 0.6 and chance < 0.85 else ""


def _impossible(day: Day, fabric: Fabric) -> Iterator[Workload]:
    """Some that are larger than every domain of the level that they ask for, and a pod that is larger than a node."""
    morning, long = day.seconds * 0.3, day.seconds
    for number, dialect in enumerate(("upstream", "koordinator")):
        yield Workload(
            f"too-wide-{number}",
            morning,
            "gang",
            -(-fabric.nodes // fabric.leaves) + 1,
            fabric.gpus,
            "normal",
            long,
            dialect=dialect,
            level=LEAF,
            is_possible=False,
        )
    yield Workload("too-large", morning, "pod", 1, fabric.gpus + 1, "high", long, is_possible=False)


def _length(dice: random.Random) -> float:
    """A random runtime, as a multiple of the mean runtime."""
    return min(max(dice.lognormvariate(-(SPREAD**2) / 2, SPREAD), SHORTEST), LONGEST)


def _draw(dice: random.Random, weights: Mapping[T, int]) -> T:
    (drawn,) = dice.choices(list(weights), list(weights.values()))
    return drawn
