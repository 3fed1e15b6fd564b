"""Whatever configurations came before: what plugins listen to, keep, watch and do is as if the last were the first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline import Handle, Level, PluginError, PodInfo, State, config, hookimpl, resources
from gangline.errors import GanglineError
from gangline.kube.resources import CONFIG_MAPS, GPU_CLAIMS, LEASES
from gangline.loop.scheduler import Scheduler
from gangline.profile import background
from gangline.profile.background import GRACE
from gangline.profile.registry import Catalog
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run
from gangline.simulate.time import virtual_loop
from gangline.testing import make_node, make_pod
from gangline_plugins.gpu.wants import MapProfiles


class Ear:
    """Hears of everything and does nothing."""

    def on_upsert(self, obj: Any) -> None:
        """Nothing."""

    def on_remove(self, obj: Any) -> None:
        """Nothing."""

    def node_upserted(self, node: Any, row: int) -> None:
        """Nothing."""

    def node_removed(self, name: str, row: int) -> None:
        """Nothing."""


class Placed:
    """Counts pods that are placed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.uids: set[str] = set()

    def add(self, pod: PodInfo, row: int) -> None:
        self.uids.add(pod.uid)

    def remove(self, pod: PodInfo, row: int) -> None:
        self.uids.discard(pod.uid)


class Listening(Ear):
    """Shared, subscribes, and uses a tracker that others use as well."""

    def __init__(self, state: State) -> None:
        self.placed = state.tracker(Placed, 1)
        state.store(GPU_CLAIMS).subscribe(self)
        state.follow_nodes(self)


async def for_ever() -> None:
    """Nothing."""
    await asyncio.Event().wait()


class GreedyArgs(msgspec.Struct):
    """What the plugin asks for."""

    listens: bool = False
    shares: bool = False
    size: int = 0
    works: bool = False
    counts: tuple[str, ...] | None = None
    watches: tuple[str, ...] = ()
    level: str = ""
    refuses: bool = False


class Greedy(Ear):
    """Asks for all that there is to ask for, and may refuse to work after that."""

    name = "Greedy"
    args_type = GreedyArgs

    def __init__(self, args: GreedyArgs, handle: Handle) -> None:
        self._handle = handle
        state = handle.state
        if args.listens:
            state.store(LEASES).subscribe(self)
            state.follow_nodes(self)
        if args.shares:
            state.shared(Listening, state)
        if args.size:
            state.tracker(Placed, args.size)
        if args.works:
            handle.run(self.work)
        if args.counts is not None:
            handle.metric("greedy_counts", "Counts.", args.counts)
            handle.gauge("greedy_gauge", "A gauge.")
            handle.histogram("greedy_histogram", "A histogram.", (1.0, 2.0))
        self.watches = [resources.Selection(LEASES, namespace) for namespace in args.watches]
        if args.level:
            handle.topology.use([Level(args.level, args.level)])
        if args.refuses:
            raise PluginError("Greedy", "", "it will not")

    async def work(self) -> None:
        """What goes on in the background, and what is asked for there."""
        self._handle.spawn(for_ever)
        self._handle.state.store(CONFIG_MAPS).subscribe(self)
        self._handle.state.shared(Placed, 7)
        await for_ever()

    @hookimpl
    def pre_enqueue(self) -> None:
        """Every pod may enter."""


@dataclass(frozen=True)
class Wanted:
    """A profile: its name, the plugins of ours that it has, and what Greedy asks for; None for no Greedy."""

    name: str
    plugins: tuple[str, ...] = ()
    greedy: GreedyArgs | None = None


HEAD: dict[str, Any] = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
CLOCK = VirtualClock()
CATALOG = Catalog.discover().with_classes(Greedy)


def configuration(*profiles: Wanted) -> config.SchedulerConfiguration:
    listed = []
    for wanted in profiles:
        enabled = [{"name": name} for name in (*wanted.plugins, *(["Greedy"] if wanted.greedy else []))]
        args = [{"name": "Greedy", "args": msgspec.to_builtins(wanted.greedy)}] if wanted.greedy else []
        listed.append(
            {"schedulerName": wanted.name, "plugins": {"multiPoint": {"enabled": enabled}}, "pluginConfig": args}
        )
    return config.load(msgspec.json.encode({**HEAD, "profiles": listed}).decode(), "")


def new_scheduler(first: config.SchedulerConfiguration, clock: VirtualClock) -> Scheduler:
    server = InMemoryServer(clock)
    for namespace in ("a", "b", "c"):
        server.create(LEASES, {"metadata": {"name": "lease", "namespace": namespace}})
    server.create(resources.NODES, msgspec.to_builtins(make_node("n", labels={"rack": "r", "hall": "h"})))
    server.create(resources.PODS, msgspec.to_builtins(make_pod("p", node="n")))
    return Scheduler(first, SimulatedClient(server), clock, CATALOG)


def state_of(scheduler: Scheduler) -> dict[str, Any]:
    """All that configurations ask for, in numbers."""
    cache = scheduler.cache
    return {
        "listeners": {key: len(store.listeners) for key, store in cache.stores.items() if len(store.listeners)},
        "node listeners": len(cache.node_listeners),
        "shared": len(cache.sharing),
        "trackers": len(cache.trackers),
        "tasks": Counter(task.get_coro().__qualname__ for task in virtual_loop().tasks()),  # type: ignore[union-attr]
        "informers": sorted(f"{each.resource.key} {each._namespace}" for each in scheduler.informers),
        "objects": {key: len(store) for key, store in cache.stores.items() if len(store)},
        "metrics": sorted((each.name, each.type) for each in scheduler.metrics.registry.collect()),
        "levels": {name: runtime.topology.names() for name, runtime in scheduler.runtimes.items()},
        "profiles": sorted(scheduler.runtimes),
    }


def played(configurations: Sequence[config.SchedulerConfiguration]) -> tuple[dict[str, Any], int]:
    """What there is after these configurations, of which the first is good, and the number of the last good one."""
    clock = VirtualClock()

    async def story() -> tuple[dict[str, Any], int]:
        scheduler, last = new_scheduler(configurations[0], clock), 0
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(2)
        for number, each in enumerate(configurations[1:], start=1):
            before = state_of(scheduler)
            try:
                scheduler.use(each)
                last = number
            except GanglineError:
                assert state_of(scheduler) == before
            await asyncio.sleep(0.5)
        await asyncio.sleep(2)
        found = state_of(scheduler)
        maps = scheduler.cache.shared(MapProfiles)
        found["maps"] = {name: (maps.has(name), maps.are_free(name)) for name in NAMES}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found, last

    with patch.object(background, "GRACE", 1.0):
        return run(story(), clock)


NAMES = ("one", "two", "three")
GREEDY = st.builds(
    GreedyArgs,
    listens=st.booleans(),
    shares=st.booleans(),
    size=st.integers(0, 2),
    works=st.booleans(),
    counts=st.sampled_from([None, (), ("node",)]),
    watches=st.lists(st.sampled_from(["", "a", "b"]), max_size=2).map(tuple),
    level=st.sampled_from(["", "rack", "hall"]),
    refuses=st.integers(0, 4).map(lambda dice: not dice),
)
OURS = st.lists(
    st.sampled_from(["GangPermit", "GpuSchedulingMap", "DeviceLease", "LeafSpine"]), unique=True, max_size=2
)
PROFILES = st.lists(
    st.builds(Wanted, st.sampled_from(NAMES), OURS.map(tuple), st.none() | GREEDY),
    min_size=1,
    max_size=2,
    unique_by=lambda wanted: wanted.name,
)
PLAIN = configuration(Wanted("one"))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PROFILES, min_size=1, max_size=4))
def test_after_any_reloads_all_is_as_after_a_fresh_start_with_the_last_good_configuration(
    sequence: list[list[Wanted]],
) -> None:
    configurations = [PLAIN, *(configuration(*profiles) for profiles in sequence)]

    found, last = played(configurations)

    assert found == played([configurations[last]])[0]


def test_many_reloads_leave_as_much_as_one() -> None:
    reloads = 100 if settings().derandomize else 30  # the inner loop does fewer
    ours = ("GangPermit", "GpuClaim", "GpuSchedulingMap", "DeviceLease", "LeafSpine", "TopologyAnnotations")
    greedy = GreedyArgs(listens=True, shares=True, size=2, works=True, counts=("node",), watches=("a",), level="rack")
    full = configuration(Wanted("one", ours, greedy))

    once, _ = played([full, full])
    often, last = played([full] * (reloads + 1))

    assert last == reloads and often == once
    assert once["node listeners"] > 2 and once["trackers"] > 3


def test_a_reload_leaves_nothing_of_a_plugin_with_the_pods_that_it_saw() -> None:
    story = Story(Wanted("one", ("NodeResourcesFit", "NodeResourcesBalancedAllocation")))
    story.cache.upsert_node(make_node("n", cpu=8))
    pod = story.cache.record(make_pod("p", cpu=1))
    remembered = set()
    for _ in range(5):
        story.use(Wanted("one", ("NodeResourcesFit", "NodeResourcesBalancedAllocation")))
        runtime = story.scheduler.runtimes["one"]
        runtime.evaluator.choose(runtime.filter(pod))
        remembered.add(len(pod.cls.memo))

    assert len(remembered) == 1


def test_a_configuration_is_taken_also_when_leading_is_over() -> None:
    async def story() -> tuple[bool, int]:
        clock = VirtualClock()
        scheduler = new_scheduler(PLAIN, clock)
        watching = asyncio.create_task(scheduler.watch())
        leading = asyncio.create_task(scheduler.lead())
        await asyncio.sleep(1)
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        new = configuration(Wanted("one", ("GpuClaim", "DeviceLease")))
        scheduler.use(new)
        tasks = state_of(scheduler)["tasks"].total()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return scheduler.config is new, tasks

    is_new, tasks = run(story(), CLOCK)

    assert is_new and tasks > 0


# One by one


class Story:
    """One scheduler that is given configurations."""

    def __init__(self, *profiles: Wanted) -> None:
        self.scheduler = new_scheduler(configuration(*profiles), CLOCK)
        self.cache = self.scheduler.cache

    def use(self, *profiles: Wanted) -> None:
        self.scheduler.use(configuration(*profiles))

    def sample(self, name: str, **labels: str) -> float | None:
        return self.scheduler.metrics.registry.get_sample_value(name, labels)

    def count(self, **labels: str) -> None:
        """One more of what Greedy counts."""
        handle = next(iter(self.scheduler.runtimes.values())).handle
        counter = handle.metric("greedy_counts", "Counts.", tuple(labels))
        (counter.labels(**labels) if labels else counter).inc()


def greedy(**args: Any) -> Wanted:
    return Wanted("one", (), GreedyArgs(**args))


def test_a_metric_that_the_next_configuration_has_too_goes_on_counting() -> None:
    story = Story(greedy(counts=()))
    story.count()
    story.use(greedy(counts=(), size=1))
    story.count()

    assert story.sample("greedy_counts_total") == 2.0


def test_a_metric_that_no_plugin_has_any_more_is_not_told() -> None:
    story = Story(greedy(counts=()))
    story.count()
    story.use(greedy())
    gone = story.sample("greedy_counts_total")
    story.use(greedy(counts=()))

    assert gone is None and story.sample("greedy_counts_total") == 0.0


def test_a_metric_may_have_other_labels_in_the_next_configuration() -> None:
    story = Story(greedy(counts=()))
    story.use(greedy(counts=("node",)))
    story.count(node="n")

    assert story.sample("greedy_counts_total") is None and story.sample("greedy_counts_total", node="n") == 1.0


def test_a_metric_of_a_refused_configuration_is_not_told() -> None:
    story = Story(greedy())
    with pytest.raises(GanglineError, match="it will not"):
        story.use(greedy(counts=(), refuses=True))

    assert story.sample("greedy_counts_total") is None


def test_a_tracker_that_is_asked_for_again_is_kept_and_one_with_other_arguments_is_made_anew() -> None:
    story = Story(greedy(size=3))
    first = story.cache.tracker(Placed, 3)
    other = Story(greedy(size=3))
    other.cache.upsert_node(make_node("n"))
    other.cache.upsert_pod(other.cache.record(make_pod("p", node="n")))
    story.use(greedy(size=3, listens=True))
    other.use(greedy(size=4))

    assert story.cache.tracker(Placed, 3) is first
    assert len(other.cache.trackers) == len(story.cache.trackers)
    assert other.cache.tracker(Placed, 4).uids == {"pod-default-p"}


def test_the_work_of_a_configuration_that_is_replaced_ends_and_what_it_spawned_has_time_to() -> None:
    ended: list[str] = []

    class Working:
        name = "Working"

        def __init__(self, handle: Handle) -> None:
            self._spawn = handle.spawn
            handle.run(self.work)

        async def work(self) -> None:
            for seconds in (GRACE / 2, 2 * GRACE):
                self._spawn(partial(self.once, seconds))
            try:
                await for_ever()
            finally:
                ended.append("work")

        async def once(self, seconds: float) -> None:
            try:
                await asyncio.sleep(seconds)
                ended.append("done")
            except asyncio.CancelledError:
                ended.append("cut off")
                raise

        @hookimpl
        def pre_enqueue(self) -> None:
            """Every pod may enter."""

    async def story() -> list[list[str]]:
        clock = VirtualClock()
        catalog = Catalog.discover().with_classes(Working)
        scheduler = Scheduler(
            configuration(Wanted("one", ("Working",))), SimulatedClient(InMemoryServer(clock)), clock, catalog
        )
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(1)
        scheduler.use(PLAIN)
        seen = []
        for seconds in (1.0, GRACE / 2, GRACE):
            await asyncio.sleep(seconds)
            seen.append(list(ended))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    assert run(story(), CLOCK) == [["work"], ["work", "done"], ["work", "done", "cut off"]]


def test_what_nobody_watches_any_more_is_forgotten_and_what_others_watch_stays() -> None:
    async def story() -> list[list[str]]:
        clock = VirtualClock()
        scheduler = new_scheduler(configuration(greedy(watches=("a", "b"))), clock)
        task = asyncio.create_task(scheduler.run())
        seen = []
        for watched in ((), ("b",), ("", "b"), ("c",)):
            await asyncio.sleep(1)
            seen.append(sorted(each.metadata.namespace for each in scheduler.cache.store(LEASES)))
            scheduler.use(configuration(greedy(watches=watched)))
        await asyncio.sleep(1)
        seen.append(sorted(each.metadata.namespace for each in scheduler.cache.store(LEASES)))
        assert not scheduler.unsynced()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    assert run(story(), CLOCK) == [["a", "b"], [], ["b"], ["a", "b", "c"], ["c"]]


def test_what_is_to_be_called_at_the_end_is_called_in_reverse_order_whatever_one_of_it_raises() -> None:
    ended: list[int] = []

    class Ending:
        name = "Ending"

        def __init__(self, handle: Handle) -> None:
            handle.state.at_end(lambda: ended.append(1))
            handle.state.at_end(lambda: 1 / 0)  # type: ignore[arg-type]  # it raises
            handle.state.at_end(lambda: ended.append(2))

        @hookimpl
        def pre_enqueue(self) -> None:
            """Every pod may enter."""

    catalog = Catalog.discover().with_classes(Ending)
    server = SimulatedClient(InMemoryServer(CLOCK))
    scheduler = Scheduler(configuration(Wanted("one", ("Ending",))), server, CLOCK, catalog)
    scheduler.use(PLAIN)

    assert ended == [2, 1]
    assert scheduler.metrics.failures.counts["Ending", "End"] == 1
