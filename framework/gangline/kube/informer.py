"""Tells a handler of every object of one kind and of every change: lists the objects, then watches.

Rules
- The handler sees the latest state of every object, and a removal of every deleted object, whatever
  happened in between. An object that was created again under its name is removed, then upserted.
- Lists are read page by page, so that the objects do not take memory and time all at once.
- Only identities and resourceVersions are kept here; the objects belong to the handler.
- An event that is older than the state that the handler has seen of its object is passed over. After a list the
  versions of the list count, also where they are lower than those before: etcd may have been restored.
- An object that cannot be decoded is passed to `on_unreadable`; the handler keeps the last readable state. When the
  object is deleted the handler is told so, though it may never have seen the object.
- `on_reached` gets each resourceVersion up to which the handler has seen everything; "" when nothing is followed.
- Only a cancellation ends `run`. An exception of the handler is logged with its traceback and concerns only this
  object; after any other exception all objects are listed again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Container, Coroutine, Iterable
from contextlib import aclosing
from random import Random
from typing import Any, Generic, cast

from gangline.errors import ApiError, Forbidden, Gone, Invalid, Unavailable, WatchFailed
from gangline.kube.complaints import Complaints
from gangline.kube.handing_over import number
from gangline.kube.interface import Client, EventType, Handler, Listing, Unreadable, WatchEvent
from gangline.kube.resources import Resource, T
from gangline.model import ObjectMeta

log = logging.getLogger(__name__)

BREATH = 64  # objects handled before other tasks get a turn
PAGE = 500  # objects asked for at once; what kubectl asks for
BACKOFF = (0.5, 30.0)  # seconds after the first failure, and at most
SHORT_WATCH = 1.0  # seconds; a watch that ends sooner without an event counts as a failure
SHORT_WATCHES = 4  # so many in a row, and the objects are listed: such watches may hide what happens

Key = tuple[str, str]
"""Namespace and name of an object."""


class Informer(Generic[T]):
    """Follows all objects of one resource, or those that the selectors choose.

    ``synced`` is set while the handler has seen at least one whole list; without ``is_needed`` also where that is
    forbidden. The counts ``relists``, ``reconnects`` and ``events`` only grow.
    """

    resource_version = ""
    last_seen = 0
    """The highest resourceVersion of an object that the handler has seen; 0 if there was none."""
    relists = 0
    reconnects = 0
    events = 0

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        handler: Handler[T],
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        on_unreadable: Callable[[Unreadable], None] = lambda unreadable: None,
        on_reached: Callable[[str], None] = lambda version: None,
        is_needed: bool = True,
        random: Random | None = None,
    ) -> None:
        self.synced = asyncio.Event()
        self._client = client
        self.resource = resource
        self._served = resource  # in the version that the server has
        self._handler = handler
        self._namespace = namespace
        self._field_selector = field_selector
        self._label_selector = label_selector
        self._sleep = sleep
        self._clock = clock
        self._on_unreadable = on_unreadable
        self._on_reached = on_reached
        self._is_needed = is_needed
        self._random = random or Random()
        self._known: dict[Key, tuple[str, str]] = {}  # uid, and version if it could be read
        self._unreadable: dict[Key, int] = {}  # versions of objects that could not be read
        self._must_list = True  # else go on watching
        self._asked = 0  # how often for a new list
        self._failures = 0
        self._complaints = Complaints(resource.key)
        self._watching: asyncio.Timeout | None = None
        self._resting: asyncio.Future[None] | None = None
        self._moved = asyncio.Event()  # the handler has seen more
        self._reached = 0  # resource_version as a number

    async def run(self) -> None:
        """Follows the resource until it is cancelled."""
        while True:
            if delay := await self.step():
                await self._rest(delay)

    async def _rest(self, seconds: float) -> None:
        """Sleep after a failure. `resume` ends the sleep, because the cause of the failure may be long over."""
        resting = self._resting = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait((resting,))
        finally:
            self._resting = None
            resting.cancel()

    def relist(self) -> None:
        """Asks for a new list, at once: ``synced`` is unset until the handler has seen it."""
        self.synced.clear()
        self._must_list = True
        self._asked += 1
        self.resume()

    def resume(self) -> None:
        """Goes on at once, over a new connection: the present connection may be dead without a sign of it."""
        self._failures = 0
        if self._resting is not None:
            self._resting.cancel()
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(0)

    def has_reached(self, version: int) -> bool:
        """Whether the handler has seen everything up to a resourceVersion."""
        return self._reached >= version

    async def reached(self, version: int) -> None:
        """Wait until the handler has seen everything up to a resourceVersion."""
        while not self.has_reached(version):
            await self.moved()

    async def moved(self) -> None:
        """Wait until the handler has seen more."""
        self._moved.clear()
        await self._moved.wait()

    @property
    def is_whole(self) -> bool:
        """Whether the informer follows all objects of its resource."""
        return not (self._namespace or self._label_selector or self._field_selector)

    @property
    def known(self) -> Collection[Key]:
        """The objects that are there."""
        return self._known.keys()

    def version_of(self, namespace: str, name: str) -> int | None:
        """The resourceVersion of an object that is there, 0 if it is no number; None if there is no such object."""
        key = (namespace if self.resource.namespaced else "", name)
        known = self._known.get(key)
        return None if known is None else number(known[1]) or self._unreadable.get(key, 0)

    def leave(self, kept: Container[Key]) -> None:
        """Tell the handler that all objects are gone, except those in `kept`: nobody follows the resource any more."""
        for key in list(self._known):
            if key in kept:
                del self._known[key]
                self._unreadable.pop(key, None)
            else:
                self._remove(*key)
        self._must_list = True
        self._on_reached("")
        self.synced.set()

    async def step(self) -> float:
        """One list, or one watch to its end; returns the seconds to wait before the next step."""
        started, events = self._clock(), self.events
        try:
            if self._must_list:
                await self._list()
                return 0.0
            if await self._watch():
                return 0.0
        except ApiError as error:
            return self._failed(error)
        except Exception as error:
            return self._broke(error)
        if self.events == events and self._clock() - started < SHORT_WATCH:
            return self._ended_at_once()
        self._complaints.end()
        self._failures = 0
        return 0.0

    async def _list(self) -> None:
        """Takes in the whole list, page by page, and removes the objects that the list lacks."""
        self.relists += 1
        asked = self._asked
        missing = set(self._known)
        invalid: set[str] = set()
        listing = await self._page()
        while True:
            coming = asyncio.ensure_future(self._page(listing.more)) if listing.more else None
            try:
                if missing:  # not while the first list is read
                    missing.difference_update([self._key(obj.metadata) for obj in listing.items])
                invalid.update(each.metadata.uid for each in listing.invalid)
                if coming is None:
                    self._remove_missing(missing, invalid)
                await self._take(listing)
                if coming is None:
                    break
                listing = await coming
            finally:
                if coming is not None:
                    coming.cancel()
        self._reach(listing.resource_version, number(listing.resource_version))
        if asked == self._asked:  # else somebody has asked for a new list after this one began
            self._must_list = False
            self.synced.set()

    async def _page(self, more: str = "") -> Listing[T]:
        """The first page of the list, or the one after `more`; it is read while the page before is taken in."""
        page = await self._client.list(
            self._served,
            namespace=self._namespace,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
            limit=PAGE,
            more=more,
        )
        if more and page.more == more:  # the list would have no end
            raise Unavailable(0, "Garbled", f"{self.resource.plural}: a page of the list names itself as the next one")
        self._complaints.end_of_list()
        return page

    async def _take(self, page: Listing[T]) -> None:
        for unreadable in page.invalid:
            self._set_aside(unreadable)
        left = page.items[::-1]
        page.items.clear()  # so that each object is freed while the processor has it at hand: a tenth of the start
        for count in range(1, len(left) + 1):
            obj = left.pop()
            self.last_seen = max(self.last_seen, number(obj.metadata.resource_version))
            self._upsert(self._key(obj.metadata), obj)
            if not count % BREATH:
                await asyncio.sleep(0)

    async def _watch(self) -> bool:
        """Handles events until the stream ends or is cut short; says whether it was."""
        stream = self._client.watch(
            self._served,
            resource_version=self.resource_version,
            namespace=self._namespace,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
        )
        self.reconnects += 1
        try:
            async with (
                asyncio.timeout(None) as self._watching,
                aclosing(cast("AsyncGenerator[WatchEvent[T], None]", stream)) as events,
            ):
                async for event in events:
                    self._handle(event)
                    if not self.events % BREATH:
                        await asyncio.sleep(0)
        except TimeoutError:
            if self._watching is None or not self._watching.expired():
                raise
            self._complaints.end()
            return True
        finally:
            self._watching = None
        return False

    def _handle(self, event: WatchEvent[T]) -> None:
        self.events += 1
        self._failures = 0
        unreadable, obj, version = event.unreadable, event.object, number(event.resource_version)
        if unreadable is not None and not self._is_late(self._key(unreadable.metadata), unreadable.metadata):
            self._set_aside(unreadable)
        if obj is not None:
            key, is_deleted = self._key(obj.metadata), event.type is EventType.DELETED
            if not self._is_late(key, obj.metadata, is_deleted):
                if is_deleted:
                    self._remove(*key)
                else:
                    self._upsert(key, obj)
                self.last_seen = version
        if event.resource_version and version >= self._reached:
            self._reach(event.resource_version, version)

    def _is_late(self, key: Key, metadata: ObjectMeta, is_deleted: bool = False) -> bool:
        """Whether an event is older than what is known of the object with its name. A UID that was deleted never comes
        back, so the deletion of the known object is never late.
        """
        uid, version = self._known.get(key, ("", ""))
        if is_deleted and uid == metadata.uid:
            return False
        if not is_deleted and len(version) == len(metadata.resource_version) and version <= metadata.resource_version:
            return False  # numbers of equal length, nearly always: to compare the texts takes a tenth of the time
        newest = number(version) or self._unreadable.get(key, 0)
        if is_deleted and uid and not newest:  # the object with this UID could not be read, but it is there
            return True
        return 0 < number(metadata.resource_version) < newest

    def _reach(self, version: str, reached: int) -> None:
        self.resource_version, self._reached = version, reached
        self._on_reached(version)
        self._moved.set()

    def _key(self, metadata: ObjectMeta) -> Key:
        """Namespace and name; a cluster-wide kind has no namespace, whatever an object of it says."""
        return (metadata.namespace if self.resource.namespaced else "", metadata.name)

    def _set_aside(self, unreadable: Unreadable) -> None:
        """The object exists, so it is noted as known, but the handler has not seen its version."""
        metadata = unreadable.metadata
        key = self._key(metadata)
        known = self._known.get(key)
        if known is not None and metadata.uid and known[0] != metadata.uid:
            self._remove(*key)
            known = None
        if metadata.name:
            self._known[key] = (metadata.uid or (known[0] if known else ""), "")
            self._unreadable[key] = number(metadata.resource_version)
        self._on_unreadable(unreadable)

    def _upsert(self, key: Key, obj: T) -> None:
        metadata = obj.metadata
        identity = (metadata.uid, metadata.resource_version)
        if self._unreadable:
            self._unreadable.pop(key, None)
        known = self._known.get(key)
        if known == identity:
            return
        if known is not None and known[0] != metadata.uid:
            self._remove(*key)
        self._known[key] = identity
        try:
            self._handler.upsert(obj)
        except Exception as error:
            self._report(f"{metadata.namespace}/{metadata.name}", error)

    def _remove(self, namespace: str, name: str) -> None:
        known = self._known.pop((namespace, name), None)
        self._unreadable.pop((namespace, name), None)
        if known is not None:
            try:
                self._handler.remove(namespace, name, known[0])
            except Exception as error:
                self._report(f"{namespace}/{name}", error)

    def _report(self, name: str, error: Exception) -> None:
        """A handler failed on one object; other objects are not affected."""
        log.error("%s %s could not be used: %r", self.resource.kind, name.lstrip("/"), error, exc_info=error)

    def _remove_missing(self, missing: Iterable[Key], invalid: set[str]) -> None:
        """Removes the objects that the list lacks; objects that could not be decoded exist, so they stay."""
        for key in missing:
            if key in self._known and self._known[key][0] not in invalid:
                self._remove(*key)

    def _failed(self, error: ApiError) -> float:
        """Decides what to do after an error, and when: watch further, or list again. The server's wait counts, too."""
        if isinstance(error, Forbidden) and not self._is_needed:
            self.synced.set()
        was_watching, self._must_list = not self._must_list, self._must_list or _calls_for_a_list(error)
        if not isinstance(error, WatchFailed) and _calls_for_a_list(error):
            if not self._failures:
                self._failures = 1
                return 0.0
        else:
            self._complaints.of(error, is_of_watch=was_watching)
        return max(self._back_off(), error.retry_after or 0.0)

    def _ended_at_once(self) -> float:
        """A watch was over at once; one that a restarting server ends is, too, but not several in a row."""
        if self._failures >= SHORT_WATCHES:
            self._complaints.of_short_watches()
            self._must_list = True
        return self._back_off()

    def _broke(self, error: Exception) -> float:
        """After a fault it is unknown which objects the handler has seen, so all are listed again."""
        log.error("following %s went wrong: %r", self.resource.key, error, exc_info=error)
        self._known = {key: (uid, "") for key, (uid, _) in self._known.items()}
        self._must_list = True
        return self._back_off()

    def _back_off(self) -> float:
        """Seconds to wait: they double, and half of them are random."""
        first, most = BACKOFF
        delay: float = min(first * 2 ** min(self._failures, 16), most)
        self._failures += 1
        return delay * self._random.uniform(0.5, 1.0)


def _calls_for_a_list(error: ApiError) -> bool:
    """Whether a watch from the same version would fail again."""
    return isinstance(error, Gone | Invalid | WatchFailed) or "Too large resource version" in error.message
