"""Protects users from pages of other sites, whose browsers send requests as those pages want.

`for_this_machine` protects servers for users of this machine from DNS rebinding.

The owner of another site can let the site's name resolve to 127.0.0.1. A browser then takes answers of this machine for
answers of that site, whose scripts may read them. But the browser still sends the site's name in the header Host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable

from aiohttp import web
from yarl import URL


def is_from_elsewhere(request: web.Request) -> bool:
    """Whether a browser sends this request for a page of another site, or of another port of this machine.

    Browsers add cookies and client certificates to such requests, too. They say who asks in Sec-Fetch-Site; old ones
    say less, in Origin. Other programs say nothing.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = request.headers.get("Origin")
    return origin is not None and origin.partition("://")[2] != request.headers.get("Host", "")


def is_loopback(host: str) -> bool:
    """Whether a name or an address stands for this machine: localhost, or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@web.middleware
async def for_this_machine(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Middleware that refuses requests whose header Host is not a name of this machine."""
    try:
        host = URL(f"http://{request.headers.get('Host', '')}").host or ""
    except ValueError:
        host = ""
    if not is_loopback(host):
        return web.Response(status=403, text="this server answers at 127.0.0.1 and localhost alone\n")
    return await handler(request)
