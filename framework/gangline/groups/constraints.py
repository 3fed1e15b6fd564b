"""How close the pods of a group have to be, from the annotations of every dialect.

Rules:
- Only the keys of one dialect count; if there are several, the first in the order of `_DIALECTS`.
- Volcano counts tiers from the closest: tier 1 is the level "tier-1" of the profile's topology, and so on.
- Koordinator's layers are levels without the word Layer: SpineLayer is "spine"; NodeTopologyLayer is "host".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from gangline.api.pod_group import ANYWHERE, TopologyConstraint
from gangline.groups import keys
from gangline.groups.parsing import fallback, flag, invalid, level, level_name, number
from gangline.state.topology import HOST, KNOWN_LEVELS
from gangline.wire.texts import from_json

FREE = TopologyConstraint()
"""No constraint."""


class Constraints(msgspec.Struct, frozen=True):
    """The constraints from annotations: on all pods together, and on every slice of consecutive ranks."""

    topology: TopologyConstraint = FREE
    slice_size: int = 0
    slice_topology: TopologyConstraint = FREE


def constraints_of(annotations: Mapping[str, str]) -> Constraints:
    """The constraints in annotations of any dialect. Raises InvalidObject that names the key."""
    for key in annotations:
        if key.startswith(_PREFIXES):
            break
    else:
        return _NONE
    found = (read(annotations) for read in _DIALECTS)
    topology = next((constraint for constraint in found if constraint is not None), FREE)
    size, slices = _kueue_slices(annotations) or _kai_segments(annotations) or (0, FREE)
    return Constraints(topology, size, slices)


def tier(number_: int) -> str:
    """The level of a Volcano tier."""
    return f"tier-{number_}"


def volcano(mode: str, highest: str) -> TopologyConstraint | None:
    """The constraint of a Volcano mode with the level of the highest allowed tier; None for an unknown mode."""
    if mode in ("", "hard"):
        return TopologyConstraint(required=highest or tier(1))
    return TopologyConstraint(preferred=highest or tier(1)) if mode == "soft" else None


def _gangline(annotations: Mapping[str, str]) -> TopologyConstraint | None:
    return _given(
        TopologyConstraint(
            level(annotations, keys.TOPOLOGY_REQUIRED),
            level(annotations, keys.TOPOLOGY_PREFERRED),
            fallback(annotations, keys.TOPOLOGY_FALLBACK),
        ),
        annotations,
        (keys.TOPOLOGY_REQUIRED, keys.TOPOLOGY_PREFERRED, keys.TOPOLOGY_FALLBACK),
    )


def _kueue(annotations: Mapping[str, str]) -> TopologyConstraint | None:
    named = (keys.KUEUE_REQUIRED, keys.KUEUE_PREFERRED)
    if flag(annotations, keys.KUEUE_UNCONSTRAINED):
        if any(key in annotations for key in named):
            why = f"excludes {keys.KUEUE_REQUIRED} and {keys.KUEUE_PREFERRED}"
            raise invalid(keys.KUEUE_UNCONSTRAINED, annotations[keys.KUEUE_UNCONSTRAINED], why)
        return FREE
    required, preferred = (level(annotations, key) for key in named)
    return _given(TopologyConstraint(required, preferred), annotations, named)


def _kai(annotations: Mapping[str, str]) -> TopologyConstraint | None:
    named = (keys.KAI_REQUIRED, keys.KAI_PREFERRED)
    required, preferred = (level(annotations, key) for key in named)
    return _given(TopologyConstraint(required, preferred), annotations, named)


def _volcano(annotations: Mapping[str, str]) -> TopologyConstraint | None:
    mode, highest = annotations.get(keys.VOLCANO_MODE), number(annotations, keys.VOLCANO_HIGHEST_TIER)
    if mode is None and highest is None:
        return None
    constraint = volcano(mode or "", tier(highest) if highest else ANYWHERE)
    if constraint is None:
        raise invalid(keys.VOLCANO_MODE, mode, 'expected "hard" or "soft"')
    return constraint


class _Gather(msgspec.Struct):
    layer: str
    strategy: Literal["MustGather", "PreferGather"]


class _Gathering(msgspec.Struct, rename="camel"):
    gather_strategy: list[_Gather]


def _koordinator(annotations: Mapping[str, str]) -> TopologyConstraint | None:
    text = annotations.get(keys.KOORDINATOR_TOPOLOGY)
    if text is None:
        return None
    wanted = from_json(f"annotation {keys.KOORDINATOR_TOPOLOGY}", text, _Gathering).gather_strategy
    by_strategy: dict[str, list[str]] = {"MustGather": [], "PreferGather": []}
    for each in wanted:
        by_strategy[each.strategy].append(level_name(keys.KOORDINATOR_TOPOLOGY, text, _layer(each.layer)))
    return TopologyConstraint(_narrowest(by_strategy["MustGather"]), _narrowest(by_strategy["PreferGather"]))


def _layer(name: str) -> str:
    """A Koordinator layer as the name of a level: SpineLayer is "spine", DataCenterLayer is "data-center"."""
    if name == "NodeTopologyLayer":
        return HOST
    words = name.removesuffix("Layer")
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in words).removeprefix("-")


def _narrowest(levels: list[str]) -> str:
    """The narrowest of these levels, by the order of the well-known levels; if some are unknown, the last of these."""
    usual = {known.name: place for place, known in enumerate(KNOWN_LEVELS)}
    return max(reversed(levels), key=lambda name: usual.get(name, len(usual)), default=ANYWHERE)


def _kueue_slices(annotations: Mapping[str, str]) -> tuple[int, TopologyConstraint] | None:
    size = number(annotations, keys.KUEUE_SLICE_SIZE)
    required = level(annotations, keys.KUEUE_SLICE_REQUIRED)
    if size is None and not required:
        return None
    if size is None:
        raise invalid(keys.KUEUE_SLICE_REQUIRED, required, f"needs {keys.KUEUE_SLICE_SIZE} too")
    if not required:
        raise invalid(keys.KUEUE_SLICE_SIZE, str(size), f"needs {keys.KUEUE_SLICE_REQUIRED} too")
    return size, TopologyConstraint(required)


def _kai_segments(annotations: Mapping[str, str]) -> tuple[int, TopologyConstraint] | None:
    size = number(annotations, keys.KAI_SEGMENT_SIZE, least=2)
    required, preferred = level(annotations, keys.KAI_SEGMENT_REQUIRED), level(annotations, keys.KAI_SEGMENT_PREFERRED)
    if size is None and not required and not preferred:
        return None
    if size is None:
        key = keys.KAI_SEGMENT_REQUIRED if required else keys.KAI_SEGMENT_PREFERRED
        raise invalid(key, required or preferred, f"needs {keys.KAI_SEGMENT_SIZE} too")
    if not required and not preferred:
        why = f"needs {keys.KAI_SEGMENT_REQUIRED} or {keys.KAI_SEGMENT_PREFERRED} too"
        raise invalid(keys.KAI_SEGMENT_SIZE, str(size), why)
    return size, TopologyConstraint(required, preferred)


def _given(
    constraint: TopologyConstraint, annotations: Mapping[str, str], named: tuple[str, ...]
) -> TopologyConstraint | None:
    """The constraint if any of its keys is set, also if the value is "any"; else None."""
    return constraint if any(key in annotations for key in named) else None


_NONE = Constraints()
_DIALECTS: tuple[Callable[[Mapping[str, str]], TopologyConstraint | None], ...] = (
    _gangline,
    _kueue,
    _kai,
    _volcano,
    _koordinator,
)
_PREFIXES = (
    "gangline.dev/topology-",
    "kueue.x-k8s.io/podset-",
    "kai.scheduler/",
    "volcano.sh/network-topology-",
    "gang.scheduling.koordinator.sh/network-topology-",
)
