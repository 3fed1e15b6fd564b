"""The expectations of plugins: when groups start, and when pods end. A plugin with a fault harms no picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from gangline import moments
from gangline.api.outlook import ExpectedStart, Outlook
from gangline.failures import Failures
from gangline.state.pods import PodInfo

MOST_STARTS = 100
"""Groups whose expected start is shown, at most."""
MOST_NODES = 1024
"""Nodes kept for one group that are named, at most."""
_LATEST = 1e11
"""Seconds since 1970; a later time counts as unknown."""

Outlooks = Callable[[], Iterable[tuple[str, Outlook]]]


class Expecting:
    """The outlooks of all plugins in use, as one. A plugin that raises is not asked again."""

    def __init__(self, outlooks: Outlooks = tuple, failures: Failures | None = None) -> None:
        self._outlooks = outlooks
        self._failures = failures or Failures()
        self._broken: dict[int, Outlook] = {}
        """Outlooks that have raised, by `id`. They are kept, so that no other object can get the same `id`."""

    def starts(self) -> Mapping[str, ExpectedStart]:
        """By key of a group for which room is kept: its expected start."""
        found: dict[str, ExpectedStart] = {}
        for name, outlook in self._sound():
            try:
                found.update((each.key, each) for each in [*outlook.starts()][:MOST_STARTS])
            except BaseException as error:  # a plugin may raise anything, and the page goes on without it
                self._leave_out(name, outlook, error)
        return found

    def ends(self) -> Callable[[PodInfo], int]:
        """The function that says when a pod ends at the latest, in seconds since 1970; 0 if nobody knows.

        The function asks the plugins that are in use now, so it is for the pods of one look.
        """
        asked = self._sound()

        def end_of(pod: PodInfo) -> int:
            end = math.inf
            for name, outlook in asked:
                try:
                    end = min(end, float(outlook.end_of(pod)))
                except BaseException as error:  # as above
                    self._leave_out(name, outlook, error)
                    asked[:] = self._sound()
                    return end_of(pod)
            return round(end) if 0.0 < end < _LATEST else 0

        return end_of

    def _sound(self) -> list[tuple[str, Outlook]]:
        return [(name, outlook) for name, outlook in self._outlooks() if id(outlook) not in self._broken]

    def _leave_out(self, name: str, outlook: Outlook, error: BaseException) -> None:
        self._broken[id(outlook)] = outlook
        self._failures.raised(name, "show", error)


def started(pod: PodInfo) -> int:
    """When a pod has started, in seconds since 1970; 0 if it has not, or if the time is unreadable."""
    text = pod.start_time
    return _moment(text) if 0 < len(text) <= moments.LONGEST_TEXT else 0


@lru_cache(4096)
def _moment(text: str) -> int:
    """Many pods start at the same second."""
    try:
        return round(moments.moment(text))
    except ValueError:
        return 0
