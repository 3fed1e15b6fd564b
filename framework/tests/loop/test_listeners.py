"""What the cache tells those that keep something in step with nodes and stored objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from gangline import NODE, Handle, config, hookimpl
from gangline.errors import ConfigError, PluginError
from gangline.kube.resources import GPU_CLAIMS, PODS, Resource
from gangline.loop.scheduler import Scheduler
from gangline.model import HasMetadata, Node, ObjectMeta
from gangline.profile.registry import Catalog
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run
from gangline.state.cache import Cache
from gangline.state.changes import OWN
from gangline.state.changes import PODS as PODS_ON_IT
from gangline.state.stores import Store
from gangline.testing import cluster, make_node, make_pod
from gangline.wire.custom_resources import GpuClaim


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
    store = cache.store(GPU_CLAIMS)

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


@pytest.mark.parametrize("kind", [NODE, PODS_ON_IT, OWN, NODE | PODS_ON_IT])
@pytest.mark.parametrize("row", [-1, 2, 10**12, 0.5, "0", None])
def test_a_wrong_row_is_an_error_of_the_plugin_alone(row: Any, kind: int) -> None:
    cache = cluster([make_node("a"), make_node("b")])
    before = cache.nodes.changes.position

    wrong: list[Callable[[], None]] = [lambda: cache.touch(row, kind), lambda: cache.touch_all([0, row], kind)]
    for each in wrong:
        with pytest.raises((TypeError, ValueError)):
            each()

    assert cache.nodes.changes.position == before


@pytest.mark.parametrize("kind", [0, -1, 8, "node", None])
def test_a_wrong_kind_is_an_error_of_the_plugin_alone(kind: Any) -> None:
    cache = cluster([make_node("a")])
    before = cache.nodes.changes.position

    wrong: list[Callable[[], None]] = [lambda: cache.touch(0, kind), lambda: cache.touch_all([0], kind)]
    for each in wrong:
        with pytest.raises((TypeError, ValueError)):
            each()

    assert cache.nodes.changes.position == before


@pytest.mark.parametrize("is_taken", [True, False], ids=["another one is taken", "one is refused"])
def test_what_a_plugin_subscribes_ends_with_its_configuration_and_what_is_shared_stays(is_taken: bool) -> None:
    told: list[str] = []

    class Ear:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_upsert(self, obj: HasMetadata) -> None:
            told.append(self.name)

        def on_remove(self, obj: HasMetadata) -> None:
            """Nothing."""

        def node_upserted(self, node: Node, row: int) -> None:
            told.append(f"{self.name} of nodes")

        def node_removed(self, name: str, row: int) -> None:
            """Nothing."""

    class Shared(Ear):
        def __init__(self, store: Store[GpuClaim]) -> None:
            super().__init__("shared")
            store.subscribe(self)

    class Listening:
        name = "Listening"
        built = 0

        def __init__(self, handle: Handle) -> None:
            Listening.built += 1
            store, ear = handle.state.store(GPU_CLAIMS), Ear(f"plugin {Listening.built}")
            shared = handle.state.shared(Shared, store)
            for each in (ear, shared):
                store.subscribe(each)
            handle.state.follow_nodes(ear)
            if Listening.built == 2 and not is_taken:
                raise PluginError("Listening", "", "it will not")

        @hookimpl
        def pre_enqueue(self) -> None:
            """Every pod may enter."""

    clock = VirtualClock()
    catalog = Catalog.discover().with_classes(Listening)
    enabled = config.load(CONFIG % ("one", "Listening"), "")
    scheduler = Scheduler(enabled, SimulatedClient(InMemoryServer(clock)), clock, catalog)

    with nullcontext() if is_taken else pytest.raises(ConfigError):
        scheduler.use(enabled)
    scheduler.cache.store(GPU_CLAIMS).upsert(GpuClaim(ObjectMeta(name="c", namespace="default")))
    scheduler.cache.upsert_node(make_node("n"))

    current = f"plugin {2 if is_taken else 1}"
    assert sorted(told) == [current, f"{current} of nodes", "shared", "shared"]


class Watcher:
    """A plugin that watches GpuClaims, among others one that the scheduler follows anyway."""

    name = "Watcher"
    watches: tuple[Resource[Any], ...] = (GPU_CLAIMS, PODS)

    def __init__(self, handle: Handle) -> None:
        self.store = handle.state.store(GPU_CLAIMS)

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
        names = [obj.metadata.name for obj in scheduler.cache.store(GPU_CLAIMS)]
        return names, len(scheduler.informers) - before

    assert run(story(), clock) == (["c"], 0 if when == "at the start" else 1)
