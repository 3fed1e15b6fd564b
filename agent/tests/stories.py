"""What several tests of the agent share: an API in memory that keeps what is applied, nodes, and readings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from gangline.errors import GanglineError
from gangline.kube.resources import GPU_NODE_STATUSES, NODES, Resource, T
from gangline.model import Node, ObjectMeta
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run


@dataclass(frozen=True, slots=True)
class Applied:
    """One server-side apply."""

    plural: str
    name: str
    manager: str
    subresource: str | None
    body: Mapping[str, Any]


class RecordingClient(SimulatedClient):
    """Keeps what is applied; ``failures`` are raised by the next applies that match their plural.

    ``labelled`` is set once something is applied to a node.
    """

    def __init__(self, server: InMemoryServer) -> None:
        super().__init__(server)
        self.applied: list[Applied] = []
        self.failures: list[tuple[str, GanglineError]] = []
        self.labelled = asyncio.Event()

    async def apply(
        self,
        resource: Resource[T],
        name: str,
        body: Mapping[str, Any],
        *,
        field_manager: str,
        namespace: str | None = None,
        subresource: str | None = None,
        force: bool = True,
    ) -> T:
        """See the interface."""
        for failure in self.failures:
            if failure[0] == resource.plural:
                self.failures.remove(failure)
                raise failure[1]
        self.applied.append(Applied(resource.plural, name, field_manager, subresource, body))
        done = await super().apply(
            resource, name, body, field_manager=field_manager, subresource=subresource, force=force
        )
        if resource.plural == NODES.plural:
            self.labelled.set()
        return done


def cluster() -> RecordingClient:
    """The client of an empty cluster that serves GpuNodeStatuses."""
    return RecordingClient(InMemoryServer(VirtualClock(), serves=[GPU_NODE_STATUSES]))


async def add_node(client: SimulatedClient, name: str, labels: Mapping[str, str] | None = None) -> Node:
    """A new node."""
    return await client.create(NODES, Node(metadata=ObjectMeta(name=name, labels=dict(labels or {}))))


def play(story: Callable[[RecordingClient], Coroutine[Any, Any, None]]) -> RecordingClient:
    """Runs a story on an empty cluster in virtual time, and gives the client that it used."""
    client = cluster()
    run(story(client))
    return client


async def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return once holds() is true; TimeoutError when that takes more virtual seconds than given."""
    async with asyncio.timeout(seconds):
        while True:
            if holds():
                return
            await asyncio.sleep(0.1)
