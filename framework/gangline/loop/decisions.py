"""Remembers why pods are on their nodes: the last decisions, as references; words are made when someone asks.

Rules:
- Recording a decision costs less than a microsecond: only existing names and numbers are stored.
- The memory is bounded twice, by the number of decisions and by their bytes; the oldest are dropped first.
- Of a pod only its names are stored: annotations of its owner cannot fill the memory.
- Another thread may ask: that is one look-up, and a stored decision never changes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from gangline.api.plugin import Clock
from gangline.clock import rfc3339
from gangline.deciding.group_decisions import GroupDecision
from gangline.deciding.scheduling import Decision
from gangline.wire.custom_resources import ALLOCATED

MOST = 10_000
"""Decisions that are remembered."""
MOST_BYTES = 16 * 1024 * 1024
_EACH = 640
"""Bytes of an entry without its scores and texts: the tuple, its place in the table, the pod's names."""
_SCORE = 32
"""Bytes of a score."""

Scores = tuple[tuple[tuple[str, int], ...], list[float]]
_NO_SCORES: Scores = ((), [])


class _Gang(NamedTuple):
    """The values that members of a gang placed together share."""

    name: str
    placement: str
    score: float
    members: int


_Noted = tuple[str, str, str, float, int, Scores, str, "_Gang | None"]
"""Pod, node, profile, time, feasible nodes, scores, devices and gang: a plain tuple is the fastest to make."""


class Decisions:
    """The last decisions by pod UID."""

    def __init__(self, clock: Clock, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._now = clock.now
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._noted: OrderedDict[str, _Noted] = OrderedDict()

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, decision: Decision) -> None:
        """A pod goes to a node."""
        self._add(decision, None)

    def note_group(self, decision: GroupDecision) -> None:
        """A gang, or the rest of one, goes to nodes."""
        group = decision.group
        gang = _Gang(f"{group.namespace}/{group.name}", decision.placement, decision.score, len(decision.members))
        for member in decision.members:
            self._add(member, gang)

    def of(self, uid: str) -> dict[str, Any] | None:
        """Why a pod is on its node, as JSON; None if it is unknown or forgotten."""
        noted = self._noted.get(uid)
        if noted is None:
            return None
        pod, node, profile, time, feasible, (names, scores), devices, gang = noted
        found: dict[str, Any] = {
            "pod": pod,
            "uid": uid,
            "node": node,
            "profile": profile,
            "time": rfc3339(time),
        }
        if feasible:
            found["feasibleNodes"] = feasible
        if devices:
            found["devices"] = devices
        if names:
            each = zip(names, scores, strict=True)
            found["scores"] = [{"plugin": name, "weight": weight, "score": score} for (name, weight), score in each]
        if gang is not None:
            found["gang"] = gang._asdict()
        return found

    def _add(self, decision: Decision, gang: _Gang | None) -> None:
        pod, kept = decision.pod, self._noted
        scores = decision.scores or _NO_SCORES
        devices = decision.cycle.annotations.get(ALLOCATED, "")
        profile = decision.runtime.name
        uid = pod.uid
        if uid in kept:
            self._bytes -= _size(kept.pop(uid))
        kept[uid] = (pod.key, decision.node, profile, self._now(), decision.feasible, scores, devices, gang)
        self._bytes += _EACH + _SCORE * len(scores[1]) + len(devices)
        while len(kept) > self._most or self._bytes > self._most_bytes:
            self._bytes -= _size(kept.popitem(last=False)[1])


def _size(noted: _Noted) -> int:
    """The approximate size in bytes."""
    return _EACH + _SCORE * len(noted[5][1]) + len(noted[6])
