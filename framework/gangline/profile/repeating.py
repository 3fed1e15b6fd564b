"""Knows when a pod can be decided as the pod before it: one like it, and no plugin would say anything else.

When like pods follow each other, a decision repeats most of the one before. The kept answers of an identity change in
one row, and the plugins that are called for each attempt answer SKIP again. Where that is certain, only the row is
evaluated again, and the best row is chosen: the node, the scores and the use of random numbers are the same as in a
full attempt.

A plugin that is called for each attempt takes part by the hook `skip_key`. An attempt in which such a plugin says more
than SKIP is never repeated.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from gangline.profile.entries import Entry, Filtered, Scores
from gangline.profile.implementations import CompiledProfile, KeyHook, said_by
from gangline.state.pods import PodInfo


class Repeatable(msgspec.Struct, eq=False):
    """An attempt that pods like its own may repeat."""

    pod: PodInfo
    entry: Entry
    scores: Scores
    asked: list[KeyHook]
    """The hooks of the plugins that were called for this attempt, and have answered SKIP."""
    keys: list[Hashable]
    """What these hooks say."""


class Repeats:
    """The last attempt of a profile, if it may be repeated."""

    def __init__(self, profile: CompiledProfile) -> None:
        at = {point: [i for i in profile.points.get(point, ()) if i.reads is None] for point in ("pre_filter", "score")}
        self._filters = [i.name for i in profile.points.get("filter", ()) if i.reads is None]
        self._pre_filters = [impl.name for impl in at["pre_filter"]]
        self._scorers = [impl.name for impl in at["score"]]
        self._failing = [(i.name, i.errors_from) for i in profile.points.get("filter", ()) if i.errors_from is not None]
        self._keys = profile.skip_keys
        self._entry: Entry | None = None
        """The entry of the last attempt."""
        self._last: Repeatable | None = None

    def forget(self) -> None:
        """Repeat no attempt before this one."""
        self._entry = self._last = None

    def drop(self) -> None:
        """Repeat the last attempt no more; the next one of its identity may be repeated."""
        self._last = None

    def note(self, filtered: Filtered, scores: Scores) -> None:
        """An attempt has chosen a node by kept answers alone. It may be repeated if the attempt before it was for a pod
        of the same identity.
        """
        entry = filtered.entry
        if entry is not self._entry:
            self._entry, self._last = entry, None
        else:
            self._last = self._repeatable(filtered, entry, scores)

    def _repeatable(self, filtered: Filtered, entry: Entry, scores: Scores) -> Repeatable | None:
        pod, skipped = filtered.pod, filtered.skipped
        called = [name for name in self._pre_filters if name not in entry.skipped]
        if not all([name in skipped for name in (*called, *self._filters)]):
            return None
        if filtered.cycle.export() or filtered.cycle.annotations:  # another attempt would lack what plugins wrote
            return None
        names = dict.fromkeys((*called, *self._scorers))
        asked = [self._keys[name] for name in names if name in self._keys]
        if len(asked) < len(names):
            return None
        keys = said_by(asked, pod)
        return None if keys is None else Repeatable(pod, entry, scores, asked, keys)

    def of(self, pod: PodInfo) -> Repeatable | None:
        """The last attempt, if it was for a like pod; see `holds`."""
        last = self._last
        if last is None or not _are_like(pod, last.pod) or last.entry.scores is not last.scores:
            return None
        return last

    def is_settled(self, entry: Entry, scores: Scores) -> bool:
        """Whether the best row follows from the sum of scores: no verdict on a node may be an error, which would fail
        the attempt, and no normalized score makes a difference.
        """
        for name, first in self._failing:
            codes = entry.codes.get(name)
            if codes is not None and codes.max(initial=0) >= first:
                return False
        return all(scores.constant.values())


def holds(last: Repeatable, pod: PodInfo) -> bool:
    """Whether plugins that are called for each attempt can only say again what they said in the last one."""
    for each, known in zip(last.asked, last.keys, strict=True):
        try:
            if not bool(each.ask(pod) == known):
                return False
        except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
            each.failures.raised(each.name, each.point, error)
            return False
    return True


def _are_like(pod: PodInfo, other: PodInfo) -> bool:
    """Whether two pods differ in nothing that `skip_key` promises about."""
    return (
        pod.cls is other.cls
        and pod.labels is other.labels
        and pod.annotations == other.annotations
        and pod.owners == other.owners
        and pod.claims == other.claims
        and pod.extended_claim == other.extended_claim
        and pod.group == other.group
        and not pod.nominated_node_name
    )
