"""Makes the connections of aiohttp's client, so that the event loop alone owns their sockets.

aiohttp connects a socket of Python's and hands it to the loop. When the other end resets a TLS connection at that very
moment, uvloop closes the descriptor and then takes hold of the Python object, which closes the same number once more
when it is collected: by then it may be another connection's. That one breaks, whoever opens the next socket is told
"File descriptor N is used by transport", and libuv may end the process.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest


class Connector(aiohttp.TCPConnector):
    """Lets the event loop make its sockets itself, one address after the other.

    They notice within a minute that the other end is gone: watches may be silent.
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
        """To the first address; aiohttp asks again with the others when that fails."""
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
        _keep_alive(transport)
        return transport, handler


def _keep_alive(transport: asyncio.Transport) -> None:
    made = transport.get_extra_info("socket")
    if made is None:
        return  # it is closed already
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # not everywhere
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
