"""What happens to the nodes and pods of a scheduler that decides when it is told to."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from gangline import model
from gangline.config import SchedulerConfiguration
from gangline.loop.scheduler import Options, Scheduler
from gangline.loop.watching import NodeHandler, PodHandler
from gangline.profile.registry import Catalog
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock
from gangline.testing import make_node


class PlayedWorld:
    """The steps that all such worlds know; a subclass decides about pods or about gangs."""

    SHAPES_OF_NODES: ClassVar[tuple[dict[str, Any], ...]]
    clock: VirtualClock
    waiting: dict[str, model.Pod]
    bound: dict[str, model.Pod]

    def start(self, config: SchedulerConfiguration, catalog: Catalog) -> None:
        """Make the scheduler."""
        self.config = config
        client = SimulatedClient(InMemoryServer(self.clock))
        self.scheduler = Scheduler(config, client, self.clock, catalog, Options(seed=1))
        self.cluster = self.scheduler._cluster
        self.handle, self.handle_node = PodHandler(self.cluster), NodeHandler(self.cluster)

    def node(self, name: str, shape: int) -> None:
        self.handle_node.upsert(make_node(name, **self.SHAPES_OF_NODES[shape]))

    def node_goes(self, name: str) -> None:
        for pod in [pod for pod in self.bound.values() if pod.spec.node_name == name]:
            self._goes(self.bound, pod)
        self.handle_node.remove("", name, "")

    def bound_goes(self, number: int) -> None:
        self._goes(self.bound, nth(self.bound, number))

    def waiting_goes(self, number: int) -> None:
        self._goes(self.waiting, nth(self.waiting, number))

    def _goes(self, pods: dict[str, model.Pod], pod: model.Pod | None) -> None:
        if pod is not None:
            del pods[pod.metadata.name]
            self.handle.remove("default", pod.metadata.name, pod.metadata.uid)

    def labelled(self, number: int) -> None:
        if (pod := nth(self.waiting, number)) is not None:
            pod.metadata = msgspec.structs.replace(pod.metadata, labels={"app": "ab"[number % 2]})
            self.handle.upsert(pod)

    def nominated(self, number: int, node: str) -> None:
        if (pod := nth(self.waiting, number)) is not None:
            pod.status = msgspec.structs.replace(pod.status, nominated_node_name=node)
            self.handle.upsert(pod)

    def reload(self) -> None:
        self.scheduler.use(self.config)

    def flush(self) -> None:
        self.clock._elapsed += 301.0

    def places(self) -> dict[str, str]:
        return {name: pod.spec.node_name for name, pod in self.bound.items()}


def nth(pods: dict[str, model.Pod], number: int) -> model.Pod | None:
    return list(pods.values())[number % len(pods)] if pods else None
