"""Members that have succeeded: they hold no node any more, and still count towards the number that their group needs.

Otherwise a member that is created again after another one has succeeded would wait for ever. Volcano counts so too.
The API server has such pods until somebody deletes them, so a scheduler that starts knows of them as well. Members that
have failed do not count: their controllers create others.

- A pod counts for members with the same topmost controller, and for members without one if it has none itself: the pods
  of the next run of a CronJob have another Job, though they may name the same group.
- Jobs and JobSets say in their status how many pods have succeeded, and their readers subtract these
  (`PodGroup.knows_succeeded`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from gangline.api.pod_group import Membership, PodGroup
from gangline.errors import InvalidObject
from gangline.groups.members import Grouping, GroupMembers
from gangline.kube.resources import Resource, Selection
from gangline.model import Object, ObjectMeta, Pod, PodSpec, SchedulingGroup
from gangline.state.pods import PodInfo


class SucceededSpec(Object):
    """The fields of the spec that say which group the pod was in."""

    scheduling_group: SchedulingGroup | None = None


class SucceededPod(Object):
    """A pod that has succeeded: only what groups are read from."""

    metadata: ObjectMeta
    spec: SucceededSpec = msgspec.field(default_factory=SucceededSpec)


SUCCEEDED_PODS = Resource("", "v1", "pods", "Pod", SucceededPod, key="succeededpods")
SUCCEEDED = Selection(SUCCEEDED_PODS, field_selector="status.phase=Succeeded")
Counts = Mapping[str, int]
"""How many members have succeeded, by subgroup."""


class Succeeded:
    """Follows the pods that have succeeded, and reduces what their groups need."""

    def __init__(
        self,
        groups: Grouping,
        record: Callable[[Pod], PodInfo],
        owner_of: Callable[[PodInfo], str],
        changed: Callable[[], None],
    ) -> None:
        """`groups` says which group a pod is in, without regard to members that have succeeded; `owner_of` returns the
        UID of a pod's topmost controller; `changed` is called when a group may need another number of members.
        """
        self._groups = groups
        self._record = record
        self._owner_of = owner_of
        self._changed = changed
        self._members = GroupMembers(groups)
        self._pods: dict[str, PodInfo] = {}
        self._counts: dict[tuple[str, str], Counts] = {}
        self._reduced: dict[tuple[str, str], tuple[PodGroup, PodGroup]] = {}
        """By the key of a group and the UID of an owner: the group as it was read, and the group with reduced needs."""
        self._version = -1

    def on_upsert(self, pod: SucceededPod) -> None:
        """See `StoreListener`."""
        uid = pod.metadata.uid
        if uid in self._pods:
            return
        try:
            record = self._record(Pod(pod.metadata, PodSpec(scheduling_group=pod.spec.scheduling_group)))
        except InvalidObject:
            return  # a pod without a record was no member
        if self._groups.of(record) is None:
            return
        self._pods[uid] = record
        self._members.add(record, -1)
        self._forget()

    def on_remove(self, pod: SucceededPod) -> None:
        """See `StoreListener`."""
        record = self._pods.pop(pod.metadata.uid, None)
        if record is not None:
            self._members.remove(record, -1)
            self._forget()

    def _forget(self) -> None:
        self._counts.clear()
        self._reduced.clear()
        self._changed()

    def group_key(self, pod: SucceededPod) -> str:
        """The key of the group that a pod was in; "" if it was in none."""
        record = self._pods.get(pod.metadata.uid)
        membership = None if record is None else self._groups.of(record)
        return membership.group.key if isinstance(membership, Membership) else ""

    def reduced(self, membership: Membership, pod: PodInfo) -> Membership:
        """The membership of a pod, with the needs of its group reduced by the members that have succeeded."""
        group = membership.group
        if not self._pods or group.knows_succeeded or not self._members.of(group.key):
            return membership
        if self._version != self._groups.version:
            self._version = self._groups.version
            self._counts.clear()
        place = (group.key, self._owner_of(pod))
        counts = self._counts.get(place)
        if counts is None:
            counts = self._counts[place] = self._count(*place)
        if not counts:
            return membership
        known = self._reduced.get(place)
        if known is None or known[0] is not group:
            known = self._reduced[place] = (group, without(group, counts))
        return replace(membership, group=known[1])

    def _count(self, key: str, owner: str) -> Counts:
        found: Counter[str] = Counter()
        for pod in self._members.of(key):
            membership = self._groups.of(pod)
            if isinstance(membership, Membership) and self._owner_of(pod) == owner:
                found[membership.subgroup] += 1
        return found


def without(group: PodGroup, succeeded: Counts) -> PodGroup:
    """The group with its needs reduced by these members, to at least 1: a member that is created anew needs itself."""
    parts = tuple(
        replace(part, min_member=max(0, part.min_member - succeeded.get(part.name, 0))) for part in group.subgroups
    )
    return replace(group, min_member=max(1, group.min_member - sum(succeeded.values())), subgroups=parts)
