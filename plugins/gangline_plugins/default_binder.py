"""DefaultBinder: tells the API server, annotations and node in one write."""

from __future__ import annotations

from gangline import SUCCESS, Cycle, Handle, PodInfo, Status, hookimpl


class DefaultBinder:
    """Creates the Binding."""

    name = "DefaultBinder"

    def __init__(self, args: None, handle: Handle) -> None:
        self._handle = handle

    @hookimpl
    async def bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Bind. Raises ApiError."""
        await self._handle.client.bind(pod.namespace, pod.name, pod.uid, node, cycle.annotations)
        return SUCCESS
