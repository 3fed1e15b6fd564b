"""The topology wishes of a workload, read from its annotations; an invalid value is reported and ignored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gangline import PLACEMENT_STRATEGY, STRATEGIES, Strategy, strategy_of

PREFIX = "topology.scheduler/"
GPU_COUNT = f"{PREFIX}gpu-count"
PREFERRED_DOMAIN = f"{PREFIX}preferred-domain"
"""On a workload or its pods: the leaf, spine or other domain that is preferred."""
NETWORK_BANDWIDTH = f"{PREFIX}network-bandwidth"
"""On a workload or its pods: the least network bandwidth of its nodes, for example "200Gb"."""
LATENCY_SENSITIVE = f"{PREFIX}latency-sensitive"
"""On a workload or its pods: "true" prefers domains of low latency, and nodes close to the owner's other pods."""
GPU_TYPE = f"{PREFIX}gpu-type"
"""On a workload or its pods: the required type of GPU, or several accepted types: "H100, A100"."""
KEYS = frozenset((GPU_COUNT, GPU_TYPE, PREFERRED_DOMAIN, NETWORK_BANDWIDTH, LATENCY_SENSITIVE, PLACEMENT_STRATEGY))
_POSITIVE = re.compile(r"0{0,32}[1-9][0-9]{0,8}")
_TYPE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9 ._+]{0,62}")
_MOST_TYPES = 16
_GBPS = re.compile(r"([1-9][0-9]{0,6})Gb(?:ps)?")
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Wishes:
    """The valid wishes."""

    preferred_domain: str = ""
    """The name of a leaf, a spine, or a domain of any other level."""
    gbps: int = 0
    """The least network bandwidth; 0 for any."""
    latency_sensitive: bool = False
    strategy: Strategy = "balanced"
    gpu_types: tuple[str, ...] = ()
    """The accepted types; empty for all types."""


NO_WISHES = Wishes()


def read(annotations: Mapping[str, str]) -> tuple[Wishes, tuple[str, ...]]:
    """The wishes, and the errors in the annotations."""
    if KEYS.isdisjoint(annotations):
        return NO_WISHES, ()
    problems: list[str] = []

    def wrong(key: str, what: str) -> None:
        problems.append(f"{key}: {annotations[key]!r} is not {what}")

    if GPU_COUNT in annotations and not count_of(annotations[GPU_COUNT]):
        wrong(GPU_COUNT, "a positive whole number")
    gbps = 0
    if NETWORK_BANDWIDTH in annotations:
        if found := _GBPS.fullmatch(annotations[NETWORK_BANDWIDTH]):
            gbps = int(found[1])
        else:
            wrong(NETWORK_BANDWIDTH, 'a whole number of gigabits such as "200Gb"')
    sensitive = _TRUTH.get(annotations.get(LATENCY_SENSITIVE, "false"))
    if sensitive is None:
        wrong(LATENCY_SENSITIVE, '"true" or "false"')
    if annotations.get(PLACEMENT_STRATEGY, STRATEGIES[0]) not in STRATEGIES:
        wrong(PLACEMENT_STRATEGY, f"one of {', '.join(STRATEGIES)}")
    domain = annotations.get(PREFERRED_DOMAIN, "")
    if PREFERRED_DOMAIN in annotations and not domain:
        wrong(PREFERRED_DOMAIN, "the name of a domain")
    types = _types(annotations.get(GPU_TYPE, ""))
    if GPU_TYPE in annotations and not types:
        wrong(GPU_TYPE, f'a type of GPU such as "H100", or up to {_MOST_TYPES} of them')
    return Wishes(domain, gbps, bool(sensitive), strategy_of(annotations), types), tuple(problems)


def _types(text: str) -> tuple[str, ...]:
    """The types in a list, in order; none if one of them is unreadable."""
    names = [name.strip() for name in text.split(",", _MOST_TYPES)]
    is_good = len(names) <= _MOST_TYPES and all(_TYPE.fullmatch(name) for name in names)
    return tuple(sorted(set(names))) if is_good else ()


def count_of(text: str) -> int:
    """The GPUs of the whole workload; 0 unless the text is a positive whole number."""
    return int(text) if _POSITIVE.fullmatch(text) else 0


def invalid(problems: Iterable[str]) -> list[str]:
    """The kinds of errors to count in the metric, given the errors from `read`."""
    kinds = {"invalid_gpu_requirements": (GPU_COUNT, GPU_TYPE), "invalid_strategy": (PLACEMENT_STRATEGY,)}
    said = [problem.partition(":")[0] for problem in problems]
    return [kind for kind, keys in kinds.items() if not set(said).isdisjoint(keys)]
