"""Makes the picture while somebody looks, once for all viewers, and keeps the last changes for viewers who follow.

Nothing is made before the first viewer comes. If no viewer has asked for `LINGER` seconds, the feed rests: it looks
every `REST` seconds only, so that the next viewer waits for what has changed since then, and not for the whole picture.
After `KEEP` seconds without a viewer the feed forgets the picture, and stops. After each look at the cluster the feed
pauses for `SHARE` times as long as the look took, and for at least `PAUSE` seconds. So the feed takes at most a
hundredth of one core, however large the cluster is and however much changes.

A viewer follows by the number of an edition, and has no queue of its own. A viewer who is more than `KEPT` editions
behind has to start anew with the whole picture.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from gangline.failures import described
from gangline.page.drawing import Drawer
from gangline.page.tables import written
from gangline.page.taking import TakenPart

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between two looks, at least."""
SHARE = 100
LINGER = 30.0
"""Seconds for which the picture is kept up after the last request."""
REST = 30.0
"""Seconds between two looks, at least, of a feed that rests."""
KEEP = 8 * 3600.0
"""Seconds for which a feed rests after the last request: a day's work."""
KEPT = 128
"""Editions that are kept, at most."""
MOST_BYTES = 8 * 1024 * 1024
"""Bytes of the changes that are kept, at most."""

Look = Callable[[], Awaitable[TakenPart]]


@dataclass(frozen=True, slots=True, eq=False)
class Edition:
    """The picture at one time, and what has changed since the edition before."""

    number: int
    namespaces: frozenset[str]
    """The namespaces of which the picture shows something."""
    changes: Mapping[str, bytes]
    """By namespace: the changes as JSON."""


class Feed:
    """The editions of the picture. All methods are called in one event loop.

    `looking` is called when the feed starts to work, and returns the function that is called for each look.
    """

    def __init__(
        self, looking: Callable[[], Look], clock: Callable[[], float] = time.monotonic, pause: float = PAUSE
    ) -> None:
        self._looking = looking
        self._clock = clock
        self._pause = pause
        self._task: asyncio.Task[None] | None = None
        self._asked = -math.inf
        self._wanted = asyncio.Event()
        """Set when somebody asks."""
        self._followers = 0
        self._forget()

    def _forget(self) -> None:
        self._drawer = Drawer()
        self._fault: Exception | None = None
        self._news = asyncio.Event()
        self._drop_editions()

    def _drop_editions(self) -> None:
        """The next viewer waits for a new edition."""
        self.epoch = secrets.token_hex(4)
        """Numbers of editions are compared only within one epoch."""
        self._editions: deque[Edition] = deque()
        self._bytes = 0
        self._whole: dict[str, bytes] = {}

    @property
    def is_working(self) -> bool:
        """Whether the picture is kept up, also while the feed rests."""
        return self._task is not None

    @property
    def _is_wanted(self) -> bool:
        return self._clock() - self._asked < LINGER

    async def newest(self) -> Edition:
        """The newest edition; the first viewer waits until there is one. Raises the error of a look that failed."""
        self.look_on()
        while not self._editions:
            await self._news.wait()
            if self._fault is not None:
                raise self._fault
        return self._editions[-1]

    def look_on(self) -> None:
        """Note that somebody looks now, and start to make the picture if the feed does not work."""
        self._asked = self._clock()
        self._wanted.set()
        if self._task is None:
            self._forget()
            self._task = asyncio.get_running_loop().create_task(self._work())

    def whole(self, namespace: str) -> bytes:
        """The tables of a namespace in the newest edition, as JSON."""
        found = self._whole.get(namespace)
        if found is None:
            found = self._whole[namespace] = written(self._drawer.tables.rows(namespace))
        return found

    def uid_of(self, namespace: str, name: str) -> str | None:
        """The UID of a pod in the newest edition."""
        return self._drawer.uid_of(namespace, name)

    def has_unit(self, namespace: str, uid: str) -> bool:
        """Whether a unit of the namespace waits in the newest edition."""
        return self._drawer.has_unit(namespace, uid)

    def edition(self, number: int) -> Edition | None:
        """An edition that is kept."""
        first = self._editions[0].number if self._editions else 0
        return self._editions[number - first] if 0 <= number - first < len(self._editions) else None

    async def after(self, number: int) -> Edition | None:
        """The edition after this one, as soon as there is one; None if editions between them are no longer kept."""
        while True:
            if self._fault is not None:
                return None
            if not self._editions or not self._editions[0].number - 1 <= number <= self._editions[-1].number:
                return None
            if number < self._editions[-1].number:
                return self.edition(number + 1)
            self._followers += 1
            try:
                await self._news.wait()
            finally:
                self._followers -= 1

    @property
    def followers(self) -> int:
        """The number of viewers that wait for the next edition."""
        return self._followers

    def close(self) -> None:
        """Stop making the picture. Viewers who follow have to start anew."""
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        look, number, seconds = self._looking(), 0, 0.0
        try:
            while self._clock() - self._asked < KEEP:
                taken = await look()
                began = time.thread_time()
                self._drawer.draw(taken)
                is_complete = taken.is_all or bool(self._editions)  # the first edition has everything
                if is_complete:
                    number += self._publish(number + 1)
                seconds += taken.seconds + time.thread_time() - began
                await self._wait(seconds if is_complete else None)
                seconds = 0.0 if is_complete else seconds
        except Exception as error:  # the page alone fails, and the next viewer tries again
            log.exception("the page cannot be drawn: %s", described(error))
            self._fault = error
        finally:
            self._task = None
            self._ring()
            self._drawer, self._whole = Drawer(), {}
            if self._fault is None:
                self._forget()

    async def _wait(self, seconds: float | None) -> None:
        """Wait until the next look, after looks that took so many seconds; None if more of the picture is to be taken
        at once. A feed that rests goes on as soon as somebody asks.
        """
        if seconds is None:
            await asyncio.sleep(0)
        elif self._is_wanted:
            await asyncio.sleep(max(self._pause, SHARE * seconds))
        else:
            self._wanted.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), max(REST, SHARE * seconds))

    def _publish(self, number: int) -> bool:
        """Make an edition of what has changed; says whether there is one. While nobody looks, no edition is kept."""
        tables = self._drawer.tables
        changed = tables.changes()
        if not self._is_wanted:
            self._drop_editions()
            return False
        follows = bool(self._editions)  # nobody has an edition before the first one
        if follows and not changed:
            return False
        for namespace in changed:
            self._whole.pop(namespace, None)
        changes = {namespace: written(each) for namespace, each in changed.items()} if follows else {}
        edition = Edition(number, tables.namespaces, changes)
        self._editions.append(edition)
        self._bytes += _size(edition)
        while len(self._editions) > KEPT or (self._bytes > MOST_BYTES and len(self._editions) > 1):
            self._bytes -= _size(self._editions.popleft())
        self._ring()
        return True

    def _ring(self) -> None:
        """Wake everybody who waits for the next edition."""
        news, self._news = self._news, asyncio.Event()
        news.set()


def _size(edition: Edition) -> int:
    return sum(map(len, edition.changes.values()))
