"""Reports simulated GPUs for many nodes from one process: for all matching nodes, also new ones.

A single named node, as the chart simulates it, is simulated while it has a sign of GPUs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tenacity import AsyncRetrying, retry_if_exception_type

from gangline.clock import SystemClock
from gangline.errors import ApiError, Conflict, InvalidObject
from gangline.kube.informer import Informer
from gangline.kube.interface import Client
from gangline.kube.resources import NODES
from gangline.model import Node
from gangline.wire.custom_resources import GpuNodeStatusStatus
from gangline_agent import inventory, signs
from gangline_agent.devices import NOTHING, Offer
from gangline_agent.offering import Offerings
from gangline_agent.publishing import BACKOFF, Publisher, Reporter
from gangline_agent.readings import Reading
from gangline_agent.templates import Template
from gangline_agent.usage import Usage

log = logging.getLogger(__name__)

CLIQUE = "nvidia.com/gpu.clique"
IDLE = 1.0
"""Seconds between two looks for nodes while there are none."""
MakeOffer = Callable[[Reading], Offer]


class Simulation:
    """Reports a template for every node with the labels, or for the single node ``node``.

    Every ``period`` seconds each status is reported again, the nodes evenly spread over that time. ``make_offer`` says
    what a node offers in ResourceSlices; without it the nodes offer nothing there.
    """

    def __init__(
        self,
        client: Client,
        template: Template,
        period: float,
        *,
        label_selector: str = "",
        node: str = "",
        make_offer: MakeOffer | None = None,
    ) -> None:
        self._template = template
        self._period = period
        self._clock = SystemClock()
        self._usage = Usage(client)
        self._publisher = Publisher(client, self._usage.of)
        self._make_offer = make_offer
        self._offerings = Offerings(client, node) if make_offer is not None else None
        field_selector = f"metadata.name={node}" if node else ""
        self._informer = Informer(client, NODES, self, label_selector=label_selector, field_selector=field_selector)
        self._node, self._selector = node, label_selector
        self._members: dict[str, _Member] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup

    async def run(self) -> None:
        """Simulates until it is cancelled."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._informer.run())
            self._group.create_task(self._usage.run())
            self._group.create_task(self._beat())
            if self._offerings is not None:
                self._group.create_task(self._offerings.run())
            await self._informer.synced.wait()
            if self._members:
                log.info("simulating %d nodes: %s", len(self._members), self._node or self._selector)
            elif self._node:
                log.info("%s: not simulated: no device plugin, and no label %s=true", self._node, signs.LABELS[0])
            else:
                log.warning("no node is there yet with %s: none is simulated", self._selector)

    def waiting_for(self) -> str | None:
        """The reports that the API does not have yet; None if it has all."""
        if not self._informer.synced.is_set():
            return "the nodes are not listed yet"
        late = {name: why for name, member in self._members.items() if (why := member.waiting_for()) is not None}
        if not late:
            return None
        name, why = next(iter(late.items()))
        return f"{len(late)} of {len(self._members)} nodes are not published, such as {name}: {why}"

    def newest(self) -> dict[str, GpuNodeStatusStatus]:
        """What is reported of each node."""
        return {name: newest for name, member in self._members.items() if (newest := member.newest) is not None}

    def use(self, template: Template) -> None:
        """Use this template from now on."""
        self._template = template
        for member in self._members.values():
            self._report(member)

    # The nodes, told by the informer

    def upsert(self, node: Node) -> None:
        """A node was added or has changed."""
        name = node.metadata.name
        member = self._members.get(name)
        if member is None and self._node and not signs.of_node(node):
            return
        if member is None:
            member = self._members[name] = _Member(self._publisher, node, self._offerings)
            member.task = self._group.create_task(member.serve(self._leaving.get(name)))
        member.node = node
        self._report(member)

    def remove(self, namespace: str, name: str, uid: str) -> None:
        """A node was deleted."""
        member = self._members.pop(name, None)
        if member is not None:
            task = self._leaving[name] = self._group.create_task(member.leave())
            task.add_done_callback(lambda done: self._left(name, done))

    def _left(self, name: str, task: asyncio.Task[None]) -> None:
        if self._leaving.get(name) is task:
            del self._leaving[name]

    async def _beat(self) -> None:
        while True:
            members = list(self._members.values())
            for member in members:
                await asyncio.sleep(self._period / len(members))
                self._report(member, again=True)
            if not members:
                await asyncio.sleep(IDLE)

    def _report(self, member: _Member, again: bool = False) -> None:
        """Reports a node if its report has changed, or in any case if ``again``."""
        member.report(self._template, self._clock.now(), again)
        if self._make_offer is not None and not again:
            member.offer(self._make_offer(member.reading(self._template)))


class _Member:
    """One simulated node: reports until the node is gone."""

    def __init__(self, publisher: Publisher, node: Node, offerings: Offerings | None) -> None:
        self.node = node
        self._offering = offerings.of(node.metadata.name, self._find) if offerings is not None else None
        self.task: asyncio.Task[None] | None = None
        self._publisher = publisher
        self._reporter = Reporter(publisher, node.metadata.name, self._find)

    async def serve(self, first: asyncio.Task[None] | None) -> None:
        """Publishes until cancelled, after the report of an earlier node of the same name has been deleted."""
        if first is not None:
            await asyncio.wait((first,))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reporter.run())
            if self._offering is not None:
                group.create_task(self._offering.run())

    @property
    def newest(self) -> GpuNodeStatusStatus | None:
        """The newest reported status of the node; None before the first report."""
        return self._reporter.newest

    def waiting_for(self) -> str | None:
        """See Reporter and Offering."""
        why = self._reporter.waiting_for()
        return self._offering.waiting_for() if why is None and self._offering is not None else why

    async def leave(self) -> None:
        """Stops, and deletes the GpuNodeStatus and the ResourceSlices."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait((self.task,))
        retrying = AsyncRetrying(retry=retry_if_exception_type((ApiError, InvalidObject)), wait=BACKOFF)
        await retrying(self._withdraw)
        if self._offering is not None:
            self._offering.offer(NOTHING)
            await retrying(self._offering.publish)
            self._offering.leave()

    def reading(self, template: Template) -> Reading:
        """The reading of the node by a template."""
        return template.reading_of(self.node.metadata.name, self._clique)

    def offer(self, offer: Offer) -> None:
        """Hands on what the node offers in ResourceSlices."""
        if self._offering is not None:
            self._offering.offer(offer)

    @property
    def _clique(self) -> str:
        return (self.node.metadata.labels or {}).get(CLIQUE, "")

    def report(self, template: Template, now: float, again: bool) -> None:
        """Hands a status to the reporter if it differs from the one before, or in any case ``again``."""
        status = template.status_of(self.node.metadata.name, self._clique, now)
        before = self._reporter.newest
        if before is not None:
            status.conditions[0].last_transition_time = before.conditions[0].last_transition_time
        else:
            status.conditions[0].last_transition_time = status.heartbeat_time
        if again or before is None or inventory.differs(before, status):
            self._reporter.report(status, template.labels)

    async def _find(self) -> Node:
        return self.node

    async def _withdraw(self) -> None:
        try:
            await self._publisher.withdraw(self.node.metadata.name, self._reporter.uid)
        except Conflict:
            log.debug("%s: another GpuNodeStatus has taken the name", self.node.metadata.name)
