"""What an informer says in the log of its failures: once per change, not once per attempt.

A list that succeeds ends what is said of lists alone: after each failed watch the informer may list, and watch again.
"""

from __future__ import annotations

import logging

from gangline.errors import ApiError, Unavailable

log = logging.getLogger("gangline.kube.informer")  # whose failures these are

AT_ONCE = "its watches end at once and without an event"


class Complaints:
    """The complaint of one informer, whose resource is known as ``key``."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._last = ""
        self._is_of_watch = False

    def of(self, error: ApiError, *, is_of_watch: bool) -> None:
        """A list or a watch has failed."""
        level = logging.WARNING if isinstance(error, Unavailable) else logging.ERROR
        self._say(str(error), level, is_of_watch)

    def of_short_watches(self) -> None:
        """Some watches in a row were over at once."""
        self._say(AT_ONCE, logging.WARNING, is_of_watch=True)

    def end(self) -> None:
        """A watch has gone well."""
        self._last = ""

    def end_of_list(self) -> None:
        """A list, or a page of one, has gone well."""
        if not self._is_of_watch:
            self._last = ""

    def _say(self, what: str, level: int, is_of_watch: bool) -> None:
        if what != self._last:
            self._last, self._is_of_watch = what, is_of_watch
            log.log(level, "cannot follow %s: %s", self._key, what)
