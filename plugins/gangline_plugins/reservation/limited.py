"""Which of the pods that have a node may have a known end, so that nobody has to look at all pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gangline import Handle, PodInfo

MAX_RUNTIME = "gangline.dev/max-runtime"
"""On a pod or its workload: how long the pod runs at most, as a duration, for example "90m"."""

_Owner = tuple[str, str, str, str, str]


class Limited:
    """A tracker of the pods that are being deleted, or whose own fields, annotations or owners may limit their time."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all pods."""
        self._themselves: dict[str, None] = {}
        """The pods whose own fields or annotations limit their time."""
        self._owned: dict[_Owner, dict[str, None]] = {}
        """The other pods that have a controller, by the controller."""

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod is on the row now."""
        if pod.terminating or pod.cls.spec.active_deadline_seconds is not None or MAX_RUNTIME in pod.annotations:
            self._themselves[pod.uid] = None
        elif pod.owners and (owner := _owner(pod)) is not None:
            self._owned.setdefault(owner, {})[pod.uid] = None

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """As `add`, for pods of one class."""
        for pod, row in zip(pods, rows, strict=True):
            self.add(pod, row)

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on the row."""
        self._themselves.pop(pod.uid, None)
        owner = _owner(pod) if pod.owners else None
        mates = self._owned.get(owner) if owner is not None else None
        if owner is not None and mates is not None:
            mates.pop(pod.uid, None)
            if not mates:
                del self._owned[owner]

    def that_may_end(self, pods: Mapping[str, PodInfo], handle: Handle) -> Iterator[str]:
        """The UIDs of the pods whose end may be known, by what their workloads say now."""
        yield from self._themselves
        for mates in self._owned.values():
            one = next((pod for uid in mates if (pod := pods.get(uid)) is not None), None)
            if one is not None and MAX_RUNTIME in handle.workload(one):
                yield from mates


def _owner(pod: PodInfo) -> _Owner | None:
    """The identity of the pod's controller. Its UID alone proves nothing: users may write any value there."""
    found = pod.controller
    return None if found is None else (pod.namespace, found.api_version, found.kind, found.name, found.uid)
