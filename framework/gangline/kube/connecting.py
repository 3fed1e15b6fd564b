"""Makes the connections of aiohttp's client, so that the event loop alone owns their sockets.

aiohttp itself connects a Python socket and hands it to the event loop. If the other end resets a TLS connection at that
moment, uvloop closes the file descriptor, but keeps the Python socket. When this socket is garbage-collected, it closes
the same descriptor number once more, which may belong to another connection by then. That connection breaks, the next
socket to be opened fails with "File descriptor N is used by transport", and libuv may end the process.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest

from gangline.kube import sockets


class Connector(aiohttp.TCPConnector):
    """Lets the event loop create its sockets itself, and tries one address after the other.

    A connection notices within a minute that the other end is gone, even if nothing is sent, as on a quiet watch.
    """

    async def _wrap_create_connection(
        self,
        *args: Any,
        addr_infos: list[aiohttp.AddrInfoType],
        req: ClientRequest,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # as aiohttp calls it
        client_error: type[Exception] = aiohttp.ClientConnectorError,
        **kwargs: Any,
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        """Connect to the first address; if that fails, aiohttp calls this method again with the other addresses."""
        family, _, protocol, _, address = addr_infos[0]
        transport, handler = await self._wrap_existing_connection(
            *args,
            host=address[0],
            port=address[1],
            family=family,
            proto=protocol,
            req=req,
            timeout=timeout,
            client_error=client_error,
            **kwargs,
        )
        sockets.bound(transport)
        return transport, handler
