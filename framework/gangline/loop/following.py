"""The informers: some that every scheduler needs, and others for the `watches` of the plugins in use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from gangline.kube.handing_over import Writes, number
from gangline.kube.informer import Informer, Key
from gangline.kube.interface import Client, Handler
from gangline.kube.optional import OptionalInformer
from gangline.kube.resources import CONFIG_MAPS, NODES, PODS, PVCS, PVS, RESOURCE_CLAIMS, STORED, Selection
from gangline.loop.quarantine import Quarantine, what_a_pod_takes
from gangline.loop.watching import Cluster, NodeHandler, PodHandler, StoreHandler
from gangline.model import HasMetadata
from gangline.telemetry.metrics import Metrics

WRITTEN = frozenset((PODS, PVCS, PVS, CONFIG_MAPS, RESOURCE_CLAIMS))
"""The kinds that leaders write and read for decisions; a new leader has to have seen all writes before it decides.
Device locks are not among them, because the API server judges each lock anew."""
TOLD_WITHIN = 0.5
"""Seconds that a watch may take to tell what the last leader has written."""
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"


class Informers:
    """Keep the cache up to date with the cluster."""

    def __init__(self, client: Client, cluster: Cluster, pods: PodHandler, metrics: Metrics, random: Random) -> None:
        self._client = client
        self._random = random
        self._cluster = cluster
        self._metrics = metrics
        self._group: asyncio.TaskGroup | None = None
        guarded = Quarantine(PODS, pods, cluster.recorder, metrics, what_a_pod_takes)
        self._always: list[Informer[Any]] = [
            *(self._stored(Selection(resource)) for resource in STORED),
            self._informer(Selection(NODES), self._guarded(Selection(NODES), NodeHandler(cluster))),
            self._informer(Selection(PODS, field_selector=LIVE_PODS), guarded),
        ]
        self._followed: dict[Selection[Any], Informer[Any]] = {}
        self._tasks: dict[Informer[Any], asyncio.Task[None]] = {}
        self._all: tuple[Informer[Any], ...] = tuple(self._always)

    def __iter__(self) -> Iterator[Informer[Any]]:
        """The informers; the ones of plugins come first, so that most objects are known when nodes and pods are listed.

        Any thread may call this.
        """
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the informers in this task group."""
        self._group = group
        for informer in self:
            self._begin(informer)

    def _begin(self, informer: Informer[Any]) -> None:
        if self._group is not None:
            self._tasks[informer] = self._group.create_task(informer.run())

    async def synced(self) -> None:
        """Wait until all objects are listed."""
        while waiting := next((each for each in self if not each.synced.is_set()), None):
            await waiting.synced.wait()

    async def catch_up(self, versions: Mapping[str, int]) -> None:
        """Take over from another leader: make sure that everything that it has written is known here.

        `versions` are the resourceVersions that it has left, by kind: see `kube.handing_over`. A kind that leaders
        write is listed anew if no version was left for it, or if its watch does not reach the version in TOLD_WITHIN
        seconds. The watches of all other kinds go on.
        """
        left = [informer for informer in self._telling() if informer.resource.key in versions]
        for informer in self:
            if informer.resource in WRITTEN and informer not in left:
                informer.relist()
            else:
                informer.resume()
        with suppress(TimeoutError):
            async with asyncio.timeout(TOLD_WITHIN):
                for informer in left:
                    await informer.reached(versions[informer.resource.key])
        for informer in left:
            if not informer.has_reached(versions[informer.resource.key]):
                informer.relist()

    def watch_pods_anew(self) -> None:
        """The watch of pods goes on over a new connection, because the one at hand may be dead."""
        for informer in self:
            if informer.resource is PODS:
                informer.resume()

    async def confirmed(self, writes: Writes) -> None:
        """Wait until the watches have shown everything that this process has written."""
        for informer in self._telling():
            while informer.resource is PODS and self._cluster.cache.unconfirmed:
                await informer.moved()
            await informer.reached(writes.last(informer.resource))

    def told(self, writes: Writes) -> dict[str, int]:
        """The resourceVersions that the next leader must have seen, by kind of the objects that leaders write. A kind
        is left out while its watch has not shown every write of this process. Any thread may call this.
        """
        return {
            informer.resource.key: informer.last_seen
            for informer in self._telling()
            if number(informer.resource_version) and informer.last_seen >= writes.last(informer.resource)
        }

    def _telling(self) -> list[Informer[Any]]:
        """The informers that see every write of a leader, but for bindings and changes of pods that have ended."""
        return [each for each in self if each.resource in WRITTEN and (each.is_whole or each.resource is PODS)]

    def follow(self, selections: Iterable[Selection[Any]]) -> None:
        """Follow these selections of plugins from now on, and no others."""
        wanted = list(dict.fromkeys(selections))
        whole = {each.resource for each in wanted if each == Selection(each.resource)}
        always = {informer.resource for informer in self._always}
        needed = [
            each
            for each in wanted
            if each.resource not in always and (each.resource not in whole or each == Selection(each.resource))
        ]
        for each in self._followed.keys() - needed:
            self._leave(each)
        for each in needed:
            if each not in self._followed:
                informer = self._followed[each] = self._stored(each, OptionalInformer)
                self._begin(informer)
        self._all = (*self._followed.values(), *self._always)

    def _leave(self, selection: Selection[Any]) -> None:
        """No plugin watches this selection any more: drop the objects that no other selection follows."""
        informer = self._followed.pop(selection)
        task = self._tasks.pop(informer, None)
        if task is not None:
            task.cancel()
        others = [each for each in self._followed.values() if each.resource == selection.resource]
        informer.leave(set[Key]().union(*(each.known for each in others)))

    def _stored(self, selection: Selection[Any], kind: type[Informer[Any]] = Informer) -> Informer[Any]:
        handler = StoreHandler(self._cluster, selection.resource)
        is_whole = selection == Selection(selection.resource, is_needed=selection.is_needed)
        guarded = self._guarded(selection, handler)
        if is_whole:
            return self._informer(selection, guarded, kind, handler.reached)
        return self._informer(selection, guarded, kind, first=_Overlapping(guarded, lambda: self._of(selection)))

    def _of(self, selection: Selection[Any]) -> list[Informer[Any]]:
        """The informers of all selections of the same kind that plugins watch."""
        return [each for each in self._followed.values() if each.resource == selection.resource]

    def _guarded(self, selection: Selection[Any], handler: Handler[Any]) -> Quarantine[Any]:
        return Quarantine(selection.resource, handler, self._cluster.recorder, self._metrics)

    def _informer(
        self,
        selection: Selection[Any],
        guarded: Quarantine[Any],
        kind: type[Informer[Any]] = Informer,
        on_reached: Callable[[str], None] = lambda version: None,
        first: Handler[Any] | None = None,
    ) -> Informer[Any]:
        """An informer that tells `first`, or else `guarded`."""
        return kind(
            self._client,
            selection.resource,
            first or guarded,
            namespace=selection.namespace or None,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            clock=self._cluster.clock.monotonic,
            on_unreadable=guarded.unreadable,
            on_reached=on_reached,
            is_needed=selection.is_needed,
            random=self._random,
        )


class _Overlapping:
    """Stands before the handler of a kind of which several selections may be followed.

    The watch of one selection may be slower than that of another one: a state is passed over if another watch has told
    a newer one, and an object is gone only when no selection has it any more.
    """

    def __init__(self, handler: Handler[Any], same_kind: Callable[[], Sequence[Informer[Any]]]) -> None:
        self._handler = handler
        self._same_kind = same_kind

    def upsert(self, obj: HasMetadata, /) -> None:
        """An object exists, or has changed."""
        metadata = obj.metadata
        if not any(
            (each.version_of(metadata.namespace, metadata.name) or 0) > number(metadata.resource_version)
            for each in self._same_kind()
        ):
            self._handler.upsert(obj)

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        """An object is in this selection no longer."""
        if all(each.version_of(namespace, name) is None for each in self._same_kind()):
            self._handler.remove(namespace, name, uid)
