"""Keeps what nodes offer published as ResourceSlices: written on a change, mended if somebody else changes them.

Rules
- Only slices of the agent's own driver are written or deleted. A slice of another driver that has a name that the agent
  needs stays, and the agent says so.
- What is there is followed by a watch, so nothing is asked for, and nothing is written, while nothing changes.
- A failed write is tried again with the newest offer, whatever the API server said. If the API server stores something
  else than what was written, that is a failure too; two agents that offer for one node take turns of some seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from gangline.errors import ApiError, Conflict, Invalid, InvalidObject, NotFound
from gangline.kube.informer import Informer
from gangline.kube.interface import Client
from gangline.kube.resources import RESOURCE_SLICES, Resource
from gangline.kube.upgrading import slice_downgraded
from gangline.kube.versions import newest
from gangline.model import Node, ResourceSlice
from gangline_agent import slices
from gangline_agent.devices import Offer
from gangline_agent.publishing import BACKOFF, MANAGER, Sleep
from gangline_agent.slices import DRIVER

log = logging.getLogger(__name__)

Find = Callable[[], Awaitable[Node]]
PAUSE = 2.0
"""Seconds after a write in which nothing is written again."""


class Offerings:
    """What each node offers, and the slices of the agent's driver on one node, or on all nodes.

    At most ``concurrency`` requests are under way at the same time.
    """

    def __init__(self, client: Client, node: str = "", concurrency: int = 32) -> None:
        self.client = client
        self.turn = asyncio.Semaphore(concurrency)
        chosen = f"spec.driver={DRIVER}" + (f",spec.nodeName={node}" if node else "")
        self._informer = Informer(client, RESOURCE_SLICES, self, field_selector=chosen)
        self._seen: dict[str, dict[str, ResourceSlice]] = {}
        """For each node its slices by name."""
        self._nodes: dict[str, str] = {}
        """Name of a slice to its node."""
        self._offerings: dict[str, Offering] = {}
        self._served: Resource[ResourceSlice] | None = None

    @property
    def synced(self) -> asyncio.Event:
        """Set once the slices that are there have been seen."""
        return self._informer.synced

    async def run(self) -> None:
        """Watch until cancelled; errors of the API are logged, and the watch goes on."""
        await self._informer.run()

    def of(self, node: str, find: Find, sleep: Sleep = asyncio.sleep) -> Offering:
        """The offering of a node, a new one; it is told of the node's slices from now on."""
        made = self._offerings[node] = Offering(self, node, find, sleep)
        return made

    def leave(self, offering: Offering) -> None:
        """Report slices to this offering no longer."""
        if self._offerings.get(offering.node) is offering:
            del self._offerings[offering.node]

    def seen(self, node: str) -> slices.Slices:
        """The slices of the agent's driver on a node, as far as is known."""
        return self._seen.get(node, {})

    async def resource(self) -> Resource[ResourceSlice]:
        """The kind in the newest version that the server has. Raises ApiError, NotFound if it has none."""
        if self._served is None:
            self._served = await newest(self.client, RESOURCE_SLICES)
        if self._served is None:
            raise NotFound(404, "NotFound", "the API server has no ResourceSlices (resource.k8s.io)")
        return self._served

    def forget_version(self) -> None:
        """Ask again which version the server has."""
        self._served = None

    def upsert(self, each: ResourceSlice, /) -> None:
        """Take in a slice from the informer or from the answer to a write, unless a newer state of it is known."""
        name, node = each.metadata.name, each.spec.node_name or ""
        known = self.seen(node).get(name)
        if known is not None and known.metadata.uid == each.metadata.uid and _version(each) <= _version(known):
            return
        self._nodes[name] = node
        self._seen.setdefault(node, {})[name] = each
        self._tell(node)

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        """Forget a slice that the informer reports as deleted, or that this process has deleted."""
        node = self._nodes.get(name, "")
        found = self._seen.get(node, {})
        if name in found and found[name].metadata.uid == uid:
            del found[name], self._nodes[name]
            if not found:
                del self._seen[node]
            self._tell(node)

    def _tell(self, node: str) -> None:
        if node in self._offerings:
            self._offerings[node].look()


class Offering:
    """Keeps the newest offer of one node published, once there is one. ``find`` gives the node, or raises ApiError."""

    def __init__(self, all_: Offerings, node: str, find: Find, sleep: Sleep) -> None:
        self._all = all_
        self.node = node
        self._find = find
        self._offer: Offer | None = None
        self._lacking: set[str] = set()
        self._sleep = sleep
        self._wrote = False
        self._news = asyncio.Event()
        self._complaint = ""
        self._published = False
        self._retrying = AsyncRetrying(
            retry=retry_if_exception_type((ApiError, InvalidObject)),
            wait=BACKOFF,
            sleep=sleep,
            before_sleep=self._complain,
        )

    def offer(self, offer: Offer) -> None:
        """Set what is offered from now on; ``run`` publishes it. An empty offer takes the slices away."""
        if offer != self._offer:
            self._offer = offer
            self.look()

    def look(self) -> None:
        """Compare the slices that the API server has with the offer again."""
        self._news.set()

    def leave(self) -> None:
        """Follow the slices of the node no longer."""
        self._all.leave(self)

    def waiting_for(self) -> str | None:
        """Why the API does not have the offer; None if it has it, if a write is under way, or if there is none yet."""
        if self._complaint:
            return f"ResourceSlices: {self._complaint}"
        return None if self._published or self._offer is None else "no ResourceSlices are published yet"

    async def run(self) -> None:
        """Publishes until cancelled; tries again until the API accepts the offer."""
        await self._all.synced.wait()
        while True:
            await self._news.wait()
            self._news.clear()
            await self._retrying(self.publish)
            if self._complaint:
                log.info("%s: ResourceSlices are published again", self.node)
                self._complaint = ""
            if self._wrote:
                self._wrote = False
                await self._sleep(PAUSE)

    async def publish(self) -> None:
        """Writes and deletes slices until they are those of the offer. Raises ApiError."""
        if self._offer is None:
            return
        while lost := await self._write(slices.without(self._offer, self._lacking)):
            self._lacking.add(lost)
            log.warning("%s: the API server does not keep %s of devices, so some are not offered", self.node, lost)
        self._published = True

    async def _write(self, offer: Offer) -> str:
        """Writes an offer if it differs from the present slices; returns a feature that the server lacks, or ""."""
        seen = self._all.seen(self.node)
        if not offer.devices and not seen:
            return ""
        node = await self._find()
        wanted = slices.wanted(self.node, node.metadata.uid, offer)
        if not slices.differ(wanted, seen):
            return ""
        next_ = slices.of_generation(slices.with_times(wanted, seen), slices.generation_of(seen) + 1)
        resource = await self._all.resource()
        self._wrote = True
        for each in next_:
            try:
                stored = await self._apply(resource, each)
            except Invalid as error:
                # A server of an older version wants the counters of a device in the slice of the device.
                if not offer.counters:
                    raise
                log.warning("%s: %s", self.node, error)
                return slices.COUNTERS
            self._all.upsert(stored)
            if lost := slices.lost(each, stored):
                return lost
        names = {each.metadata.name for each in next_}
        for name, old in list(self._all.seen(self.node).items()):
            if name not in names:
                await self._delete(resource, old)
        if slices.differ(wanted, self._all.seen(self.node)):
            raise Conflict(409, "Conflict", f"somebody changes the ResourceSlices of {DRIVER} on {self.node}")
        log.info("%s: %d devices in %d ResourceSlices", self.node, len(offer.devices), len(next_))
        return ""

    async def _apply(self, resource: Resource[ResourceSlice], each: ResourceSlice) -> ResourceSlice:
        name = each.metadata.name
        async with self._all.turn:
            if name not in self._all.seen(self.node):
                await self._check_name(resource, name)
            try:
                return await self._all.client.apply(resource, name, _body(resource, each), field_manager=MANAGER)
            except NotFound:
                self._all.forget_version()
                raise

    async def _check_name(self, resource: Resource[ResourceSlice], name: str) -> None:
        """Raises Conflict if somebody else has a slice of that name."""
        try:
            found = await self._all.client.get(resource, name)
        except NotFound:
            return
        if (found.spec.driver, found.spec.node_name) != (DRIVER, self.node):
            why = f"the ResourceSlice {name} is one of the driver {found.spec.driver}"
            raise Conflict(409, "AlreadyExists", why)

    async def _delete(self, resource: Resource[ResourceSlice], each: ResourceSlice) -> None:
        async with self._all.turn:
            try:
                await self._all.client.delete(resource, each.metadata.name, uid=each.metadata.uid)
            except NotFound:
                log.debug("the ResourceSlice %s is gone already", each.metadata.name)
        self._all.remove("", each.metadata.name, each.metadata.uid)

    def _complain(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if str(error) != self._complaint:  # once per change, not once per attempt
            self._complaint = str(error)
            log.warning("%s: ResourceSlices are not published, trying again: %s", self.node, error)


def _body(resource: Resource[ResourceSlice], each: ResourceSlice) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(each)
    body = {"metadata": {"ownerReferences": data["metadata"]["ownerReferences"]}, "spec": data["spec"]}
    return slice_downgraded(body) if resource.version == "v1beta1" else body


def _version(each: ResourceSlice) -> int:
    """The resourceVersion, by which the states of one object have an order."""
    version = each.metadata.resource_version
    return int(version) if version.isascii() and version.isdigit() else 0
