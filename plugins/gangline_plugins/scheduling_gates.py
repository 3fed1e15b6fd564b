"""SchedulingGates: a pod with scheduling gates is not scheduled until they are removed."""

from __future__ import annotations

from collections.abc import Sequence

from gangline import Action, EventHint, PodInfo, Status, hookimpl, on, unschedulable


class SchedulingGates:
    """Holds gated pods back."""

    name = "SchedulingGates"

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """The removal of the last gate."""
        return (on("pods", Action.UPDATE_POD_GATES_ELIMINATED),)

    @hookimpl
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Keep a gated pod out of the queue; the message names its remaining gates."""
        if not pod.gates:
            return None
        return unschedulable(f"waiting for scheduling gates: [{' '.join(pod.gates)}]", resolvable=False)
