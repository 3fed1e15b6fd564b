"""An informer for a kind that the API server may not serve: custom resource definitions may be added or removed.

While the kind is not served the informer has no objects, and no caller waits for a list. The informer asks whether the
kind is served, and in which version, at the start, after every failure, when a new list is requested, and at intervals.
"""

from __future__ import annotations

import asyncio
import logging

from gangline.errors import ApiError
from gangline.kube.informer import Informer
from gangline.kube.resources import T
from gangline.kube.versions import newest

log = logging.getLogger(__name__)

LOOK_AGAIN = 30.0  # seconds between two questions whether the kind is served


class OptionalInformer(Informer[T]):
    """Follows one resource whenever it is served; `synced` is set while it is not."""

    _due: asyncio.Event | None = None
    _is_missed = False
    """Whether the log already says that the kind is not served."""

    async def run(self) -> None:
        """Follows the resource until it is cancelled."""
        self._due = asyncio.Event()
        while True:
            self._due.clear()
            try:
                served = await self._is_served()
            except ApiError as error:
                await self._rest(self._failed(error))
                continue
            except Exception as error:  # no answer of a server may end this loop
                await self._rest(self._broke(error))
                continue
            if served:
                while not (delay := await self.step()):
                    pass
                await self._rest(delay)
            else:
                self.leave(())  # the kind is not there, so neither are its objects
                await self._wait(self._due)

    def relist(self) -> None:
        """Asks for a new list, and asks the server whether the kind is served."""
        super().relist()
        if self._due is not None:
            self._due.set()

    async def _is_served(self) -> bool:
        served = await newest(self._client, self.resource)
        if served is not None:
            self._served = served
        elif self.resource.gate and not self._is_missed:
            self._is_missed = True
            what = f"{self.resource.plural}.{self.resource.version}.{self.resource.group}"
            log.warning("the API server does not serve %s (feature gate %s); none are read", what, self.resource.gate)
        return served is not None

    async def _wait(self, due: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(LOOK_AGAIN):
                await due.wait()
        except TimeoutError:
            return
