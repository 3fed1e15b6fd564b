"""The second thread of the scheduler: leader election, health and metrics run here, beside the thread that decides.

Nothing in this module waits for a decision. The deciding thread hands whole values over, never parts that still change.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient
from gangline.kube.interface import Client
from gangline.process.client_ca import AT_A_TIME
from gangline.process.endpoints import Endpoints, Pages, Served
from gangline.process.leading import Elector


class Beside:
    """The parts of the second thread. All methods are called in the loop of this thread, which also owns its clients;
    only the constructor may be called in another thread.

    ``elector`` exists after `open`. Leases and reviews have a client each, so that many requests for reviews do not
    delay the renewal of the lease.
    """

    def __init__(
        self,
        credentials: Callable[[], Credentials],
        endpoints: Endpoints,
        pages: Pages,
        elect: Callable[[Client], Elector],
    ) -> None:
        self._credentials = credentials
        self._endpoints = endpoints
        self._pages = pages
        self._elect = elect
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        """Connect the clients, and begin to listen. Raises ConfigError."""
        async with AsyncExitStack() as stack:
            credentials = self._credentials()
            leases = await stack.enter_async_context(HttpClient(credentials, connections=4))
            reviews = await stack.enter_async_context(HttpClient(credentials, connections=AT_A_TIME + 2))
            self.elector = self._elect(leases)
            served = Served(self._endpoints, self._pages, reviews)
            await served.open()
            stack.push_async_callback(served.close)
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """Close every connection."""
        await self._stack.aclose()
