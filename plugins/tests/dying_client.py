"""A connection of a scheduler that is killed at one of its writes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from gangline.simulate import InMemoryServer, SimulatedClient


class DyingClient(SimulatedClient):
    """Makes a write that is given by its number, or does not; nothing of that process is written after that.

    Only writes of objects count whose names begin with `prefix`, and only while `is_armed`.
    """

    def __init__(self, server: InMemoryServer, prefix: str, verb: str, number: int, is_made: bool) -> None:
        super().__init__(server, latency={"bind": 0.01})
        self._of_death = verb, number
        self._prefix = prefix
        self._is_made = is_made
        self._writes: Counter[str] = Counter()
        self.is_armed = True
        self.is_dead = asyncio.Event()

    async def _call(self, verb: str, resource: Any, name: str, act: Any) -> Any:
        if self.is_dead.is_set():
            await asyncio.sleep(3600.0)
        self._writes[verb] += self.is_armed and name.startswith(self._prefix)
        if (verb, self._writes[verb]) != self._of_death:
            return await super()._call(verb, resource, name, act)
        if self._is_made:
            await super()._call(verb, resource, name, act)
        self.is_dead.set()
        await asyncio.sleep(3600.0)
