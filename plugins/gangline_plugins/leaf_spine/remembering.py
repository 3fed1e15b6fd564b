"""Background work of LeafSpine: observes how placed groups fare, and keeps the history in a ConfigMap."""

from __future__ import annotations

import asyncio
import logging

from gangline import ApiError, Handle, NotFound, State, resources
from gangline_plugins.leaf_spine.history import DomainHistory, Observer

log = logging.getLogger(__name__)

HISTORY = "gangline-domain-history"
"""The name of the ConfigMap; it has one key per profile."""
PERIOD = 30.0
"""Seconds between two rounds, and the least time between two writes."""
ENDED = "status.phase!=Pending,status.phase!=Running"


def memory_of(state: State, profile: str) -> Memory:
    """The memory of a profile; the same object for successive configurations."""
    return state.shared(Memory, profile)


class Memory:
    """History and observer of one profile."""

    def __init__(self, profile: str) -> None:
        self.history = DomainHistory()
        self.observer = Observer(self.history)
        self.is_read = False
        self.written = 0
        """The version of the history that was written last."""


class Keeper:
    """Keeps the memory of one profile in step with the API server."""

    def __init__(self, handle: Handle, memory: Memory, namespace: str) -> None:
        self._handle = handle
        self._memory = memory
        self._namespace = namespace

    async def run(self) -> None:
        """Observe and write until cancelled."""
        while True:
            try:
                await self.step()
            except ApiError as error:
                log.warning("cannot keep the history of domains now: %s", error)
            await asyncio.sleep(PERIOD)

    async def step(self) -> None:
        """Read the history once, observe the placed groups, and write the history if it has changed. Raises
        ApiError.
        """
        if not self._memory.is_read:
            await self._read()
        await self._look()
        history = self._memory.history
        if self._memory.written != history.version:
            version = history.version
            await self._write(history.dump())
            self._memory.written = version

    async def _read(self) -> None:
        try:
            found = await self._handle.client.get(resources.CONFIG_MAPS, HISTORY, namespace=self._namespace)
        except NotFound:
            found = None
        text = ((found.data if found else None) or {}).get(self._handle.profile)
        if text is not None and not self._memory.history.load(text):
            log.warning(
                "ConfigMap %s/%s: %s is no history and is replaced", self._namespace, HISTORY, self._handle.profile
            )
        elif text is not None:
            self._memory.written = self._memory.history.version
        self._memory.is_read = True

    async def _look(self) -> None:
        pods, observer = self._handle.state.pods, self._memory.observer
        for namespace in sorted(observer.look(pods)):
            ended = await self._handle.client.list(resources.PODS, namespace=namespace, field_selector=ENDED)
            observer.ended(namespace, {pod.metadata.uid: pod.status.phase for pod in ended.items}, pods)

    async def _write(self, text: str) -> None:
        body = {
            "apiVersion": resources.CONFIG_MAPS.api_version,
            "kind": resources.CONFIG_MAPS.kind,
            "metadata": {"name": HISTORY, "namespace": self._namespace},
            "data": {self._handle.profile: text},
        }
        manager = f"gangline-{self._handle.profile}"
        await self._handle.client.apply(
            resources.CONFIG_MAPS, HISTORY, body, field_manager=manager, namespace=self._namespace
        )
