"""Makes the connections of aiohttp's client, so that the event loop alone owns their sockets.

aiohttp connects a socket of Python's and hands it to the loop. When the other end resets a TLS connection at that very
moment, uvloop closes the descriptor and then takes hold of the Python object, which closes the same number once more
when it is collected: by then it may be another connection's. That one breaks, whoever opens the next socket is told
"File descriptor N is used by transport", and libuv may end the process.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest

from gangline.kube import sockets


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
        sockets.bound(transport)
        return transport, handler
