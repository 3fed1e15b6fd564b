"""What the cache tells those that keep something in step with nodes and stored objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline import NODE, Handle, config, hookimpl
from gangline.cache import Cache
from gangline.changes import PODS as PODS_ON_IT
from gangline.kube.resources import GPU_CLAIMS, PODS, Resource
from gangline.model import HasMetadata, Node, ObjectMeta
from gangline.registry import Catalog
from gangline.scheduler import Scheduler
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run
from gangline.testing import cluster, make_node, make_pod
from gangline.wire import GpuClaim


class Diary:
    """Writes down what it is told, and how many pods were on the node then."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.told: list[tuple[Any, ...]] = []

    def node_upserted(self, node: Node, row: int) -> None:
        self.told.append(("node", node.metadata.name, row, len(self.cache.nodes.pods_on[row])))

    def node_removed(self, name: str, row: int) -> None:
        self.told.append(("no node", name, row, len(self.cache.nodes.pods_on[row])))

    def on_upsert(self, obj: HasMetadata) -> None:
        self.told.append(("claim", obj.metadata.name))

    def on_remove(self, obj: HasMetadata) -> None:
        self.told.append(("no claim", obj.metadata.name))


def test_nodes_are_told_before_their_pods_are_placed_and_after_they_have_left() -> None:
    cache = cluster([make_node("a")], [make_pod("p", node="b")])
    diary = Diary(cache)

    cache.follow_nodes(diary)
    cache.upsert_node(make_node("b"))
    cache.upsert_node(make_node("b", labels={"rack": "1"}))
    cache.remove_node("b")
    assert diary.told == [("node", "a", 0, 0), ("node", "b", 1, 0), ("node", "b", 1, 1), ("no node", "b", 1, 0)]


def test_objects_are_told_as_they_come_and_go() -> None:
    cache = Cache()
    diary = Diary(cache)
    store = cache.store("gpuclaims")

    store.upsert(GpuClaim(ObjectMeta(name="old", namespace="default")))
    store.subscribe(diary)
    store.upsert(GpuClaim(ObjectMeta(name="new", namespace="default")))
    store.remove("default", "old")
    store.remove("default", "old")
    assert diary.told == [("claim", "old"), ("claim", "new"), ("no claim", "old")]


def test_touching_a_row_makes_kept_verdicts_on_it_due() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    view = cache.nodes.view()
    position = view.position

    cache.touch(1)
    changed = view.changed_since(position)
    assert changed is not None
    assert changed.tolist() == [1]
    assert view.at(changed).names == ["b"]
    assert cache.nodes.changes.kinds_since(position) == NODE
    cache.touch(0, PODS_ON_IT)
    assert cache.nodes.changes.kinds_since(position + 1) == PODS_ON_IT


class Watcher:
    """A plugin that watches GpuClaims, among others one that the scheduler follows anyway."""

    name = "Watcher"
    watches: tuple[Resource[Any], ...] = (GPU_CLAIMS, PODS)

    def __init__(self, args: None, handle: Handle) -> None:
        self.store = handle.state.store("gpuclaims")

    @hookimpl
    def pre_enqueue(self) -> None:
        """Every pod may enter."""


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: %s
    plugins:
      multiPoint:
        enabled: [{name: %s}]
"""


@pytest.mark.parametrize("when", ["at the start", "by a reload"])
def test_what_plugins_watch_is_followed_once(when: str) -> None:
    clock = VirtualClock()
    server = InMemoryServer(clock)
    server.create(GPU_CLAIMS, {"metadata": {"name": "c", "namespace": "default"}})
    enabled = config.load(CONFIG % ("one", "Watcher"), "")
    plain = config.load(CONFIG % ("one", "NodeName"), "")

    async def story() -> tuple[list[str], int]:
        catalog = Catalog.discover().with_classes(Watcher)
        scheduler = Scheduler(enabled if when == "at the start" else plain, SimulatedClient(server), clock, catalog)
        before = len(scheduler.informers)
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(1)
        scheduler.use(enabled)
        scheduler.use(enabled)
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        names = [obj.metadata.name for obj in scheduler.cache.store("gpuclaims")]
        return names, len(scheduler.informers) - before

    assert run(story(), clock) == (["c"], 0 if when == "at the start" else 1)
