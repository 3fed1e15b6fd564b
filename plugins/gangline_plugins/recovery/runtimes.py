"""Notices when the owner of running pods states another runtime than before: the runtime decides who may use spares.

If the watch of owners is late, an owner may become known after its pods have nodes. So the UIDs of unknown owners are
remembered when their pods are judged, and such an owner counts as changed when it becomes known. The pods of a deleted
owner are judged as before until they are deleted, too.
"""

from __future__ import annotations

from typing import Any

from gangline import Changes, Handle, PodInfo, group_watches, resources
from gangline_plugins.reservation.lifetimes import MAX_RUNTIME

_MOST = 50_000
"""At most this many unknown owners are remembered; then all are forgotten: most are of a kind that is not watched."""


class Runtimes:
    """Follows the annotations of owners. Each change that matters is noted in `changes`, for all rows."""

    def __init__(self, handle: Handle) -> None:
        self.changes = Changes()
        self._said: dict[str, str | None] = {}
        """The runtime in the annotation of each owner, by UID; None if it has none."""
        self._unknown: set[str] = set()
        """The UIDs of owners that were not known when their pods were judged."""
        for watched in group_watches:
            if isinstance(watched, resources.Resource):
                handle.state.store(watched).subscribe(self)

    def judged(self, pod: PodInfo) -> None:
        """Remember that a pod is judged now, by the present annotation of its owner."""
        owner = pod.controller
        if owner is not None and owner.uid not in self._said:
            if len(self._unknown) >= _MOST:
                self._unknown.clear()
            self._unknown.add(owner.uid)

    def on_upsert(self, owner: Any) -> None:
        """An owner was added or has changed."""
        uid, says = owner.metadata.uid, (owner.metadata.annotations or {}).get(MAX_RUNTIME)
        is_news = self._said[uid] != says if uid in self._said else says is not None and uid in self._unknown
        self._said[uid] = says
        self._unknown.discard(uid)
        if is_news:
            self.changes.note_all()

    def on_remove(self, owner: Any) -> None:
        """An owner was deleted."""
        self._said.pop(owner.metadata.uid, None)
