"""The remedy of a higher priority: the lowest one for which evicting all pods of a lower priority would be enough."""

from __future__ import annotations

from collections.abc import Iterator

from gangline.plurals import listed
from gangline.remedies.bisecting import first_that_does
from gangline.remedies.freeing import Vacancy, vacancies
from gangline.remedies.holders import holders_of
from gangline.remedies.remedy import Remedy, RemedyCost, RemedyKind
from gangline.remedies.trying import Trial

_HIGHEST = 1_000_000_000
"""The highest priority that users can give; higher ones are those of system components."""


def raise_priority(trial: Trial) -> Iterator[Remedy]:
    """The lowest priority with which the unit would start if all pods of a lower priority were removed."""
    points = trial.runtime.profile.points
    if not points.get("post_filter" if trial.group is None else "pod_group_post_filter"):
        return
    if any(pod.spec.preemption_policy == "Never" for pod in trial.pods):
        return
    present = max(pod.priority for pod in trial.pods)
    if trial.group is not None and trial.group.priority is not None:
        present = trial.group.priority
    holders = holders_of(trial)
    if next(vacancies(trial, [each for each in holders if each.priority < present]), None) is not None:
        return  # preemption makes room without a higher priority
    levels = sorted({each.priority for each in holders if present <= each.priority < _HIGHEST})
    found: dict[int, Vacancy | None] = {}

    def would_do(number: int) -> bool:
        below = [each for each in holders if each.priority <= levels[number]]
        found[number] = next(vacancies(trial, below), None)
        return found[number] is not None

    first = first_that_does(len(levels), would_do)
    vacancy = found[first] if first is not None else None
    if first is None or vacancy is None:
        return
    priority = levels[first] + 1
    names = listed([holder.name for holder in vacancy.holders])
    yield Remedy(
        RemedyKind.RAISE_PRIORITY,
        f"Raise the priority from {present} to {priority}, so that preemption may remove others, such as {names}.",
        {"priority": priority, "from": present, "pods": [pod.key for pod in vacancy.pods]},
        RemedyCost(len(vacancy.pods)),
    )
