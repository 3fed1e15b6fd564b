"""A cluster without room on which the test plays cluster-autoscaler: it answers requests, and adds nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from gangline import custom_resources, model, resources, rfc3339
from gangline.simulate import Faults, Scheduler, SimulatedClient, no_faults
from gangline.testing.gang_stories import GangCluster, profile_with

Result = TypeVar("Result")
DELAY = 30.0


class AutoscaledCluster(GangCluster):
    """Leaves of nodes with eight GPUs each, and gangs of pods that want a node each."""

    def __init__(self, leaves: int = 0, faults: Faults = no_faults, **args: Any) -> None:
        super().__init__(leaves)
        self.profile = profile_with("Provisioning", **{"delaySeconds": DELAY, **args})
        self.client = SimulatedClient(self.server, latency={"create": 0.05, "bind": 0.05}, faults=faults)

    @asynccontextmanager
    async def schedules(self) -> AsyncIterator[Scheduler]:
        """A scheduler runs."""
        async with self.scheduling(self.profile, self.client) as scheduler:
            yield scheduler

    def tell(self, story: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Play a story beside a scheduler."""

        async def told() -> Result:
            async with self.schedules():
                return await story()

        return self.play(told)

    @property
    def requests(self) -> Sequence[model.ProvisioningRequest]:
        """The requests that there are."""
        return self.list(resources.PROVISIONING_REQUESTS)

    def templates(self, request: model.ProvisioningRequest) -> list[model.PodTemplateObject]:
        """The templates that a request names."""
        return [self.get(resources.POD_TEMPLATES, each.pod_template_ref.name) for each in request.spec.pod_sets]

    async def asked(self, attempt: int = 1) -> model.ProvisioningRequest:
        """Wait until there is one request, with this number; returns it."""

        def is_there() -> bool:
            return [each.metadata.name.rpartition("-")[2] for each in self.requests] == [str(attempt)]

        await self.until(is_there, 600.0)
        return self.requests[0]

    def answer(self, *types: str, message: str = "") -> None:
        """The autoscaler writes these conditions on every request."""
        now = rfc3339(self.clock.now())
        for each in self.requests:
            conditions = [
                {"type": type_, "status": "True", "reason": type_, "message": message, "lastTransitionTime": now}
                for type_ in types
            ]
            patch = {"status": {"conditions": conditions}}
            self.server.patch(resources.PROVISIONING_REQUESTS, each.metadata.name, patch, subresource="status")

    def grow(self, leaf: int, nodes: int = 4) -> None:
        """New nodes come up."""
        self.create(resources.NODES, *(self.make_node(f"l{leaf}-n{number}") for number in range(nodes)))

    def consumed(self, group: str) -> set[str]:
        """The requests that the pods of a gang say they consume."""
        pods = [pod for pod in self.list(resources.PODS) if pod.metadata.name.startswith(group)]
        return {(pod.metadata.annotations or {}).get(custom_resources.CONSUMED_REQUEST, "") for pod in pods}

    @staticmethod
    async def passes(seconds: float) -> None:
        """Virtual time passes."""
        await asyncio.sleep(seconds)
