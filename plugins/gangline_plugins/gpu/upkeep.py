"""Keeps the ResourceClaimTemplates of GpuClaims that name a DeviceClass, while this process leads.

Rules
- A template has the GpuClaim as its owner; only such templates are ever deleted, and none is ever changed.
- The name of a template has a hash of its spec. After a change of its GpuClaim the template before stays for `KEPT_FOR`
  seconds, so that ResourceClaims can be made for pods that name it. Pods with a ResourceClaim need no template.
- A template of an earlier GpuClaim of the same name goes after `SETTLED` seconds, if Kubernetes has not deleted it.
- If another object has the name, the GpuClaim gets an event and a message, and the keeper tries again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gangline import (
    ApiError,
    Conflict,
    Handle,
    NotFound,
    State,
    TooManyRequests,
    Unavailable,
    claim_templates,
    custom_resources,
    model,
    resources,
)
from gangline_plugins.gpu.claim_status import ClaimStatuses

log = logging.getLogger(__name__)

TEMPLATES: resources.Selection[model.ResourceClaimTemplate] = resources.Selection(
    resources.RESOURCE_CLAIM_TEMPLATES, label_selector=f"{custom_resources.CLAIM_TEMPLATE}=true", is_needed=False
)
"""The templates that schedulers have made."""
KEPT_FOR = 600.0
"""Seconds for which a template stays after its GpuClaim has changed."""
AGAIN = 30.0
"""Seconds after which a template is tried again that could not be made."""
SETTLED = 10.0
"""Seconds after which this process knows of a GpuClaim that owns a template: one of another UID is gone then."""
SOON = 2.0
"""Seconds after which a write is tried again that the API server did not answer."""
AT_ONCE = 16
NOT_MADE = "ClaimTemplateNotMade"
"""The reason of the event on a GpuClaim whose template cannot be made."""
_MOST_TOLD = 10_000
_OWNER = (resources.GPU_CLAIMS.kind, resources.GPU_CLAIMS.api_version)

Key = tuple[str, str]
"""Namespace and name of a GpuClaim."""
Template = model.ResourceClaimTemplate


@dataclass(frozen=True, slots=True)
class TemplatePlan:
    """What is to be done for one GpuClaim."""

    make: Template | None = None
    remove: tuple[Template, ...] = ()
    leaving: tuple[Template, ...] = ()
    """The templates that are not needed any more, and stay for a while."""


def plan(
    claim: custom_resources.GpuClaim | None, templates: Iterable[Template], since: Mapping[str, float], now: float
) -> TemplatePlan:
    """What is to be done, given all templates that GpuClaims of this name own, and since when they are not needed."""
    wanted = None
    if claim is not None and claim.spec.device_class_name and not any(claim_templates.faults(claim.spec)):
        wanted = claim_templates.template_of(claim)
    uid = claim.metadata.uid if claim is not None else ""
    remove, leaving = [], []
    for each in templates:
        is_own = owner_uid(each) == uid
        if is_own and wanted is not None and each.metadata.name == wanted.metadata.name:
            wanted = None
        elif now >= leaves_at(each, is_own, since, now):
            remove.append(each)
        else:
            leaving.append(each)
    return TemplatePlan(wanted, tuple(remove), tuple(leaving))


def leaves_at(template: Template, is_own: bool, since: Mapping[str, float], now: float) -> float:
    """When a template that is not needed is removed; `is_own`: whether the GpuClaim that made it is still there. The
    plan compares, and the pause ends, with this same sum: if they rounded differently, a look might come too early and
    lead to another one at once, for ever where time stands still.
    """
    return since.get(template.metadata.uid, now) + (KEPT_FOR if is_own else SETTLED)


def owner_of(template: Template) -> model.OwnerReference | None:
    """The GpuClaim that owns a template; None for a template that no scheduler has made."""
    for each in template.metadata.owner_references:
        if each.controller and (each.kind, each.api_version) == _OWNER:
            return each
    return None


def owner_uid(template: Template) -> str:
    """The UID of the GpuClaim that owns a template; "" for none."""
    owner = owner_of(template)
    return owner.uid if owner is not None else ""


class Book:
    """Which GpuClaims have to be looked after; all profiles share it."""

    def __init__(self, state: State) -> None:
        self.claims = state.store(resources.GPU_CLAIMS)
        self.workers = 0
        """How many profiles look after templates now. On a standby none does; each begins with all GpuClaims."""
        self.due: dict[Key, None] = {}
        self.news = asyncio.Event()
        self.lock = asyncio.Lock()
        self.later: dict[Key, float] = {}
        """When to look after a GpuClaim again, in seconds of the clock's monotonic time."""
        self.since: dict[str, float] = {}
        """When each template was found not to be needed any more, by UID."""
        self.failed: set[Key] = set()
        self.told: dict[tuple[str, str], None] = {}
        """The events so far: the UID of a GpuClaim and the note."""
        self._templates: defaultdict[Key, dict[str, Template]] = defaultdict(dict)
        """The templates that each GpuClaim owns, by name."""
        self._stores = (self.claims, state.store(resources.RESOURCE_CLAIM_TEMPLATES))
        for store in self._stores:
            store.subscribe(self)

    def add(self, key: Key) -> None:
        """Look after a GpuClaim soon."""
        if not self.workers:
            return
        self.later.pop(key, None)
        self.due[key] = None
        self.news.set()

    def wake(self, now: float) -> None:
        """Look after those GpuClaims soon whose time has come."""
        for key in [key for key, when in self.later.items() if when <= now]:
            del self.later[key]
            self.add(key)

    def add_all(self) -> None:
        """Look after all GpuClaims soon: another process may have begun what is to be done."""
        for claim in self.claims:
            if claim.spec.device_class_name:
                self.add((claim.metadata.namespace, claim.metadata.name))
        for key in self._templates:
            self.add(key)

    def templates(self, key: Key) -> tuple[Template, ...]:
        """The templates that GpuClaims of this name own."""
        return tuple(self._templates[key].values()) if key in self._templates else ()

    def on_upsert(self, obj: Any) -> None:
        """A GpuClaim or a template was added or has changed."""
        if isinstance(obj, custom_resources.GpuClaim):
            key = obj.metadata.namespace, obj.metadata.name
            if obj.spec.device_class_name or key in self._templates:
                self.add(key)
        elif (owner := owner_of(obj)) is not None:
            self._templates[obj.metadata.namespace, owner.name][obj.metadata.name] = obj
            self.add((obj.metadata.namespace, owner.name))

    def on_remove(self, obj: Any) -> None:
        """A GpuClaim or a template was deleted."""
        if isinstance(obj, custom_resources.GpuClaim):
            key = obj.metadata.namespace, obj.metadata.name
            self.failed.discard(key)
            if key in self._templates:
                self.add(key)
        elif (owner := owner_of(obj)) is not None:
            key = obj.metadata.namespace, owner.name
            self._templates[key].pop(obj.metadata.name, None)
            if not self._templates[key]:
                del self._templates[key]
            self.since.pop(obj.metadata.uid, None)
            self.add(key)


class Upkeep:
    """Makes and removes templates for one profile; the profiles take turns."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._statuses = ClaimStatuses(handle)
        self._book = handle.state.shared(Book, handle.state)

    async def run(self) -> None:
        """Look after the templates until cancelled."""
        self._book.workers += 1
        try:
            await self._work()
        finally:
            self._book.workers -= 1
            if not self._book.workers:
                self._book.due.clear()

    async def _work(self) -> None:
        book = self._book
        book.add_all()
        while True:
            book.news.clear()
            async with book.lock:
                await self._look()
            first = min(book.later.values(), default=None)
            pause = None if first is None else max(0.0, first - self._handle.clock.monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await book.news.wait()
            book.wake(self._handle.clock.monotonic())

    async def _look(self) -> None:
        """Do what is due."""
        while self._book.due:
            keys = list(self._book.due)[:AT_ONCE]
            for key in keys:
                del self._book.due[key]
            await asyncio.gather(*map(self._look_after, keys))

    async def _look_after(self, key: Key) -> None:
        book, now = self._book, self._handle.clock.monotonic()
        claim: custom_resources.GpuClaim | None = book.claims.get(key[1], key[0])
        found = plan(claim, book.templates(key), book.since, now)
        again = list[float]()
        for each in book.templates(key):
            if each not in (*found.leaving, *found.remove):
                book.since.pop(each.metadata.uid, None)
        for each in found.leaving:
            book.since.setdefault(each.metadata.uid, now)
            is_own = claim is not None and owner_uid(each) == claim.metadata.uid
            again.append(leaves_at(each, is_own, book.since, now))
        again += [now + SOON for each in found.remove if not await self._remove(each)]
        if claim is not None and found.make is not None:
            again += [now + pause for pause in await self._make(claim, found.make)]
        elif key in book.failed and claim is not None:
            book.failed.discard(key)
            self._statuses.set(claim, custom_resources.GpuClaimStatus("Pending"))
        if again:
            book.later[key] = min(again)

    async def _remove(self, template: Template) -> bool:
        """Delete a template, whether that need not be tried again."""
        metadata = template.metadata
        try:
            await self._handle.client.delete(
                resources.RESOURCE_CLAIM_TEMPLATES, metadata.name, namespace=metadata.namespace, uid=metadata.uid
            )
        except (NotFound, Conflict):
            return True  # another one has the name now
        except ApiError as error:
            log.warning("ResourceClaimTemplate %s/%s is not deleted yet: %s", metadata.namespace, metadata.name, error)
            return False
        return True

    async def _make(self, claim: custom_resources.GpuClaim, template: Template) -> list[float]:
        """Create a template; returns after how many seconds to look again, if at all."""
        name = template.metadata.name
        try:
            await self._handle.client.create(
                resources.RESOURCE_CLAIM_TEMPLATES, template, namespace=template.metadata.namespace
            )
        except Conflict:
            return await self._look_at(claim, template)
        except (Unavailable, TooManyRequests) as error:
            log.warning("ResourceClaimTemplate %s/%s is not made yet: %s", claim.metadata.namespace, name, error)
            return [SOON]
        except ApiError as error:
            return self._fail(claim, f"ResourceClaimTemplate {name} cannot be made: {error}")
        return []

    async def _look_at(self, claim: custom_resources.GpuClaim, template: Template) -> list[float]:
        """The name of a template is taken: by the template itself, by that of an earlier GpuClaim, or by a stranger."""
        metadata = template.metadata
        try:
            found = await self._handle.client.get(
                resources.RESOURCE_CLAIM_TEMPLATES, metadata.name, namespace=metadata.namespace
            )
        except ApiError:
            return [SOON]
        if owner_uid(found) == claim.metadata.uid and found.spec.spec == template.spec.spec:
            return [] if (found.metadata.labels or {}).get(custom_resources.CLAIM_TEMPLATE) == "true" else [AGAIN]
        owner = owner_of(found)
        if owner is not None and owner.name == claim.metadata.name:
            return [SOON]  # it is about to go
        return self._fail(claim, f"ResourceClaimTemplate {metadata.name} exists, and does not belong to the GpuClaim")

    def _fail(self, claim: custom_resources.GpuClaim, note: str) -> list[float]:
        """Tell why the template cannot be made, in one event and in the status of the GpuClaim."""
        metadata, book = claim.metadata, self._book
        book.failed.add((metadata.namespace, metadata.name))
        if (metadata.uid, note) not in book.told:
            book.told[metadata.uid, note] = None
            if len(book.told) > _MOST_TOLD:
                del book.told[next(iter(book.told))]
            regarding = model.TypedReference(
                kind=claim.kind,
                namespace=metadata.namespace,
                name=metadata.name,
                uid=metadata.uid,
                api_version=claim.api_version,
            )
            self._handle.recorder.about(regarding, self._handle.profile, "Warning", NOT_MADE, note, "Scheduling")
        self._statuses.set(claim, custom_resources.GpuClaimStatus("Failed", message=note))
        return [AGAIN]
