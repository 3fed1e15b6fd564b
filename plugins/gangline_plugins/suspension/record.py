"""The record on an owner that Gangline has suspended: who suspended it, when, why, and how its spec was then.

Gangline remembers nothing else, so any later leader can go on. Kubernetes counts the changes of a spec in the field
`generation`. If it is not the generation that the suspension made, somebody else has changed the spec since.

A record belongs to the profile that it names, in the schedulers that elect one leader among them (`election`). If no
profile of that name suspends workloads there any more, another profile of these schedulers takes the record over. If
these schedulers have not resumed the owner when its time is long over, any scheduler may.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from gangline import moments, rfc3339, texts

SUSPENDED_BY = "gangline.dev/suspended-by"
"""On a Job, JobSet or Workload of Kueue: the profile that has suspended it and resumes it. Remove it to keep the object
suspended.
"""
SUSPENSION = "gangline.dev/suspension"
"""On a Job, JobSet or Workload of Kueue: when and why the scheduler has suspended it, as JSON."""
_MOST_WHY = 200
_LONGEST = 1e9
_LEFT = 300.0
"""Seconds after the time of a suspension is over, in which its own scheduler has to resume the owner."""
_AHEAD = 300.0
"""Seconds by which the clocks of two schedulers may differ."""


class SuspensionRecord(msgspec.Struct, frozen=True):
    """When and why an owner was suspended."""

    at: str
    """RFC 3339."""
    generation: int
    """metadata.generation after the suspension."""
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
    """The priority of the pods."""
    why: str
    election: str = ""
    """NAMESPACE/NAME of the Lease by which the scheduler was elected; "" without leader election."""
    seconds: float = 3600.0
    """Seconds after which the owner is resumed in any case; records of older versions do not say it."""

    @property
    def since(self) -> float:
        """Seconds since the epoch. Raises ValueError."""
        return moments.moment(self.at)

    def is_over(self, now: float, seconds: float) -> bool:
        """Whether so many seconds have passed since the suspension. A record of the future counts as over: it was
        written by a clock that was wrong, and the owner would stay suspended until then. Raises ValueError.
        """
        return not self.since - _AHEAD <= now < self.since + seconds

    def is_left(self, election: str, now: float) -> bool:
        """Whether schedulers of this election may resume the owner although they do not serve its profile.

        Raises ValueError.
        """
        return self.election == election or self.is_over(now, self.seconds + _LEFT)


class Suspender(msgspec.Struct, frozen=True):
    """Who suspends owners."""

    profile: str
    election: str
    seconds: float
    """See `SuspensionRecord`."""


def written(by: Suspender, now: float, generation: int, priority: int, why: str) -> dict[str, str]:
    """The annotations of a suspension."""
    seconds = min(by.seconds, _LONGEST)
    record = SuspensionRecord(rfc3339(now), generation, priority, why[:_MOST_WHY], by.election, seconds)
    return {SUSPENDED_BY: by.profile, SUSPENSION: msgspec.json.encode(record).decode()}


def removed() -> dict[str, str | None]:
    """What takes the annotations away, in a patch."""
    return {SUSPENDED_BY: None, SUSPENSION: None}


def read(annotations: Mapping[str, str]) -> SuspensionRecord:
    """The record in these annotations. Raises InvalidObject."""
    return texts.from_json(SUSPENSION, annotations.get(SUSPENSION, ""), SuspensionRecord)


def suspended_by(obj: Any) -> str:
    """The profile that has suspended a Job, JobSet or Workload, by its record; "" without a record."""
    return (obj.metadata.annotations or {}).get(SUSPENDED_BY, "")
