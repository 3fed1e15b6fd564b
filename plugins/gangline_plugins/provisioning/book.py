"""Which gangs of a profile have no place, and which ProvisioningRequests there are for them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from gangline import GroupAttempt, Handle, PodGroup, PodInfo, custom_resources, model, resources
from gangline_plugins.provisioning.asking import GangPodKind, base_name, kinds_of
from gangline_plugins.provisioning.carrying_out import is_of

UNSEEN = 30.0
"""Seconds for which a request counts that was made, and of which the watch has not told."""


def namespace_of(key: str) -> str:
    """The namespace in the key of a gang."""
    return key.partition(":")[2].partition("/")[0]


@dataclass(eq=False)
class LackingGang:
    """A gang that has no place, as it was when it was last tried."""

    profile: str
    group: PodGroup
    pods: tuple[PodInfo, ...]
    """The members that wait."""
    since: float
    """On the monotonic clock: when the gang was first found to have no place."""

    @property
    def priority(self) -> int:
        """The priority of the gang."""
        return self.pods[0].priority if self.group.priority is None else self.group.priority

    @cached_property
    def kinds(self) -> Sequence[GangPodKind]:
        """The kinds of its pods."""
        return kinds_of(self.pods)

    @cached_property
    def base(self) -> str:
        """The name of the requests for it, up to the number."""
        return base_name(self.profile, self.group, self.kinds)


class GangBook:
    """The gangs and requests of one profile; `news` is set when something has changed."""

    def __init__(self, handle: Handle) -> None:
        self._profile = handle.profile
        self.lacking: dict[str, LackingGang] = {}
        """The gangs without a place, by their keys."""
        self._requests: dict[str, dict[str, model.ProvisioningRequest]] = {}
        """The requests for each gang, by the key of the gang and by name."""
        self._unseen: dict[str, tuple[model.ProvisioningRequest, float]] = {}
        """Requests that were made and that the watch has not shown yet, by UID, with the time of their creation."""
        self.news = asyncio.Event()
        handle.state.store(resources.PROVISIONING_REQUESTS).subscribe(self)

    def gangs(self) -> Collection[str]:
        """The keys of the gangs that lack a place, and of the gangs that have requests."""
        return dict.fromkeys((*self.lacking, *self._requests)).keys()

    def requests(self, key: str) -> Sequence[model.ProvisioningRequest]:
        """The requests for a gang."""
        return tuple(self._requests.get(key, {}).values())

    def lacks(self, attempt: GroupAttempt, now: float) -> LackingGang:
        """A gang was tried, and has no place."""
        key, pods = attempt.group.key, tuple(attempt.pods)
        known = self.lacking.get(key)
        if known is not None and {pod.uid for pod in known.pods} == {pod.uid for pod in pods}:
            return known
        since = now if known is None else known.since
        gang = self.lacking[key] = LackingGang(self._profile, attempt.group, pods, since)
        self.news.set()
        return gang

    def forget(self, key: str) -> None:
        """The gang has its place, or is gone."""
        self.lacking.pop(key, None)

    def made(self, request: model.ProvisioningRequest, now: float) -> None:
        """A request was made: it counts until the watch reports it, unless the watch has reported it already."""
        known = self._requests.get(self._key_of(request), {}).get(request.metadata.name)
        if known is None or known.metadata.uid != request.metadata.uid:
            self.on_upsert(request)
            self._unseen[request.metadata.uid] = request, now

    def drop_unseen(self, now: float) -> None:
        """Drop requests that were made, and of which the watch has not told in a while: they are gone again."""
        for request, since in list(self._unseen.values()):
            if now - since >= UNSEEN:
                self.on_remove(request)

    def on_upsert(self, request: model.ProvisioningRequest) -> None:
        """A request was added or has changed."""
        key = self._key_of(request)
        self._unseen.pop(request.metadata.uid, None)
        if key:
            self._requests.setdefault(key, {})[request.metadata.name] = request
            self.news.set()

    def on_remove(self, request: model.ProvisioningRequest) -> None:
        """A request was deleted."""
        key = self._key_of(request)
        self._unseen.pop(request.metadata.uid, None)
        requests = self._requests.get(key, {})
        requests.pop(request.metadata.name, None)
        if not requests:
            self._requests.pop(key, None)
        self.news.set()

    def _key_of(self, request: model.ProvisioningRequest) -> str:
        """The gang for which the profile has made a request; "" for the requests of others.

        Whoever may write requests in one namespace has no say in the gangs of another.
        """
        key = (request.metadata.annotations or {}).get(custom_resources.PROVISIONING_GANG, "")
        return key if namespace_of(key) == request.metadata.namespace and is_of(request, self._profile) else ""
