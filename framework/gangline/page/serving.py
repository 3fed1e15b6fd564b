"""Serves the page: its files, the picture as a whole, and the changes of the picture as server-sent events.

Rules
- The page needs nothing from other servers, and may load nothing from them: see `POLICY`.
- A stream of events ends after `STREAM` seconds, as every request has to end, and the browser asks again from its
  position. Each request is authorized anew, so a user who loses a right soon sees no more.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from aiohttp import web

from gangline.errors import AskLater, GanglineError
from gangline.page.bundling import bundled
from gangline.page.feed import Edition, Feed
from gangline.page.sight import PageViewer, Position, hash_of, position_of, seen_by
from gangline.page.tables import EVERYBODY, joined
from gangline.process.guarding import Handler
from gangline.process.hosts import is_from_elsewhere
from gangline.telemetry.encodings import gzip_accepted

PATH = "/ui"
STREAM = 20.0
"""Seconds for which one request for events is answered."""
RETRY = 200
"""Milliseconds after which the browser asks again."""
MOST_STREAMS, MOST_OF_ONE = 64, 16
"""Streams at a time, at most: of all viewers together, and of one viewer."""
MOST_QUESTIONS_OF_ONE = 2
"""At most so many questions of one viewer about remedies are answered at a time, so that other viewers can ask, too."""
MOST_STATES, MOST_STATES_OF_ONE = 16, 4
"""Whole pictures that are on their way at a time, at most: to all viewers together, and to one. Others wait, because
each picture takes memory until its viewer has read it.
"""
PATIENCE = 3.0
"""Seconds that a viewer has to read a picture while others wait for theirs."""
PIECE = 64 * 1024
"""Bytes of an answer that are handed to a connection at a time; a slow reader holds up the rest."""
PAUSE = 5
"""Seconds after which to ask again, if nothing else is known."""
BEAT = 5.0
"""Seconds after which a stream without news sends an empty line, so that a viewer who has gone is noticed."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every answer."""
SCRIPT = "page.js"
"""All modules of the page in one file."""
FILES = {"style.css": "text/css", "icon.svg": "image/svg+xml", SCRIPT: "text/javascript"}
"""The files that the page loads, each with its content type."""

ViewerOf = Callable[[web.Request], PageViewer]
DecisionOf = Callable[[str], Mapping[str, Any] | None]
"""Why a pod is on its node, by the UID of the pod; None if it is unknown."""


class TriedChanges(Protocol):
    """Changes that would let a unit start."""

    @property
    def namespaces(self) -> Collection[str]:
        """The namespaces of the pods that are named."""
        ...

    def told(self, seen: Collection[str]) -> bytes:
        """As JSON, with the names of pods of the namespaces that the viewer may see."""
        ...


RemediesOf = Callable[[str, str], Awaitable[TriedChanges | None]]
"""What would let a unit start, by the unit's identity and the name of the viewer; None if the unit waits no longer.

Raises GanglineError: AskLater if the viewer asks too much. It is cancelled if the viewer goes.
"""


async def _no_remedies(unit: str, viewer: str) -> None:
    """Nobody tries changes."""


def page(
    feed: Feed,
    viewer_of: ViewerOf,
    decision_of: DecisionOf = lambda uid: None,
    stream: float = STREAM,
    remedies_of: RemediesOf = _no_remedies,
) -> Mapping[str, Handler]:
    """The handlers by their paths; ``viewer_of`` says who has sent a request, ``stream`` how long events are sent."""
    pages = _Pages(feed, viewer_of, decision_of, stream, remedies_of)
    return {
        PATH: pages.index,
        **{f"{PATH}/{name}": _file(name, kind) for name, kind in FILES.items()},
        f"{PATH}/state": _for_the_page(pages.state),
        f"{PATH}/events": _for_the_page(pages.events),
        f"{PATH}/why": _for_the_page(pages.why),
        f"{PATH}/remedies": _for_the_page(pages.remedies),
    }


def _for_the_page(handler: Handler) -> Handler:
    """The handler without requests that the page does not send: those of pages of other sites, and those with a body.

    While a body is on its way, nobody would notice that its sender has gone.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        if is_from_elsewhere(request):
            return web.Response(status=403, text="asked by a page of another site\n", headers=HEADERS)
        if request.body_exists:
            return web.Response(status=400, text="a request here has no body\n", headers=HEADERS)
        return await handler(request)

    return handle


def _file(name: str, kind: str) -> Handler:
    """The handler of a file, which is read and compressed now: a first viewer waits for the picture alone."""
    _compressed(name)

    async def handle(request: web.Request) -> web.StreamResponse:
        headers = {**HEADERS, "Vary": "Accept-Encoding"}
        body = _read(name)
        if gzip_accepted(request.headers.get("Accept-Encoding", "")):
            body, headers["Content-Encoding"] = _compressed(name), "gzip"
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)

    return handle


@cache
def _read(name: str) -> bytes:
    assets = resources.files("gangline.page") / "assets"
    if name == SCRIPT:
        scripts = [each for each in assets.iterdir() if each.name.endswith(".js")]
        return bundled({each.name.removesuffix(".js"): each.read_text("utf-8") for each in scripts}).encode()
    return (assets / name).read_bytes()


@cache
def _compressed(name: str) -> bytes:
    return gzip.compress(_read(name), mtime=0)


class _Pages:
    """The handlers of the page; each request is answered for its own viewer."""

    def __init__(
        self, feed: Feed, viewer_of: ViewerOf, decision_of: DecisionOf, stream: float, remedies_of: RemediesOf
    ) -> None:
        self._feed = feed
        self._remedies_of = remedies_of
        self._decision_of = decision_of
        self._seconds = stream
        self._viewer_of = viewer_of
        self._streams: Counter[str] = Counter()
        self._questions: Counter[str] = Counter()
        self._states: Counter[str] = Counter()
        self._room = asyncio.Semaphore(MOST_STATES)
        self._waiting = 0
        """The viewers who wait until there is room for their pictures."""
        self._index = _file("index.html", "text/html")

    async def index(self, request: web.Request) -> web.StreamResponse:
        """The page itself; the picture is made while the browser loads the rest."""
        self._feed.look_on()
        return await self._index(request)

    async def state(self, request: web.Request) -> web.StreamResponse:
        """The newest edition as a whole."""
        viewer = self._viewer_of(request)
        if self._states[viewer.name] >= MOST_STATES_OF_ONE:
            return _too_much(AskLater("you ask too much at a time", PAUSE))
        with _counted(self._states, viewer):
            self._waiting += 1
            try:
                await self._room.acquire()
            finally:
                self._waiting -= 1
            try:
                return await self._state(request, viewer)
            finally:
                self._room.release()

    @contextmanager
    def _giving_way(self, request: web.Request) -> Iterator[None]:
        """Close the connection if the block takes longer than PATIENCE while others wait."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(PATIENCE, lambda: look())

        def look() -> None:
            nonlocal timer
            if self._waiting and request.transport is not None:
                request.transport.abort()
            else:
                timer = loop.call_later(PATIENCE / 4, look)

        try:
            yield
        finally:
            timer.cancel()

    async def _state(self, request: web.Request, viewer: PageViewer) -> web.StreamResponse:
        try:
            edition, seen = await self._seen(viewer)
        except GanglineError:
            return _refused("the API server does not say what you may see")
        body = joined(str(self._position(edition, seen)), {name: self._feed.whole(name) for name in seen})
        headers = {"Vary": "Accept-Encoding"}
        if gzip_accepted(request.headers.get("Accept-Encoding", "")):
            body = await asyncio.to_thread(gzip.compress, body, 1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        with self._giving_way(request):
            return await _sent(request, body, headers)

    async def _seen(self, viewer: PageViewer) -> tuple[Edition, frozenset[str]]:
        """The newest edition, and the namespaces that a viewer may see of it. A namespace that is created meanwhile is
        left out; then the sight in the viewer's position is out of date, and the viewer starts anew.
        """
        seen = await seen_by(viewer, (await self._feed.newest()).namespaces)
        edition = await self._feed.newest()
        return edition, seen & (edition.namespaces | {EVERYBODY})

    def _position(self, edition: Edition, seen: frozenset[str]) -> Position:
        return Position(self._feed.epoch, edition.number, hash_of(seen))

    async def why(self, request: web.Request) -> web.StreamResponse:
        """The decision that put a pod on its node, or null: ``?namespace=NAMESPACE&pod=NAME``."""
        namespace, name = request.query.get("namespace", ""), request.query.get("pod", "")
        try:
            _, seen = await self._seen(self._viewer_of(request))
        except GanglineError:
            return _refused("the API server does not say what you may see")
        uid = self._feed.uid_of(namespace, name) if namespace in seen else None
        found = self._decision_of(uid) if uid is not None else None
        return _json(msgspec.json.encode(found))

    async def remedies(self, request: web.Request) -> web.StreamResponse:
        """What would let a unit start, or null if it waits no longer: ``?namespace=NAMESPACE&unit=IDENTITY``."""
        namespace, unit = request.query.get("namespace", ""), request.query.get("unit", "")
        viewer = self._viewer_of(request)
        if request.method == "HEAD":
            return _json(b"")
        try:
            _, seen = await self._seen(viewer)
            if namespace not in seen or not self._feed.has_unit(namespace, unit):
                return _json(b"null")
        except GanglineError:
            return _refused("the API server does not say what you may see")
        if self._questions[viewer.name] >= MOST_QUESTIONS_OF_ONE:
            return _too_much(AskLater("you ask too much at a time", PAUSE))
        try:
            with _counted(self._questions, viewer):
                found = await self._remedies_of(unit, viewer.name)
                seen = await seen_by(viewer, {namespace, *(found.namespaces if found is not None else ())})
                return await _sent(request, found.told(seen) if found is not None and namespace in seen else b"null")
        except AskLater as error:
            return _too_much(error)
        except GanglineError as error:
            return _refused(str(error))

    async def events(self, request: web.Request) -> web.StreamResponse:
        """The changes after a position, which is in the header Last-Event-ID or in ``?after=``."""
        viewer = self._viewer_of(request)
        if self._streams.total() >= MOST_STREAMS or self._streams[viewer.name] >= MOST_OF_ONE:
            return _refused("too many viewers")
        with _counted(self._streams, viewer):
            return await self._stream(request, viewer)

    async def _stream(self, request: web.Request, viewer: PageViewer) -> web.StreamResponse:
        asked = position_of(request.headers.get("Last-Event-ID") or request.query.get("after", ""))
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        try:
            found = await self._resumed(viewer, asked)
        except GanglineError:
            return _refused("the API server does not say what you may see")
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        if found is None:
            await response.write(_RESET)
            return response
        await response.write(b"retry: %d\nid: %s\n\n" % (RETRY, str(asked).encode()))
        try:
            async with asyncio.timeout(self._seconds):
                await self._follow(response, viewer, *found)
        except TimeoutError:
            pass
        except GanglineError:
            await response.write(_RESET)
        return response

    async def _resumed(self, viewer: PageViewer, asked: Position | None) -> tuple[Edition, frozenset[str]] | None:
        """The edition at a position, and the namespaces in this edition that the viewer may see.

        None if the viewer needs the whole picture instead.
        """
        await self._feed.newest()
        if asked is None or asked.epoch != self._feed.epoch:
            return None
        edition = self._feed.edition(asked.number)
        if edition is None:
            return None
        seen = await seen_by(viewer, edition.namespaces)
        return (edition, seen) if asked.sight == hash_of(seen) else None

    async def _follow(
        self, response: web.StreamResponse, viewer: PageViewer, here: Edition, saw: frozenset[str]
    ) -> None:
        """Send one edition after the other, until cancelled or until the viewer has to start anew."""
        while True:
            self._feed.look_on()
            try:
                async with asyncio.timeout(BEAT):
                    edition = await self._feed.after(here.number)
            except TimeoutError:
                await response.write(b":\n\n")
                continue
            seen = await seen_by(viewer, edition.namespaces) if edition is not None else saw
            if edition is None or seen & here.namespaces != saw & edition.namespaces:
                await response.write(_RESET)
                return
            news = {name: part for name, part in edition.changes.items() if name in seen or name in saw}
            position = str(self._position(edition, seen))
            await response.write(b"id: %s\ndata: %s\n\n" % (position.encode(), joined(position, news)))
            here, saw = edition, seen


_RESET = b"event: reset\ndata: {}\n\n"
"""The event after which a browser asks for the whole picture."""


@contextmanager
def _counted(numbers: Counter[str], viewer: PageViewer) -> Iterator[None]:
    """Count one more for the viewer until the block ends; a viewer without any is dropped."""
    numbers[viewer.name] += 1
    try:
        yield
    finally:
        numbers[viewer.name] -= 1
        if not numbers[viewer.name]:
            del numbers[viewer.name]


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json", headers=HEADERS)


async def _sent(
    request: web.Request, body: bytes, headers: Mapping[str, str] = MappingProxyType({})
) -> web.StreamResponse:
    """An answer with a long body of JSON, when the client has read it, but for a few pieces."""
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": "application/json", **headers})
    response.content_length = len(body)
    await response.prepare(request)
    if request.method != "HEAD":
        for start in range(0, len(body), PIECE):
            await response.write(body[start : start + PIECE])
    return response


def _refused(why: str) -> web.Response:
    return web.Response(status=503, text=f"{why}\n", headers={**HEADERS, "Retry-After": str(PAUSE)})


def _too_much(error: AskLater) -> web.Response:
    return web.Response(status=429, text=f"{error}\n", headers={**HEADERS, "Retry-After": str(error.seconds)})
