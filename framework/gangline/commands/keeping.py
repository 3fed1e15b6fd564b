"""Room that the running scheduler keeps for waiting groups, on a listed cluster.

Only the running scheduler knows on which nodes it keeps the room. So the plugins plan the room again, on the columns of
the listed cluster, and from then on their verdicts count it.
"""

from __future__ import annotations

from collections.abc import Collection

from gangline.api.pod_group import Membership
from gangline.commands.judging import Judged
from gangline.deadline import ROOM_SECONDS, Deadline
from gangline.errors import GanglineError
from gangline.overview.summary import ReservedRoom, kept_room
from gangline.page.expecting import Expecting
from gangline.plurals import many
from gangline.profile.runtime import Runtime
from gangline.state.pods import PodInfo

_COUNTED = "the answer counts this room, as it would be planned now"
_NOT_COUNTED = "it is not counted here, so others may wait longer"


def keep_again(judged: Judged, unit: Collection[PodInfo] = ()) -> tuple[str, ...]:
    """Let the plugins keep the room that the running scheduler keeps, and tell of the room that is kept for waiting
    pods which are not of this unit: a note for each group, which says whether the answers count the room.
    """
    mine = {pod.uid for pod in unit}
    notes = {}
    for pod in judged.pending:
        room = room_kept_for(pod)
        if room is None:
            continue
        runtime = judged.runtimes.get(pod.scheduler_name)
        key = runtime.group_key(pod) if runtime is not None else ""
        if (key or pod.uid) in notes:
            continue
        is_counted = runtime is not None and bool(key) and _is_planned(runtime, key)
        what = f"{many(room.gpus, 'GPU')} on {many(room.nodes, 'node')} until {room.until} at most"
        whom = _name(runtime, pod) if runtime is not None else f"pod {pod.key}"
        note = f"the scheduler keeps room for {whom}, {what}: {_COUNTED if is_counted else _NOT_COUNTED}"
        notes[key or pod.uid] = "" if pod.uid in mine else note
    return tuple(note for note in notes.values() if note)


def room_kept_for(pod: PodInfo) -> ReservedRoom | None:
    """The room that the running scheduler keeps for a waiting pod or its group, as its message says."""
    said = pod.conditions.get("PodScheduled")
    return kept_room(said.message) if said is not None and said.status == "False" else None


def _is_planned(runtime: Runtime, key: str) -> bool:
    """Whether the plugins keep room for a group now. They are asked as after an attempt that has failed."""
    deadline = Deadline(ROOM_SECONDS)
    try:
        with runtime.evaluator.within(deadline):
            attempt = runtime.handle.attempt(key)
            if attempt is None or not attempt.needed or attempt.refit() is not None:
                return False  # as things are, the group would start
            attempt.deadline = deadline
            runtime.group_post_filter(attempt)
    except GanglineError:  # the plugins have no plan in time
        return False
    return key in Expecting(lambda: runtime.handle.outlooks).starts()


def _name(runtime: Runtime, pod: PodInfo) -> str:
    """ "gang NAMESPACE/NAME", or "pod NAMESPACE/NAME" for a pod without a gang that can be read."""
    found = runtime.handle.group_of(pod)
    return f"gang {found.group.namespace}/{found.group.name}" if isinstance(found, Membership) else f"pod {pod.key}"
