"""The changes of the objects of one kind, and the watches on them.

Objects are plain JSON data and are never changed: a write makes a new `Revision`.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gangline.kube.interface import EventType
from gangline.simulate.refusals import too_old

BOOKMARK_AFTER = 1000  # changes that a watch did not want, after which it is told how far it is

Data = dict[str, Any]
Matches = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Revision:
    """An object at one resourceVersion; ``body`` is ``data`` as JSON."""

    version: int
    data: Data
    body: bytes


def revision(data: Mapping[str, Any], version: int) -> Revision:
    """The object, stamped with its resourceVersion."""
    stamped = {**data, "metadata": {**data["metadata"], "resourceVersion": str(version)}}
    return Revision(version, stamped, msgspec.json.encode(stamped))


@dataclass(frozen=True, slots=True)
class Change:
    """One change: ``old`` is None for a new object; for a deleted object ``new`` is its last state."""

    type: EventType
    old: Revision | None
    new: Revision


@dataclass(frozen=True, slots=True)
class Notice:
    """A watch's notice of a change; a bookmark has only a resourceVersion."""

    type: EventType
    revision: Revision

    @property
    def line(self) -> bytes:
        """One line of a watch as an API server writes it."""
        return b'{"type":"%b","object":%b}' % (self.type.value.encode(), self.revision.body)


class History:
    """The last ``limit`` changes of one kind, oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes: list[Change] = []
        self._dropped = 0  # changes that are no longer in the list
        self._forgotten = 0  # the resourceVersion of the last change that counts as forgotten
        self._waiting: dict[asyncio.Future[None], None] = {}  # in order, so that every run is the same

    @property
    def end(self) -> int:
        """The number of the next change; the first ever has the number 0."""
        return self._dropped + len(self._changes)

    def add(self, change: Change) -> None:
        """Keeps a change and wakes the watches."""
        self._changes.append(change)
        if len(self._changes) > self._limit:
            self._forgotten = self._changes[-self._limit - 1].new.version
        if len(self._changes) > 2 * self._limit:
            self._dropped += len(self._changes) - self._limit
            del self._changes[: -self._limit]
        self.wake()

    def forget(self, version: int) -> None:
        """Forget the changes up to this resourceVersion: no watch can begin before it any more. Open watches go on."""
        self._forgotten = max(self._forgotten, version)

    def after(self, version: int) -> int:
        """The number of the first change after a resourceVersion. Raises Gone if it is forgotten."""
        if version < self._forgotten:
            raise too_old(version, self._forgotten)
        return self._dropped + bisect.bisect_right(self._changes, version, key=lambda change: change.new.version)

    def at(self, number: int) -> Change:
        """A change by its number. Raises Gone if it is forgotten."""
        index = number - self._dropped
        if index < len(self._changes) - self._limit:
            raise too_old(self._changes[index].new.version if index >= 0 else 0, self._forgotten)
        return self._changes[index]

    async def grown(self) -> None:
        """Waits for the next `wake`."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await future
        finally:
            del self._waiting[future]

    def wake(self) -> None:
        """Lets every watch look again."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


class Watch:
    """An open stream of notices: first ``start``, then what happens from change number ``position`` on.

    Iterating raises Gone when the watch is too far behind, and ends when the watch is closed.
    """

    def __init__(self, history: History, position: int, matches: Matches | None, start: list[Revision]) -> None:
        self._history = history
        self._position = position
        self._matches = matches
        self._start = [Notice(EventType.ADDED, each) for each in reversed(start)]
        self._skipped = 0
        self.closed = False

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Notice:
        while not self.closed:
            notice = self._start.pop() if self._start else self._next()
            if notice is not None:
                return notice
            await self._history.grown()
        raise StopAsyncIteration

    def close(self) -> None:
        """Ends the stream."""
        self.closed = True
        self._history.wake()

    def _next(self) -> Notice | None:
        """The next notice, or None when there is none yet."""
        while self._position < self._history.end:
            change = self._history.at(self._position)
            self._position += 1
            notice = self._notice(change)
            if notice is not None:
                self._skipped = 0
                return notice
            self._skipped += 1
            if self._skipped == BOOKMARK_AFTER:
                self._skipped = 0
                return Notice(EventType.BOOKMARK, revision({"metadata": {}}, change.new.version))
        return None

    def _notice(self, change: Change) -> Notice | None:
        """The change as seen by a watch with this selector."""
        if self._matches is None:
            return Notice(change.type, change.new)
        before = change.old is not None and self._matches(change.old.data)
        after = change.type is not EventType.DELETED and self._matches(change.new.data)
        if before and not after and change.old is not None:
            return Notice(EventType.DELETED, revision(change.old.data, change.new.version))
        if after:
            return Notice(EventType.MODIFIED if before else EventType.ADDED, change.new)
        return None
