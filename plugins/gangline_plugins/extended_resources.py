"""Which DeviceClass serves which extended resource: pods that request the resource get devices of the class.

A class serves the resource that its `extendedResourceName` says, and always one that is named after the class. Of
several classes with one name the newest serves it, and of those that were made in the same second the alphabetically
first.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gangline import Handle, PodClass, State, memo_key, model, resources

PREFIX = "deviceclass.resource.kubernetes.io/"
"""With the name of a class: the resource that every class serves."""
_NONE: Mapping[str, str] = MappingProxyType({})


class ExtendedResources:
    """The resources that classes serve, for the profiles in which a plugin gives out the devices."""

    def __init__(self, state: State) -> None:
        self.version = object()
        """An object that is replaced by another one at each change."""
        self._state = state
        self._classes: dict[str, model.DeviceClass] = {}
        self._named: dict[str, set[str]] = {}
        """The names of all classes that name a resource, by the resource."""
        self._serving: dict[str, str] = {}
        """The name of the class that serves a resource, by the resource."""
        self._profiles: list[str] = []
        self._wanted = memo_key(ExtendedResources, "wanted")
        self._concerned = memo_key(ExtendedResources, "concerned")
        state.store(resources.DEVICE_CLASSES).subscribe(self)

    def give_out_in(self, handle: Handle) -> None:
        """In the profile of this handle a plugin gives out devices, until its configuration ends."""
        profile = handle.profile
        self._profiles.append(profile)
        self.version = object()
        handle.state.at_end(lambda: self._end(profile))

    def _end(self, profile: str) -> None:
        self._profiles.remove(profile)
        self.version = object()

    def are_given_out_in(self, profile: str) -> bool:
        """Whether a plugin of the profile gives out devices."""
        return profile in self._profiles

    def serving(self, resource: str) -> str | None:
        """The name of the class that serves a resource; None if none does."""
        return self._serving.get(resource)

    def of(self, cls: PodClass) -> Mapping[str, str]:
        """Each served resource that pods of this class request, in order of name, and the DeviceClass serving it."""
        if not self._serving:
            return _NONE
        found: tuple[object, Mapping[str, str]] | None = cls.memo.get(self._wanted)
        if found is None or found[0] is not self.version:
            serving = self._serving
            wanted = {name: serving[name] for name in sorted(cls.requests.real) if name in serving}
            found = cls.memo[self._wanted] = (self.version, wanted or _NONE)
        return found[1]

    def concern(self, cls: PodClass) -> bool:
        """Whether a DeviceClass serves a resource that pods of this class request. Once True, the answer stays True."""
        if self.of(cls):
            cls.memo[self._concerned] = True
        return self._concerned in cls.memo

    # The store of classes

    def on_upsert(self, each: model.DeviceClass) -> None:
        """A class was added or has changed."""
        self._change(each.metadata.name, each)

    def on_remove(self, each: model.DeviceClass) -> None:
        """A class was deleted."""
        self._change(each.metadata.name, None)

    def _change(self, name: str, new: model.DeviceClass | None) -> None:
        before, after = _resources_of(self._classes.pop(name, None)), _resources_of(new)
        if new is not None:
            self._classes[name] = new
        for resource in after:
            self._named.setdefault(resource, set()).add(name)
        for resource in before - after:
            self._named[resource].discard(name)
        if any([self._settle(resource) for resource in before | after]):
            self.version = object()
            self._state.ask_trackers()

    def _settle(self, resource: str) -> bool:
        """Choose the class that serves a resource; returns whether the class is another one than before."""
        names = sorted(self._named[resource])
        before = self._serving.pop(resource, None)
        if not names:
            del self._named[resource]
            return before is not None
        # Of equals, `max` returns the first.
        newest = max(names, key=lambda name: self._classes[name].metadata.creation_timestamp or "")
        self._serving[resource] = newest
        return newest != before


def _resources_of(each: model.DeviceClass | None) -> set[str]:
    if each is None:
        return set()
    named = each.spec.extended_resource_name
    return {PREFIX + each.metadata.name, *([named] if named and "/" in named else [])}
