"""The record on an owner that Gangline has suspended: who suspended it, when, why, and how its spec was then.

Gangline remembers nothing else, so any later leader can go on. Kubernetes counts the changes of a spec in the field
`generation`. If it is not the generation that the suspension made, somebody else has changed the spec since.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gangline import moments, rfc3339, texts

SUSPENDED_BY = "gangline.dev/suspended-by"
"""On a Job, JobSet or Workload of Kueue: the profile that has suspended it and resumes it. Remove it to keep the object
suspended.
"""
SUSPENSION = "gangline.dev/suspension"
"""On a Job, JobSet or Workload of Kueue: when and why the scheduler has suspended it, as JSON."""
_MOST_WHY = 200


class SuspensionRecord(msgspec.Struct, frozen=True):
    """When and why an owner was suspended."""

    at: str
    """RFC 3339."""
    generation: int
    """metadata.generation after the suspension."""
    priority: int
    """The priority of the pods."""
    why: str

    @property
    def since(self) -> float:
        """Seconds since the epoch. Raises ValueError."""
        return moments.moment(self.at)


def written(profile: str, now: float, generation: int, priority: int, why: str) -> dict[str, str]:
    """The annotations of a suspension."""
    record = SuspensionRecord(rfc3339(now), generation, priority, why[:_MOST_WHY])
    return {SUSPENDED_BY: profile, SUSPENSION: msgspec.json.encode(record).decode()}


def removed() -> dict[str, str | None]:
    """What takes the annotations away, in a patch."""
    return {SUSPENDED_BY: None, SUSPENSION: None}


def read(annotations: Mapping[str, str]) -> SuspensionRecord:
    """The record in these annotations. Raises InvalidObject."""
    return texts.from_json(SUSPENSION, annotations.get(SUSPENSION, ""), SuspensionRecord)
