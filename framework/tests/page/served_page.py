"""The page of a small cluster behind the guard, with an API server that says which user may see which namespaces."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from gangline.errors import Unavailable
from gangline.kube.interface import Client
from gangline.kube.resources import TOKEN_REVIEWS
from gangline.model import UserInfo
from gangline.page.feed import Feed
from gangline.page.serving import RemediesOf, page
from gangline.process.endpoints import Endpoints, Pages, Served
from gangline.process.guarding import VIEWER
from gangline.testing import make_pod

from .shown import ShownCluster, node


class PageReviews:
    """The API server's answers: everybody in `tokens` may get the page, and list the pods of these namespaces."""

    def __init__(self) -> None:
        self.tokens = {"admin": {""}, "one": {"one"}, "nothing": set[str]()}
        self.asked: list[tuple[str, str]] = []
        self.is_down = False

    async def create(self, resource: Any, review: Any, *, namespace: str | None = None) -> Any:
        if self.is_down:
            raise Unavailable(0, "", "down")
        if resource is TOKEN_REVIEWS:
            review.status.authenticated = review.spec.token in self.tokens
            review.status.user = UserInfo(review.spec.token)
            return review
        wanted = review.spec.resource_attributes
        if wanted is None:
            review.status.allowed = True
        else:
            assert (wanted.verb, wanted.resource, wanted.group) == ("list", "pods", "")
            self.asked.append((review.spec.user, wanted.namespace))
            review.status.allowed = wanted.namespace in self.tokens[review.spec.user]
        return review

    async def get(self, resource: Any, name: str, *, namespace: str | None = None) -> Any:
        raise Unavailable(0, "", "down")


class ServedPage:
    """A small cluster behind the page."""

    def __init__(
        self,
        stream: float = 20.0,
        shown: ShownCluster | None = None,
        remedies_of: RemediesOf | None = None,
    ) -> None:
        self.shown = shown or ShownCluster(node("n"))
        if shown is None:
            self.shown.bind(
                make_pod("p", gpus=2, node="n", namespace="one"), make_pod("q", gpus=1, node="n", namespace="two")
            )
        self.reviews = PageReviews()
        self.decisions: dict[str, Any] = {}
        self.remedies: dict[str, Any] = {}
        """By the identity of a unit: what would let it start, or the error with which trying ends."""
        self.answering = asyncio.Event()
        """Until it is set, no change is tried to the end."""
        self.answering.set()
        self.asking: list[tuple[str, str]] = []
        """The units about which somebody has asked, and who."""
        self.asked_now = 0

        def looking() -> Any:
            taker = self.shown.new_taker()

            async def look() -> Any:
                return taker.take()

            return look

        self.feed = Feed(looking, pause=0.01)
        handlers = page(
            self.feed,
            lambda request: request[VIEWER],
            lambda uid: self.decisions.get(uid),
            stream,
            remedies_of or self._remedies_of,
        )
        pages = Pages({}, {}, guarded=lambda: handlers, at_end=self.feed.close)
        self.served = Served(Endpoints("", "127.0.0.1:0"), pages, cast(Client, self.reviews))

    async def _remedies_of(self, unit: str, viewer: str) -> Any:
        self.asking.append((unit, viewer))
        self.asked_now += 1
        try:
            await self.answering.wait()
        finally:
            self.asked_now -= 1
        found = self.remedies.get(unit)
        if isinstance(found, Exception):
            raise found
        return found

    def ask(self, path: str | URL, token: str = "admin", method: str = "GET", **headers: str) -> Any:
        url = URL(f"https://127.0.0.1:{self.served.secure_port}{path}", encoded=isinstance(path, URL))
        given = {"Authorization": f"Bearer {token}", **headers} if token else headers
        return aiohttp.request(method, url, headers=given, ssl=False)

    async def state(self, token: str = "admin") -> Any:
        async with self.ask("/ui/state", token) as answer:
            assert answer.status == 200
            return await answer.json()

    async def events(self, position: str, token: str, number: int) -> list[tuple[str, Any]]:
        """The next events after a position: their types and data."""
        found: list[tuple[str, Any]] = []
        async with self.ask("/ui/events", token, **{"Last-Event-ID": position}) as answer:
            assert answer.status == 200
            kind = "message"
            async for line in answer.content:
                text = line.decode().rstrip("\n")
                kind = text.removeprefix("event: ") if text.startswith("event: ") else kind
                if text.startswith("data: "):
                    found.append((kind, json.loads(text.removeprefix("data: "))))
                    kind = "message"
                if len(found) == number:
                    return found
        return found


async def remedies_told(served: ServedPage, namespace: str, unit: str, token: str) -> Any:
    query = urlencode({"namespace": namespace, "unit": unit})
    async with served.ask(f"/ui/remedies?{query}", token) as answer:
        return json.loads(await answer.read()) if answer.status == 200 else await answer.text()
