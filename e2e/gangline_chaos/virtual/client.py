"""The client of a scheduler whose requests meet a fate: refused, lost, late, unanswered, or the last of the process.

Rules:
- A request that is on its way arrives, though its process is dead by then; at the latest `STUCK_S` after it was sent.
- Whether a leader may write is checked when the request is sent, as the client over HTTP does.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NoReturn

from gangline.errors import ApiError, Conflict, TooManyRequests, Unavailable
from gangline.kube.interface import WatchEvent
from gangline.kube.outbox import Outbox
from gangline.kube.resources import EVENTS, Resource, T
from gangline.kube.writing import check
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock
from gangline.simulate.client import Answer

TIMEOUT_S = 30.0
"""Seconds after which the client gives up a request."""
STUCK_S = 55.0
"""The most seconds for which a request may be on its way: an API server gives up after a minute."""
HEALED_S = 1.0
"""Seconds within which a stream goes on after its wire is healed."""
LATENCY = {
    verb: seconds
    for seconds, verbs in (
        (0.002, ("list", "watch", "get")),
        (0.004, ("create", "replace", "patch", "apply", "delete", "evict")),
        (0.006, ("bind",)),
    )
    for verb in verbs
}
WRITES = frozenset(("create", "replace", "patch", "apply", "delete", "evict", "bind"))
Act = Callable[[], Any]


class FateKind(enum.Enum):
    """What becomes of a write."""

    DIES_BEFORE = "the process dies, and the request is not sent"
    DIES_AFTER = "the request is carried out, and the process dies before the answer"
    DIES_LATE = "the process dies, and the request is carried out later"
    LOST = "the request is lost: no answer in time"
    LATE = "no answer in time, and the request is carried out later"
    UNANSWERED = "the request is carried out: no answer in time"
    RESET = "the connection breaks before the request is carried out"
    RESET_AFTER = "the request is carried out, and the connection breaks"
    CONFLICT = "409"
    BUSY = "429"
    ERROR = "500"
    ERROR_AFTER = "the request is carried out, and answered by 504"
    UNAVAILABLE = "503"


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a write, and after how many seconds a late one is carried out."""

    kind: FateKind
    seconds: float = STUCK_S


class Wire:
    """The connections of one scheduler, which may be cut for a time."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._until = 0.0
        self.delivers = False
        """Whether requests that are sent while the wire is cut arrive afterwards; otherwise their connections break."""

    def cut(self, seconds: float, delivers: bool) -> None:
        """Nothing gets through for so long."""
        self._until = self._clock.monotonic() + seconds
        self.delivers = delivers

    def heal(self) -> None:
        """All gets through from now on."""
        self._until = 0.0

    @property
    def left(self) -> float:
        """For how many seconds it stays cut."""
        return max(0.0, self._until - self._clock.monotonic())


class FatefulClient(SimulatedClient):
    """The client of one process. `meets` returns the fate of the next write, if it has one; `dies` is called if the
    process dies of it.
    """

    def __init__(
        self,
        server: InMemoryServer,
        wire: Wire,
        *,
        outbox: Outbox | None = None,
        meets: Callable[[], Fate | None] = lambda: None,
        dies: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(server, latency=LATENCY)
        self._wire = wire
        self._outbox = outbox or Outbox()
        self._meets = meets
        self._dies = dies

    def end(self) -> None:
        """The process is dead: it sends nothing more."""
        self._closed = True
        for watch in self._watches:
            watch.close()

    async def watch(self, resource: Resource[T], **selected: Any) -> AsyncIterator[WatchEvent[T]]:
        """See the interface."""
        stream: Any = super().watch(resource, **selected)
        async with aclosing(stream) as events:
            async for event in events:
                was_cut = False
                while left := self._wire.left:
                    was_cut = True
                    await asyncio.sleep(min(left, HEALED_S))  # the wire may be healed earlier than planned
                if was_cut and not self._wire.delivers:
                    return
                yield event

    async def _call(self, verb: str, resource: Resource[Any], name: str, act: Callable[[], Answer]) -> Answer:
        if verb not in WRITES:
            await self._wait_for_the_wire()
            return await super()._call(verb, resource, name, act)
        check(self._outbox.may_send)
        with self._outbox:
            return await self._write(verb, resource, name, act)

    async def _write(self, verb: str, resource: Resource[Any], name: str, act: Callable[[], Answer]) -> Answer:
        if left := self._wire.left:
            return await self._sent_meanwhile(left, act)
        fate = self._meets() if resource != EVENTS else None
        return await (super()._call(verb, resource, name, act) if fate is None else self._suffer(fate, act))

    async def _wait_for_the_wire(self) -> None:
        while left := self._wire.left:
            await asyncio.sleep(min(left, TIMEOUT_S))
            if left > TIMEOUT_S:
                raise Unavailable(0, "Timeout", "no answer in time")
            if not self._wire.delivers:
                raise Unavailable(0, "ConnectionFailed", "the connection broke")

    async def _sent_meanwhile(self, left: float, act: Callable[[], Answer]) -> Answer:
        """A write over a wire that is cut."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        if self._wire.delivers and left <= STUCK_S and not self._closed:
            loop.call_later(left, _answer, answer, act)
        try:
            async with asyncio.timeout(min(left, TIMEOUT_S) + LATENCY["create"]):
                return await answer
        except TimeoutError:
            raise Unavailable(0, "Timeout", "no answer in time") from None

    async def _suffer(self, fate: Fate, act: Act) -> Any:
        kind = fate.kind
        if kind in (FateKind.CONFLICT, FateKind.BUSY, FateKind.ERROR, FateKind.UNAVAILABLE, FateKind.RESET):
            await asyncio.sleep(LATENCY["create"])
            raise _REFUSALS[kind]
        await asyncio.sleep(LATENCY["create"] / 2)
        if self._closed:
            raise Unavailable(0, "ConnectionFailed", "the client is closed")
        if kind in (FateKind.DIES_LATE, FateKind.LATE):
            asyncio.get_running_loop().call_later(fate.seconds, _do, act)
        elif kind not in (FateKind.DIES_BEFORE, FateKind.LOST):
            _do(act)
        await self._end_of(kind)

    async def _end_of(self, kind: FateKind) -> NoReturn:
        """How a request ends that gets no proper answer."""
        if kind in (FateKind.DIES_BEFORE, FateKind.DIES_AFTER, FateKind.DIES_LATE):
            self.end()
            self._dies()
            await asyncio.Event().wait()  # until the process is gone
        if kind in _REFUSALS:
            raise _REFUSALS[kind]
        await asyncio.sleep(TIMEOUT_S)
        raise Unavailable(0, "Timeout", "no answer in time")


_REFUSALS: dict[FateKind, ApiError] = {
    FateKind.CONFLICT: Conflict(409, "Conflict", "the object has been modified"),
    FateKind.BUSY: TooManyRequests(429, "TooManyRequests", "later", 1.0),
    FateKind.ERROR: Unavailable(500, "InternalError", "something went wrong"),
    FateKind.UNAVAILABLE: Unavailable(503, "ServiceUnavailable", "not now"),
    FateKind.RESET: Unavailable(0, "ConnectionFailed", "the connection broke"),
    FateKind.RESET_AFTER: Unavailable(0, "ConnectionFailed", "the connection broke"),
    FateKind.ERROR_AFTER: Unavailable(504, "Timeout", "etcd did not answer in time"),
}


def _do(act: Act) -> None:
    """The server acts, and nobody is told."""
    try:
        act()
    except ApiError:
        return


def _answer(answer: asyncio.Future[Any], act: Act) -> None:
    """The server acts, and whoever still waits is told."""
    try:
        result = act()
    except ApiError as error:
        if not answer.done():
            answer.set_exception(error)
        return
    if not answer.done():
        answer.set_result(result)
