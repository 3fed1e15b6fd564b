"""The plugins of one profile at the extension points of a binding.

Before each step the node must still be there, because a binding may wait for a long time. A plugin's fault becomes a
Status that names the plugin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from typing import Any

from gangline.api.cycle_state import Cycle
from gangline.api.hookspecs import POINTS, UNLISTED
from gangline.errors import ApiError, PluginError
from gangline.profile.background import is_cancelled
from gangline.profile.handle import FrameworkHandle
from gangline.profile.implementations import CompiledProfile, Implementation
from gangline.profile.measuring import measured
from gangline.state.pods import PodInfo
from gangline.status import SKIP, SUCCESS, Code, Status, unschedulable
from gangline.telemetry.metrics import Metrics, point_label

TOO_LATE = "what is locked for the pod was locked too long ago: the binding took too long"
GIVEN_UP = "did not end, and too many others wait"
"""The message of the cancellation of a post-bind that takes too long, while its plugin is called."""
REMOVED = "the configuration has the plugin no longer, and the plugin did not end"
"""The message of the cancellation of a call to a plugin that a new configuration has removed."""
LAST = 1.0
"""Seconds that such a call may take."""
BindFirst = Callable[[Cycle, PodInfo, str], Awaitable[Status | None]]
"""Binds a pod to a node; returns None to leave the pod to the bind plugins."""


class BindingPoints:
    """A profile and its handle, and what they do from a decision to the end of the binding."""

    def __init__(
        self, profile: CompiledProfile, handle: FrameworkHandle, metrics: Metrics, bind_first: BindFirst | None
    ) -> None:
        """`bind_first` is called before the bind plugins; None leaves all pods to them."""
        self.profile = profile
        self.handle = handle
        self.failures = metrics.failures
        self.seconds = {point: metrics.points.series(point_label(point), profile.name) for point in POINTS}
        self._at = {point: profile.points.get(point, ()) for point in (*POINTS, *UNLISTED)}.__getitem__
        """The plugins at an extension point; a pod asks for them ten times."""
        self._bind_first = bind_first
        self._calls: dict[asyncio.Task[Any] | None, tuple[str, str, str]] = {}
        """The calls of plugins that are awaited, by the tasks that await them: profile, plugin and point."""
        self._removed: Set[str] = frozenset()

    def keep_only(self, plugins: Set[str]) -> None:
        """A new configuration is in use, and its profile of this name has these plugins: each call of another plugin
        ends in a moment, also if it has begun already. Its pod is decided anew, unless it is bound.
        """
        self._removed = self.profile.plugins.keys() - plugins
        for task, call in self._calls.items():
            self._end_soon(task, call)

    def _end_soon(self, task: asyncio.Task[Any] | None, call: tuple[str, str, str]) -> None:
        if task is not None and call[1] in self._removed:
            task.get_loop().call_later(LAST, self._give_up, task, call)

    def _give_up(self, task: asyncio.Task[Any], call: tuple[str, str, str]) -> None:
        if self._calls.get(task) is call:
            task.cancel(REMOVED)

    def pre_flight(self, cycle: Cycle, pod: PodInfo, node: str) -> Status:
        """Whether the pre-binds of the pod may take long: SUCCESS if so, SKIP if not, or why they cannot be begun.

        Notes the plugins whose `pre_bind` has nothing to do for the pod.
        """
        found, idle = SKIP, set[str]()
        for impl in self._at("pre_bind_pre_flight"):
            if impl.name in cycle.skipped:
                continue
            try:
                status: Status | None = impl.call(cycle, pod, node)
            except PluginError as error:
                return Status(Code.ERROR, (str(error),), impl.name)
            if status is None or status.is_success:
                found = SUCCESS
            elif status.code is Code.SKIP:
                idle.add(impl.name)
            else:  # as in kube-scheduler, a rejection comes too late here
                return Status(Code.ERROR, status.reasons, impl.name)
        cycle.idle_at_pre_bind = frozenset(idle)
        return found

    def has_pre_binds(self, cycle: Cycle) -> bool:
        """Whether a plugin has something to do at pre_bind; `pre_flight` is called before."""
        return bool(self._called("pre_bind", cycle, cycle.idle_at_pre_bind))

    def has_post_binds(self, cycle: Cycle) -> bool:
        """Whether a plugin is to be told that the pod is bound."""
        return bool(self._called("post_bind", cycle))

    def _called(self, point: str, cycle: Cycle, idle: Set[str] = frozenset()) -> list[Implementation]:
        """The plugins that the point calls for this pod."""
        return [impl for impl in self._at(point) if impl.name not in cycle.skipped and impl.name not in idle]

    @measured("pre_bind")
    async def pre_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status:
        """Let plugins write what the API needs before the binding; the first failure counts."""
        for impl in self._called("pre_bind", cycle, cycle.idle_at_pre_bind):
            status = self.still_there(pod, node)
            if status.is_success:
                status = await self._answer(impl, "pre_bind", cycle, pod, node)
            if not status.is_success:
                return status
        return SUCCESS

    def still_there(self, pod: PodInfo, node: str) -> Status:
        """SUCCESS if the chosen node still exists and is the same one; checked before each step of the binding."""
        if self.handle.state.has_lost_node(pod.uid):
            return unschedulable(f"the node {node} that was chosen is no longer there")
        return SUCCESS

    def still_bindable(self, cycle: Cycle, pod: PodInfo, node: str) -> Status:
        """SUCCESS if the pod may still be bound to the chosen node: it is there, and no lock for the pod is too old."""
        status = self.still_there(pod, node)
        if status.is_success and self.handle.clock.monotonic() > cycle.bind_by:
            return Status(Code.ERROR, (TOO_LATE,))
        return status

    @measured("bind")
    async def bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status:
        """Bind by `bind_first`, else by the first plugin that does not skip."""
        if self._bind_first is not None and self.still_bindable(cycle, pod, node).is_success:
            bound = await self._bind_first(cycle, pod, node)
            if bound is not None:
                return bound
        for impl in self._at("bind"):
            status = self.still_bindable(cycle, pod, node)
            if status.is_success:
                status = await self._answer(impl, "bind", cycle, pod, node)
            if status.code is not Code.SKIP:
                return status
        return Status(Code.ERROR, ("no bind plugin took the pod",))

    async def _answer(self, impl: Implementation, point: str, cycle: Cycle, pod: PodInfo, node: str) -> Status:
        """A plugin's verdict; a fault becomes an error status that names the plugin."""
        call, awaited = (self.profile.name, impl.name, point), self.failures.awaited
        awaited[call] += 1
        task = asyncio.current_task()
        self._calls[task] = call
        if self._removed:
            self._end_soon(task, call)
        try:
            status: Status | None = await impl.call(cycle, pod, node)
        except BaseException as error:  # a plugin's bug fails its pod, not the scheduler
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                if task is None or error.args not in ((GIVEN_UP,), (REMOVED,)) or task.uncancel():
                    raise
                error = TimeoutError(*error.args).with_traceback(error.__traceback__)
            if isinstance(error, ApiError):  # what the API server answers is no fault of the plugin
                return Status(Code.ERROR, (str(error),), impl.name)
            return Status(Code.ERROR, (str(self.failures.raised(impl.name, point, error)),), impl.name)
        finally:
            awaited[call] -= 1
            self._calls.pop(task, None)
        return SUCCESS if status is None or status is SUCCESS else by(status, impl.name)

    @measured("post_bind")
    async def post_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> list[Status]:
        """Tell plugins that the pod is bound; returns the failures."""
        called = self._called("post_bind", cycle)
        statuses = [await self._answer(impl, "post_bind", cycle, pod, node) for impl in called]
        return [status for status in statuses if not status.is_success]


def by(status: Status, plugin: str) -> Status:
    """The status with the plugin that gave it, unless it names one."""
    return status if status.plugin else status.by(plugin)
