"""The plugins of one profile at reserve and permit: the end of a decision, and the wait before its binding."""

from __future__ import annotations

from collections.abc import Mapping

from gangline.api.cycle_state import Cycle
from gangline.errors import PluginError
from gangline.profile.binding_points import BindFirst, BindingPoints, by
from gangline.profile.handle import FrameworkHandle
from gangline.profile.implementations import CompiledProfile
from gangline.profile.measuring import measured
from gangline.profile.reserving import Reserving
from gangline.queueing.waiting import PodAtPermit
from gangline.state.pods import PodInfo
from gangline.status import SUCCESS, Code, Status
from gangline.telemetry.metrics import Metrics


class ReservePoints(BindingPoints):
    """A profile and its handle, and what they do from the choice of a node to the end of the binding."""

    def __init__(
        self, profile: CompiledProfile, handle: FrameworkHandle, metrics: Metrics, bind_first: BindFirst | None
    ) -> None:
        """As for `BindingPoints`."""
        super().__init__(profile, handle, metrics, bind_first)
        self.reserving = Reserving(self._at("reserve") + self._at("permit"), self.failures)
        """Reserve and permit for the members of groups."""

    @measured("reserve")
    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> Status:
        """Let plugins reserve what the pod takes; the first rejection counts, and `unreserve` undoes the reservations.

        Raises PluginError.
        """
        for impl in self._at("reserve"):
            if impl.name in cycle.skipped:
                continue
            status = impl.call(cycle, pod, node)
            if status is not None and not status.is_success:
                return by(status, impl.name)
        return SUCCESS

    def unreserve(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """Give back what was reserved, in reverse order; the pod is no longer held at permit.

        An exception of one plugin does not stop the others; the first PluginError is raised at the end.
        """
        self.leave_permit(pod)
        errors = []
        for impl in reversed(self._at("unreserve")):
            try:
                impl.call(cycle, pod, node)
            except PluginError as error:  # the other plugins must give back as well
                errors.append(error)
        if errors:
            raise errors[0]

    @measured("permit")
    def permit(self, cycle: Cycle, pod: PodInfo, node: str) -> tuple[Status, dict[str, float]]:
        """The verdict, and for each plugin that holds the pod the longest time in seconds. Raises PluginError.

        A pod that a plugin holds waits at permit until `leave_permit` or `unreserve` is called.
        """
        holds: dict[str, float] = {}
        for impl in self._at("permit"):
            if impl.name in cycle.skipped:
                continue
            status = impl.call(cycle, pod, node)
            if status is None or status.is_success:
                continue
            if status.code is not Code.WAIT:
                return by(status, impl.name), {}
            holds[impl.name] = status.timeout
        self._hold(pod, node, holds)
        return SUCCESS, holds

    def reserve_and_permit(self, cycle: Cycle, pod: PodInfo, node: str) -> tuple[Status, dict[str, float]]:
        """As `Reserving.one`; a pod that a plugin holds waits at permit, as after `permit`."""
        status, holds = self.reserving.one(cycle, pod, node)
        self._hold(pod, node, holds)
        return status, holds

    def _hold(self, pod: PodInfo, node: str, holds: Mapping[str, float]) -> None:
        if holds:
            self.handle.waiting.add(PodAtPermit(pod, node, holds))

    def at_permit(self, pod: PodInfo) -> PodAtPermit | None:
        """The pod as it waits at permit, with its verdict if there is one; None if no plugin has held it."""
        return self.handle.waiting.get(pod.uid)

    def leave_permit(self, pod: PodInfo) -> None:
        """The verdict on the pod is known: it waits at permit no longer."""
        self.handle.waiting.remove(pod.uid)
