"""Messages that say why a group has no placement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gangline.api.diagnosis import Diagnosis
from gangline.api.pod_group import GroupAttempt, Role
from gangline.profile.entries import Filtered


def why_none(
    attempt: GroupAttempt, said: Iterable[str], filtered: Sequence[Filtered], diagnoses: Sequence[Diagnosis], nodes: int
) -> str:
    """What plugins said of placements, and for each role with too little room how many nodes reject it, and why.

    `filtered` and `diagnoses` have the verdicts for the first roles.
    """
    words = [f"no placement for {attempt.fewest} pods", *said]
    for role, verdicts, diagnosis in zip(attempt.roles, filtered, diagnoses, strict=False):
        held = min(role.room, len(role.pods))
        if held == len(role.pods) and verdicts.feasible.any():
            continue
        name = f" of {role.subgroup}" if role.subgroup else ""
        words.append(f"{held} of {len(role.pods)} pods{name} fit on {nodes} nodes")
        words.append(_why_not(role, verdicts, diagnosis, nodes))
    return f"gang {attempt.group.namespace}/{attempt.group.name}: {'; '.join(words)}"


def _why_not(role: Role, filtered: Filtered, diagnosis: Diagnosis, nodes: int) -> str:
    """Why nodes reject the members of a role."""
    feasible = int(filtered.feasible.sum())
    if not feasible:
        return diagnosis.message()
    reasons = [f"{n} {reason}" for reason, n in diagnosis.counts().items()]
    full = feasible - int((role.capacity[filtered.feasible] > 0).sum())
    if full:
        reasons.append(f"{full} node(s) had no room beside the members that come before")
    room = f"{feasible} of {nodes} nodes would do for one such pod"
    return f"{room}; {', '.join(sorted(reasons))}." if reasons else f"{room}, and have room for no more of them."
