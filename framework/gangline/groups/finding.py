"""Finds the group of a pod: asks the readers in their order, and remembers their answers.

A reader looks at annotations, owners and PodGroups, so its answer depends on objects that change. `Seen` notes which
objects a reader has looked at; the answer is valid until one of them changes in a way that matters. As most changes
matter to no pod, there are two quick checks before that: a counter of all such changes, in the slot of the pod, and the
labels and annotations without which a pod without owners is in no group.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from gangline.api.pod_group import Membership, PodGroup, Problem, TopologyConstraint
from gangline.groups import keys
from gangline.groups.owners import Owners, controller_of
from gangline.groups.readers import READERS, watched_by
from gangline.groups.reading import Known, Reader
from gangline.groups.seen import Seen, Sight
from gangline.groups.succeeded import SUCCEEDED_PODS, Succeeded, SucceededPod
from gangline.state.pods import PodInfo
from gangline.state.slots import remember_group
from gangline.wire.custom_resources import CLAIM

_LABELS = frozenset({keys.POD_GROUP, keys.KUEUE_GROUP, keys.KOORDINATOR_GROUP, keys.LWS_GROUP, keys.JOB_SET})
_ANNOTATIONS = frozenset({keys.KAI_GROUP, keys.VOLCANO_GROUP, keys.KOORDINATOR_GROUP, CLAIM})
"""A pod without an owner that has none of these labels and annotations is in no group."""
_SLICE = 100
"""The number of succeeded pods whose groups one step reads, in some 3 ms."""
_FOREVER = -1
"""In place of a number of rings: no change of an object can put the pod into a group."""


class _Bell:
    """Counts every change of an object from which groups are read."""

    def __init__(self) -> None:
        self.rings = 0

    def ring(self) -> None:
        """Something has changed."""
        self.rings += 1

    def on_upsert(self, obj: Any) -> None:
        """See `StoreListener`."""
        self.rings += 1

    def on_remove(self, obj: Any) -> None:
        """See `StoreListener`."""
        self.rings += 1


class _Raw:
    """The groups as they are read, without regard to members that have succeeded."""

    def __init__(self, groups: Groups) -> None:
        self.of = groups.as_read
        self.annotations = groups.annotations
        self._groups = groups

    @property
    def version(self) -> int:
        """See `Grouping`."""
        return self._groups.version


class Groups:
    """The groups of pods, as the readers find them.

    An answer is valid until one of the objects from which it was read changes in a way that matters.
    """

    def __init__(self, lookup: Known, readers: tuple[Reader, ...] = READERS) -> None:
        self._lookup = lookup
        self._readers = readers
        self._types = {kind.key: kind.type for kind in watched_by(readers)}
        self._bell = _Bell()
        for kind in watched_by(readers):
            lookup.store(kind).subscribe(self._bell)
        self._owners = Owners(lookup)
        self._succeeded = Succeeded(_Raw(self), lookup.record, self._controller, self._bell.ring)
        self._known: weakref.WeakKeyDictionary[PodInfo, tuple[Membership | Problem | None, Sight]] = (
            weakref.WeakKeyDictionary()
        )
        self._last: PodGroup | None = None
        """The group that was read last."""
        lookup.store(SUCCEEDED_PODS).subscribe(self._succeeded)

    def of(self, pod: PodInfo) -> Membership | Problem | None:
        """The pod's group; a Problem if the pod names a group that cannot be used, None if it is in no group."""
        memo = pod.slot.membership
        if memo is not None and (memo[0] == self._bell.rings or memo[0] == _FOREVER):
            answer: Membership | Problem | None = memo[1]
        elif not pod.owners and not pod.group and _has_no_trigger(pod):
            answer = None
            remember_group(pod.slot, (_FOREVER, None))
        else:
            answer = self._look(pod)
            remember_group(pod.slot, (self._bell.rings, answer))
        return answer

    def _look(self, pod: PodInfo) -> Membership | Problem | None:
        found = self.as_read(pod)
        return self._succeeded.reduced(found, pod) if isinstance(found, Membership) else found

    def as_read(self, pod: PodInfo) -> Membership | Problem | None:
        """As `of`, without regard to members that have succeeded."""
        known = self._known.get(pod)
        if known is not None and known[1].holds():
            return known[0]
        return self._read(pod)

    def annotations(self, pod: PodInfo) -> Mapping[str, str]:
        """The annotations of a pod and of its owners; the nearest one wins."""
        return self._owners.annotations(pod)

    @property
    def owners(self) -> Owners:
        """The owners of pods."""
        return self._owners

    @property
    def version(self) -> int:
        """Grows when an object changes from which groups are read."""
        return self._bell.rings

    def is_member_hint(self, pod: PodInfo, old: Any, new: Any) -> bool:
        """Whether the pod's group is read from the changed object; a hint for events of such kinds."""
        known = self._known.get(pod)
        if known is None:
            self.of(pod)
            known = self._known.get(pod)
        obj = old if new is None else new
        metadata = getattr(obj, "metadata", None)
        if known is None or metadata is None:
            return False
        return any(
            name == metadata.name and namespace == metadata.namespace and isinstance(obj, self._types.get(key, object))
            for key, namespace, name in known[1].found
        )

    def start_over(self) -> Iterator[None]:
        """All objects have been listed: read anew the groups of pods that have succeeded, a slice at each step."""
        store = self._lookup.store(SUCCEEDED_PODS)
        for number, pod in enumerate(list(store), 1):
            if store.get(pod.metadata.name, pod.metadata.namespace) is pod:  # not deleted or changed between two steps
                self._succeeded.on_upsert(pod)
            if number % _SLICE == 0:
                yield

    def is_mate_hint(self, pod: PodInfo, old: SucceededPod | None, new: SucceededPod | None) -> bool:
        """Whether a member of the pod's group has succeeded; a hint for events of succeeded pods."""
        key = self.key_of_succeeded(old, new)
        membership = self.of(pod) if key else None
        return isinstance(membership, Membership) and membership.group.key == key

    def key_of_succeeded(self, old: SucceededPod | None, new: SucceededPod | None) -> str | None:
        """The key of the group of which a member has succeeded; None if the pod was no member."""
        return (self._succeeded.group_key(new) or None) if new is not None else None

    def subjects(self, pod: PodInfo) -> Iterator[Hashable]:
        """The key of the pod's group, and the places from which the group is read: see `place_of_object`."""
        answer = self.as_read(pod)
        if answer is not None:
            yield answer.group.key if isinstance(answer, Membership) else answer.key
        for _, namespace, name in self._known[pod][1].found:
            yield namespace, name

    def _controller(self, pod: PodInfo) -> str:
        """The UID of the topmost controller of a pod; "" if it has none."""
        return self._owners.top(pod).uid if controller_of(pod.owners) is not None else ""

    def _read(self, pod: PodInfo) -> Membership | Problem | None:
        seen = Seen(self._lookup, self._owners.chain)
        answer: Membership | Problem | None = None
        for reader in self._readers:
            answer = reader.read(pod, seen)
            if answer is not None:
                break
        if isinstance(answer, Membership):
            last = self._last
            if last is not None and last == answer.group:  # members share one object, which is quick to compare
                answer = Membership(last, answer.subgroup, answer.index)
            self._last = answer.group
        self._known[pod] = (answer, seen.sight())
        return answer


def place_of_object(old: Any, new: Any) -> tuple[str, str] | None:
    """The namespace and name of an object that has changed."""
    metadata = getattr(old if new is None else new, "metadata", None)
    return None if metadata is None else (metadata.namespace, metadata.name)


def conflict(one: PodGroup, other: PodGroup) -> str:
    """How two definitions of the same group contradict each other; empty if they agree."""
    if one == other:
        return ""
    different = [
        f"{field.name} {_shown(getattr(one, field.name))} and {_shown(getattr(other, field.name))}"
        for field in fields(PodGroup)
        if getattr(one, field.name) != getattr(other, field.name)
    ]
    return f"its pods define the group {one.namespace}/{one.name} differently: {'; '.join(different)}"


def _has_no_trigger(pod: PodInfo) -> bool:
    return _ANNOTATIONS.isdisjoint(pod.annotations) and _LABELS.isdisjoint(pod.labels)


def _shown(value: Any) -> str:
    if isinstance(value, TopologyConstraint):
        steps = ",".join(step.level or "any" for step in value.fallback)
        said = {"required": value.required, "preferred": value.preferred, "fallback": steps}
        return " ".join(f"{key} {level}" for key, level in said.items() if level) or "unconstrained"
    if isinstance(value, tuple):
        return f"({', '.join(f'{part.name}: {part.min_member}, {_shown(part.topology)}' for part in value)})"
    return str(value)
