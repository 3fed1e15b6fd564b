"""Relays the page of the scheduler to a browser on this machine, because the browser does not have the credentials.

The relay answers only on 127.0.0.1, and adds the credentials of the kubeconfig to the requests that it passes on. Other
users of this machine reach the port, too. So a browser has to send a key: first in the printed address, and then in a
cookie. While the scheduler does not answer, the relay serves a page that says so, and that asks again by itself.
"""

from __future__ import annotations

import asyncio
import html
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from yarl import URL

from gangline.commands.reaching import context_of
from gangline.commands.running import context_for, not_given, unreachable, url_of
from gangline.errors import ApiError, ConfigError
from gangline.kube.auth import Credentials
from gangline.page.serving import HEADERS, PATH
from gangline.process.hosts import for_this_machine, is_from_elsewhere
from gangline.process.listening import Listener

_THERE = ("Accept", "Accept-Encoding", "Last-Event-ID")
_BACK = (
    "Content-Type",
    "Content-Encoding",
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "Referrer-Policy",
    "Cross-Origin-Opener-Policy",
    "Cross-Origin-Resource-Policy",
    "Cache-Control",
    "Retry-After",
    "Vary",
)
"""The headers of an answer that are passed on to the browser."""
AGAIN = 3
"""Seconds after which a page without a scheduler asks again, and another replica is looked for."""
_LOST_PAGE = """\
<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Gangline: no scheduler answers</title>
  <script src="{script}" defer></script>
</head>
<body>
  <main>
    <h1>The scheduler is unreachable</h1>
    <p role="status">{why}</p>
    <p>The page comes back by itself when the scheduler answers. Until then check that the scheduler runs, and the
      network. <a href="{path}">Try again now</a></p>
  </main>
</body>
</html>
"""
_SCRIPT_PATH = f"{PATH}/again.js"
_SCRIPT = f"""\
setInterval(async () => {{
  const answer = await fetch("{PATH}", {{ method: "HEAD" }}).catch(() => null);
  if (answer && answer.status !== 502) location.reload();
}}, {1000 * AGAIN});
"""
"""Loads the page again as soon as the scheduler answers, and not before: who reads the page is not disturbed."""
_SILENCE = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=30.0)


class Upstream:
    """The scheduler, asked with the credentials of the kubeconfig."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        """Raises UsageError if the address is none."""
        self._url = url_of(address, "https")
        self._credentials = credentials
        self._context = context_for(self._url.host or "", credentials)
        self._session = aiohttp.ClientSession(timeout=_SILENCE, auto_decompress=False)

    @asynccontextmanager
    async def get(self, path: str, headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a request for a path, which begins with "/". Raises ApiError if there is none."""
        authorization = await self._credentials.authorization()
        given = {**headers, "Authorization": authorization} if authorization else headers
        url = URL(f"{self._url.origin()}{path}", encoded=True)
        if self._session.closed:  # another replica is asked now
            raise ApiError(0, "Unreachable", f"{self._url} is asked no longer")
        try:
            async with self._session.get(url, headers=given, ssl=self._context, allow_redirects=False) as answer:
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable(self._url, error) from error

    async def check(self) -> None:
        """Ask for the page once. Raises ClusterError or ConfigError if the scheduler does not give it."""
        try:
            async with self.get(PATH, {}) as answer:
                if answer.status == 404:
                    why = "serves no page: it runs with --no-ui, or is an older version"
                    raise ConfigError("", str(self._url), why)
                if answer.status != 200:
                    said = (await answer.content.read(500)).decode(errors="replace").strip()
                    raise ApiError(answer.status, answer.reason or "", f"{self._url} answers {answer.status}: {said}")
        except ApiError as error:
            raise not_given(context_of(self._credentials), error) from error

    async def leads(self) -> bool:
        """Whether the replica is the leader: only the leader knows why pods wait."""
        async with self.get(f"{PATH}/state", {"Accept-Encoding": "identity"}) as answer:
            return answer.status == 200 and b'"leads":[true]' in await answer.read()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


class Relay:
    """The server on this machine, between `start` and `stop`."""

    def __init__(self, upstream: Upstream, port: int = 0) -> None:
        self.upstream = upstream
        """The scheduler, which may be replaced by another replica."""
        self.lost = asyncio.Event()
        """Set when the scheduler has not answered."""
        self._key = secrets.token_urlsafe(24)
        self._ended = asyncio.Event()
        app = web.Application(middlewares=[for_this_machine])
        app.add_routes(
            [
                web.get("/", self._enter),
                web.get(_SCRIPT_PATH, _script),
                web.get(PATH, self._pass_on),
                web.get(f"{PATH}/{{file}}", self._pass_on),
            ]
        )
        self._listener = Listener(app, f"127.0.0.1:{port}", "--port")

    async def start(self) -> None:
        """Listen. Raises ConfigError."""
        await self._listener.start()

    async def stop(self) -> None:
        """Close every connection, and end streams."""
        self._ended.set()
        await self._listener.stop()

    @property
    def address(self) -> str:
        """The address for the browser."""
        return f"http://127.0.0.1:{self._listener.port}/?key={self._key}"

    @property
    def _cookie(self) -> str:
        """The name of the cookie. The port is part of it: browsers send the cookies of a host to all its ports."""
        return f"gangline-ui-{self._listener.port}"

    def _is_known(self, key: str) -> bool:
        return secrets.compare_digest(key.encode(errors="surrogatepass"), self._key.encode())

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        if not self._is_known(request.query.get("key", "")):
            return _unknown()
        response = web.Response(status=303, headers={"Location": PATH, "Referrer-Policy": "no-referrer"})
        response.set_cookie(self._cookie, self._key, httponly=True, samesite="Strict", path=PATH)
        return response

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if not self._is_known(request.cookies.get(self._cookie, "")):
            return _unknown()
        if not request.raw_path.startswith("/"):  # the address of another server, to which no credentials may go
            return web.Response(status=400, text="this server answers for no other one\n")
        if request.path != PATH and is_from_elsewhere(request):
            return web.Response(status=403, text="asked by a page of another site\n")
        headers = {name: request.headers[name] for name in _THERE if name in request.headers}
        response: web.StreamResponse | None = None
        try:
            async with self.upstream.get(request.raw_path, headers) as answer:
                back = {name: answer.headers[name] for name in _BACK if name in answer.headers}
                response = web.StreamResponse(status=answer.status, headers=back)
                await response.prepare(request)
                while request.method != "HEAD" and (part := await self._next(answer.content)):
                    await response.write(part)
                return response
        except ApiError as error:
            if response is not None:
                raise ConnectionResetError(str(error)) from error  # the browser or the scheduler has gone
            self.lost.set()
            return _unreachable(str(error), request.path == PATH)

    async def _next(self, content: aiohttp.StreamReader) -> bytes:
        """The next bytes of an answer; empty at its end, or when the relay has to end."""
        reading = asyncio.ensure_future(content.readany())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((reading, ended), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()
            ended.cancel()


def _unreachable(why: str, is_page: bool) -> web.Response:
    """The answer while the scheduler does not answer: for a page one that asks again by itself."""
    if not is_page:
        return web.Response(status=502, text=f"{why}\n", headers=HEADERS)
    text = _LOST_PAGE.format(path=PATH, script=_SCRIPT_PATH, why=html.escape(why))
    return web.Response(status=502, text=text, content_type="text/html", headers=HEADERS)


async def _script(request: web.Request) -> web.Response:
    return web.Response(text=_SCRIPT, content_type="text/javascript", headers=HEADERS)


def _unknown() -> web.Response:
    return web.Response(status=403, text="open the address that `gangline ui` has printed\n")
