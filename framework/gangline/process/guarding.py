"""Asks the API server whether a user may read a path: authentication and authorization, as in kube-scheduler.

Rules
- A TokenReview checks a token, and the TLS context checks a client's certificate. Then a SubjectAccessReview says
  whether the user may get the path. Answers hold for `KEEP` seconds.
- A handler may ask more about its user: see `Viewer`. These answers hold for `KEEP_NAMESPACES` seconds.
- Fail closed: without an answer of the API server no user gets the path.
- Only a few reviews are under way at a time, so that many tokens do not cause many requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from ssl import SSLObject
from typing import Any, Generic, TypeVar

from aiohttp import web

from gangline.errors import GanglineError
from gangline.kube.interface import Client
from gangline.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from gangline.model import (
    NonResourceAttributes,
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    TokenReview,
    TokenReviewSpec,
    UserInfo,
)
from gangline.process.client_ca import AT_A_TIME

log = logging.getLogger(__name__)

KEEP = 10.0
"""Seconds for which an answer holds."""
MOST_KEPT = 1024
"""Largest number of kept answers."""
KEEP_NAMESPACES = 60.0
"""Seconds for which an answer about the pods of a namespace holds."""
MOST_NAMESPACES_KEPT = 8192
"""Largest number of kept answers about namespaces, of all users."""
AUTHENTICATED = "system:authenticated"

Answer = TypeVar("Answer")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, eq=False)
class Viewer:
    """The user of a request that the guard has let through."""

    user: UserInfo
    guard: Guard

    @property
    def name(self) -> str:
        """The name of the user."""
        return self.user.username

    async def may_list_pods(self, namespace: str) -> bool:
        """Whether the user may list the pods of a namespace, or with "" of all. Raises GanglineError."""
        return await self.guard.may_list_pods(self.user, namespace)


VIEWER = web.RequestKey("viewer", Viewer)
"""The key of the user on a request that the guard has let through."""


class Guard:
    """Asks the API server which user a token stands for, and what the user may do."""

    def __init__(self, client: Client, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._users: _Kept[UserInfo | None] = _Kept(monotonic)
        self._verdicts: _Kept[bool] = _Kept(monotonic)
        self._namespaces: _Kept[bool] = _Kept(monotonic, KEEP_NAMESPACES, MOST_NAMESPACES_KEPT)
        self._room = asyncio.Semaphore(AT_A_TIME)

    def protected(self, handler: Handler) -> Handler:
        """The handler with this guard before it; the guard answers 401, 403 or 503 itself."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            return await self._refusal(request) or await handler(request)

        return guarded

    async def _refusal(self, request: web.Request) -> web.Response | None:
        verb, path = request.method.lower(), request.path
        try:
            user = await self._user(request)
            if user is None:
                return _refused(401, "Unauthorized")
            if not await self._may(user, path, verb):
                return _refused(403, f'Forbidden: user "{user.username}" cannot {verb} path "{path}"')
            request[VIEWER] = Viewer(user, self)
        except GanglineError as error:
            log.warning("whether somebody may %s %s cannot be told: %s", verb, path, error)
            return _refused(503, "Service Unavailable: the API server does not say who may do this")
        return None

    async def _user(self, request: web.Request) -> UserInfo | None:
        if user := _certified(request):
            return user
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token:
            return None
        try:
            digest = hashlib.sha256(token.encode()).digest()
        except UnicodeEncodeError:  # bytes that are no text, so nobody can be asked about them
            return None
        return await self._asked(self._users, digest, lambda: self._review(token))

    async def _review(self, token: str) -> UserInfo | None:
        review = await self._client.create(TOKEN_REVIEWS, TokenReview(spec=TokenReviewSpec(token)))
        return review.status.user if review.status.authenticated else None

    async def _may(self, user: UserInfo, path: str, verb: str) -> bool:
        wanted = NonResourceAttributes(path, verb)
        key = (*_identity(user), path, verb)
        return await self._asked(self._verdicts, key, lambda: self._is_allowed(user, wanted))

    async def may_list_pods(self, user: UserInfo, namespace: str) -> bool:
        """Whether a user may list the pods of a namespace, or with "" of all. Raises GanglineError."""
        wanted = ResourceAttributes(namespace, "list", "pods")
        key = (*_identity(user), namespace)
        return await self._asked(self._namespaces, key, lambda: self._is_allowed(user, None, wanted))

    async def _is_allowed(
        self, user: UserInfo, path: NonResourceAttributes | None, objects: ResourceAttributes | None = None
    ) -> bool:
        spec = SubjectAccessReviewSpec(path, user.username, user.groups, user.uid, user.extra, objects)
        review = await self._client.create(SUBJECT_ACCESS_REVIEWS, SubjectAccessReview(spec=spec))
        return review.status.allowed

    async def _asked(self, kept: _Kept[Answer], key: Hashable, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        if (found := kept.get(key)) is not None:
            return found[0]
        async with self._room:
            if (found := kept.get(key)) is not None:  # another request has got the answer while this one waited
                return found[0]
            answer = await ask()
            kept.put(key, answer)
            return answer


class _Kept(Generic[Answer]):
    """The latest answers, each kept for some seconds."""

    def __init__(self, monotonic: Callable[[], float], keep: float = KEEP, most: int = MOST_KEPT) -> None:
        self._monotonic = monotonic
        self._keep, self._most = keep, most
        self._answers: OrderedDict[Hashable, tuple[float, Answer]] = OrderedDict()

    def get(self, key: Hashable) -> tuple[Answer] | None:
        found = self._answers.get(key)
        return (found[1],) if found is not None and self._monotonic() < found[0] else None

    def put(self, key: Hashable, answer: Answer) -> None:
        self._answers[key] = (self._monotonic() + self._keep, answer)
        self._answers.move_to_end(key)
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)


def _certified(request: web.Request) -> UserInfo | None:
    """The user that a client's certificate names; the TLS handshake has checked the certificate."""
    tls: SSLObject | None = request.transport.get_extra_info("ssl_object") if request.transport else None
    shown: Any = tls.getpeercert() if tls is not None else None
    names = [pair for part in (shown or {}).get("subject", ()) for pair in part]
    user = next((value for key, value in names if key == "commonName"), "")
    groups = [value for key, value in names if key == "organizationName"]
    return UserInfo(user, groups=[*groups, AUTHENTICATED]) if user else None


def _identity(user: UserInfo) -> tuple[Hashable, ...]:
    """A hashable form of a user: all fields that decide about an answer of the API server."""
    extra = tuple((key, tuple(values)) for key, values in sorted(user.extra.items()))
    return user.username, user.uid, tuple(user.groups), extra


def _refused(status: int, text: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return web.Response(text=f"{text}\n", status=status, headers=headers)
