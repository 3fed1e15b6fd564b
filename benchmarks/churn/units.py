"""What comes: pods alone, gangs in several dialects, pods with claims, and pods that no node can take."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gangline_chaos import units
from gangline_chaos.units import SHARES, Unit
from gangline_e2e import gangs
from gangline_e2e.gangs import ANYWHERE, LEAF, SPINE, Rule

DIALECTS = (
    gangs.koordinator,
    gangs.scheduler_plugins,
    gangs.volcano,
    gangs.upstream,
    gangs.kueue,
    gangs.leader_worker_set,
    gangs.job_set,
    gangs.kai,
)
RULES = (ANYWHERE, Rule(required=LEAF), Rule(required=SPINE), Rule(preferred=LEAF))
MOST_OF_GANG = 4


@dataclass(frozen=True, slots=True)
class Kind:
    """Units of a kind come with this weight."""

    weight: float
    make: Callable[[random.Random, str], Unit]


def _single(chance: random.Random, name: str) -> Unit:
    return units.single(name, chance.choice((1, 1, 1, 2, 4)))


def _gang(chance: random.Random, name: str) -> Unit:
    gpus = chance.choice((1, 1, 2))
    made = chance.choice(DIALECTS)(name, chance.randint(3, MOST_OF_GANG), chance.choice(RULES), gpus)
    return units.gang_of(made, gpus)


def _incomplete(chance: random.Random, name: str) -> Unit:
    """A gang of which a pod never comes."""
    unit = _gang(chance, name)
    del unit.pods[-1]
    return unit


def _too_large(chance: random.Random, name: str) -> Unit:
    """More GPUs than any node, or any leaf, has."""
    if chance.random() < 0.5:
        return units.single(name, 16)
    return units.gang_of(gangs.koordinator(name, 6, Rule(required=LEAF), 8), 8)


def _cards(chance: random.Random, name: str) -> Unit:
    return units.with_claims(name, [1] * chance.choice((1, 1, 3)))


KINDS: Sequence[Kind] = (
    Kind(40, _single),
    Kind(12, _gang),
    Kind(12, lambda chance, name: units.exclusive(name, chance.choice((1, 2)))),
    Kind(12, lambda chance, name: units.share(name, chance.choice(SHARES))),
    Kind(4, _cards),
    Kind(1, _incomplete),
    Kind(1, _too_large),
)


def coming(chance: random.Random) -> Callable[[str], Unit]:
    """The next unit: makes it by its name. Some of its fields have values that no other unit has."""
    kind = chance.choices(KINDS, [each.weight for each in KINDS])[0]
    return partial(_made, kind, chance)


def _made(kind: Kind, chance: random.Random, name: str) -> Unit:
    unit = kind.make(chance, name)
    for pod in unit.pods:
        pod["metadata"]["labels"]["example.com/run"] = name
        if chance.random() < 0.1:
            pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = str(chance.randint(10**6, 10**9))
        if chance.random() < 0.1:
            pod["spec"]["containers"][0]["image"] = f"registry.example.com/{name}:1"
    return unit
