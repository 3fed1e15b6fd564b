"""A simulated cluster for tests: a story creates and deletes objects, schedulers run on the cluster, time is virtual.

cluster = SimulatedCluster()
cluster.create(NODES, make_node("a"), make_node("b"))
cluster.create(PODS, make_pod("p", gpus=8))

async def story() -> None:
    async with cluster.scheduling(PROFILE, plugins=[MyPlugin]):
        await cluster.until(lambda: "p" in cluster.bound())

cluster.play(story)
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from gangline import config
from gangline.api.plugin import Clock
from gangline.config import SchedulerConfiguration
from gangline.kube.resources import EVENTS, NAMESPACES, PODS, Resource, T
from gangline.loop.scheduler import Options, Scheduler
from gangline.profile.registry import Catalog
from gangline.simulate.client import SimulatedClient
from gangline.simulate.server import InMemoryServer
from gangline.simulate.time import VirtualClock, run, virtual_loop
from gangline.wire.custom_resources import ALLOW

STEP = 0.05  # seconds between two looks at what a story waits for

Result = TypeVar("Result")


class SimulatedCluster:
    """An in-memory API server with a clock of its own, without nodes; stories start the schedulers and other parts."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        """The virtual time of the cluster; it passes while a story waits."""
        self.server = InMemoryServer(self.clock)
        """The API server in memory; `apply_manifest` takes the manifests that kubectl takes."""

    # Objects

    def create(self, resource: Resource[T], *objects: T) -> None:
        """Stores new objects."""
        for each in objects:
            self.server.create(resource, msgspec.to_builtins(each))

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """An object as it is now. Raises NotFound."""
        return msgspec.convert(self.server.get(resource, name, namespace=namespace).data, resource.type)

    def list(self, resource: Resource[T], namespace: str | None = None, label_selector: str = "") -> Sequence[T]:
        """The objects as they are now, by namespace and name."""
        found = self.server.list(resource, namespace=namespace, label_selector=label_selector)
        return [msgspec.convert(each.data, resource.type) for each in found]

    def bound(self, prefix: str = "") -> dict[str, str]:
        """Pod name to node, for pods with a node whose names begin like this and that are not being deleted."""
        return {
            pod.metadata.name: pod.spec.node_name
            for pod in self.list(PODS)
            if pod.metadata.name.startswith(prefix) and pod.spec.node_name and not pod.metadata.deletion_timestamp
        }

    def message(self, pod: str, namespace: str | None = None) -> str:
        """The message of the pod's condition PodScheduled: why the pod waits; empty if there is none."""
        conditions = self.get(PODS, pod, namespace).status.conditions
        return next((each.message for each in conditions if each.type == "PodScheduled"), "")

    def notes(self, name: str = "") -> Sequence[str]:
        """The notes of the events about the objects with this name, or about all objects."""
        events = self.list(EVENTS)
        return [each.note for each in events if not name or (each.regarding and each.regarding.name == name)]

    def allow(self, permissions: str, namespace: str = "default") -> None:
        """Give the pods of a namespace these permissions, from now on."""
        self.server.patch(NAMESPACES, namespace, {"metadata": {"annotations": {ALLOW: permissions}}})

    # Stories

    def play(self, story: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Runs a story to its end in virtual time."""
        return run(story(), self.clock)

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> float:
        """Waits until the condition holds; returns the virtual seconds that passed. TimeoutError names waiting pods.

        The condition is looked at every `STEP` seconds, but only once while nothing happens: no timer fires. A wait
        without an end ends too when no timer is set.
        """
        loop, start = virtual_loop(), self.clock.monotonic()
        is_quiet = False
        while not condition():
            left = start + seconds - self.clock.monotonic()
            if left <= 0:
                raise TimeoutError(f"not within {seconds:g} s; {self._waiting()}")
            quiet = min(loop.until_next_timer(), left) if is_quiet else STEP
            if quiet == math.inf:
                raise TimeoutError(f"nothing can happen any more; {self._waiting()}")
            steps = max(1, math.ceil(quiet / STEP))
            fired = loop.fired
            await asyncio.sleep(steps * STEP)
            is_quiet = loop.fired == fired + 1
        return self.clock.monotonic() - start

    def _waiting(self) -> str:
        pods = [pod.metadata for pod in self.list(PODS) if not pod.spec.node_name]
        said = (
            f"{pod.namespace}/{pod.name} ({self.message(pod.name, pod.namespace) or 'no reason yet'})" for pod in pods
        )
        return f"pods without a node: {', '.join(said) or 'none'}"

    @asynccontextmanager
    async def scheduling(
        self,
        configuration: str,
        client: SimulatedClient | None = None,
        *,
        plugins: Iterable[type[Any]] = (),
        seed: int = 0,
        options: Options | None = None,
    ) -> AsyncIterator[Scheduler]:
        """A scheduler that runs until the block ends; any number of them may run side by side.

        Its KubeSchedulerConfiguration is YAML; profiles may name installed plugins and those that are handed in. The
        client is where latency and faults are set. Raises ConfigError and PluginError.
        """
        client = client or SimulatedClient(self.server)
        scheduler = make_scheduler(configuration, client, self.clock, plugins, options or Options(seed=seed))
        async with running(scheduler.run()):
            yield scheduler


def make_scheduler(
    configuration: str,
    client: SimulatedClient,
    clock: Clock,
    plugins: Iterable[type[Any]] = (),
    options: Options | None = None,
) -> Scheduler:
    """A scheduler that does not run yet, of a KubeSchedulerConfiguration in YAML. Raises ConfigError and PluginError.

    Profiles may name installed plugins and those that are handed in.
    """
    catalog = Catalog.discover().with_classes(*plugins)
    return Scheduler(_read(configuration), client, clock, catalog, options or Options())


@lru_cache(maxsize=64)
def _read(configuration: str) -> SchedulerConfiguration:
    """A configuration, which nobody changes; most programs make several schedulers from the same one."""
    return config.load(configuration, "configuration")


@asynccontextmanager
async def running(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Parts of a cluster, such as `Kubelet(...).run()`, run until the block ends; raises what one of them raised."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
