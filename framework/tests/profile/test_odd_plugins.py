"""Whatever a plugin answers or raises at any hook: the scheduler goes on, others are bound, the books are right."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline import SUCCESS, Narrow, Reason, Status, codes, hookimpl, model, unschedulable, wait
from gangline.api.hookspecs import POINTS, UNLISTED
from gangline.api.placement import Placement
from gangline.kube.resources import NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.profile.declaring import HOOKS
from gangline.simulate import SimulatedCluster
from gangline.state.cache import Cache
from gangline.status import Code
from gangline.testing import GPU, make_node, make_pod
from gangline.testing.gangs import GROUP

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles:
- schedulerName: healthy
- schedulerName: odd
  plugins:
    multiPoint: {enabled: [{name: Odd}, {name: GangPermit}, {name: TopologyPlacement}]}
"""
BINDING = "    bind: {disabled: [{name: '*'}], enabled: [{name: Odd}, {name: DefaultBinder}]}\n"


class Unspeakable:
    """Raises at whatever it is asked."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __str__ = __eq__ = __len__ = __iter__ = __bool__ = __float__ = __array__ = __repr__  # type: ignore[assignment]
    __hash__ = object.__hash__


class BadText(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def deep() -> Any:
    """Recurses until it cannot."""
    return deep()


def endless() -> Iterator[Any]:
    """Offers the same placement for ever."""
    while True:
        yield Placement("again", np.array([0]))


def later() -> Iterator[Any]:
    """Offers one placement and then raises."""
    yield Placement("first", np.array([0]))
    raise SystemExit("enough")


ERRORS: list[type[BaseException]] = [
    ValueError,
    KeyError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    StopIteration,
    RecursionError,
    MemoryError,
    BadText,
    asyncio.CancelledError,
]
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    10**400,
    math.nan,
    math.inf,
    "",
    "no such node",
    "a",
    b"a",
    (),
    (1, "2"),
    (math.nan,),
    ((1, 2), 3),
    [],
    ["a"],
    {},
    {"uid": 5},
    {"uid": "no such node"},
    object(),
    Unspeakable(),
    SUCCESS,
    unschedulable("no"),
    wait(0.0),
    wait(1e300),
    Status(Code.SKIP),
    Status(Code.SKIP_CLASS),
    Status(Code.ERROR),
    Narrow(frozenset({"b", "c"})),
    Narrow(frozenset()),
    Placement("none", np.array([], dtype=np.intp)),
    [Placement("below", np.array([-1]))],
    [Placement("beyond", np.array([10**6]))],
    [Placement("twice", np.array([0, 0]))],
    [Placement("one", np.array([0])), "two"],
]
COLUMNS = st.builds(
    lambda dtype, size, value: np.full(size, value).astype(dtype),
    st.sampled_from(["u1", "u8", "i8", "f8", "c16", "O", "U3", "M8[s]", "?"]),
    st.sampled_from([0, 1, 2, 3, 4, (3, 1), ()]),
    st.integers(0, 100),
)
MAKERS = [deep, endless, later, lambda: Status("no"), lambda: Narrow(["a"]), lambda: wait(math.nan), lambda: wait(-1.0)]  # type: ignore[arg-type]  # what a plugin must not do
ANSWERS = st.one_of(
    st.sampled_from(VALUES).map(lambda value: lambda: value),
    COLUMNS.map(lambda column: lambda: column),
    st.sampled_from([np.nan, -np.inf, 101.0, -1.0, 55.0]).map(lambda x: lambda: np.full(3, x)),
    st.sampled_from(MAKERS),
    st.sampled_from(ERRORS).map(lambda error: raising(error)),
)


def raising(error: type[BaseException]) -> Any:
    def call() -> Any:
        raise error("odd")

    return call


IS_ASYNC = ("pre_bind", "bind", "post_bind")
ONLY_WITH = {"normalize_score": "score", "capacity": "filter", "unreserve": "reserve"}
PLAIN = {
    "score": hookimpl(lambda self, nodes: np.arange(float(len(nodes)))),
    "filter": hookimpl(lambda self, nodes: codes(nodes.full(False))),
    "reserve": hookimpl(lambda self: None),
}


def plugin(answers: dict[str, Any], reads: int | None, tracks: Any) -> type[Any]:
    """A plugin with these hooks."""

    def hook(name: str, answer: Any) -> Any:
        if name in IS_ASYNC:

            async def waits(self: Any) -> Any:
                return answer()

            return hookimpl(waits)
        return hookimpl(lambda self: answer())

    class Odd:
        name = "Odd"
        reasons = (Reason("odd"),)

        def __init__(self, handle: Any) -> None:
            if tracks is not None:
                handle.state.tracker(type("Odd", (Counting,), {"odd": staticmethod(tracks)}))
                handle.state.follow_nodes(Listening(tracks))
                handle.run(lambda: Listening(tracks).work())

    Odd.reads = reads  # type: ignore[attr-defined]  # may be missing
    for name, answer in answers.items():
        setattr(Odd, name, hook(name, answer))
    for name, other in ONLY_WITH.items():
        if name in answers and other not in answers:
            setattr(Odd, other, PLAIN[other])
    return Odd


class Counting:
    """A tracker that counts, and does something odd for pods of its own profile."""

    odd: Any

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def clear(self) -> None:
        self.rows = {}

    def add(self, pod: Any, row: int) -> None:
        if pod.scheduler_name == "odd":
            self.odd()
        assert pod.uid not in self.rows
        self.rows[pod.uid] = row

    def remove(self, pod: Any, row: int) -> None:
        if pod.scheduler_name == "odd":
            self.odd()
        assert self.rows.pop(pod.uid) == row


class Listening:
    """Hears of nodes, and works in the background."""

    def __init__(self, odd: Any) -> None:
        self.odd = odd

    def node_upserted(self, node: Any, row: int) -> None:
        """Something odd, later."""

    def node_removed(self, name: str, row: int) -> None:
        self.odd()

    async def work(self) -> None:
        self.odd()


def check_books(cache: Cache) -> None:
    """The columns are what the pods make of them."""
    nodes = cache.nodes
    requested, nonzero = np.zeros_like(nodes.requested), np.zeros_like(nodes.nonzero)
    on_row: dict[int, set[str]] = {}
    for pod in cache.pods.values():
        if pod.row >= 0:
            requested[pod.cls.resources, pod.row] += pod.cls.amounts
            nonzero[0, pod.row] += pod.cls.requests.nonzero[0]
            nonzero[1, pod.row] += pod.cls.requests.nonzero[1]
            on_row.setdefault(pod.row, set()).add(pod.uid)
    assert (requested == nodes.requested).all() and (nonzero == nodes.nonzero).all()
    assert on_row == {row: set(pods) for row, pods in enumerate(nodes.pods_on) if pods}
    used, free = nodes.view().requested(GPU), nodes.view().allocatable(GPU)
    assert (used <= free).all()


async def live(cluster: SimulatedCluster, odd: type[Any]) -> None:
    """A scheduler with the odd plugin, and pods for it and for the healthy profile."""
    binding = BINDING if hasattr(odd, "bind") else ""
    async with cluster.scheduling(CONFIG + binding, plugins=[odd]) as scheduler:
        cluster.create(PODS, make_pod("odd-1", gpus=2, scheduler_name="odd"))
        group = model.PodGroup(model.ObjectMeta(name="team", namespace="default"), model.PodGroupSpec(min_member=2))
        cluster.create(SCHEDULER_PLUGINS_POD_GROUPS, group)
        of_group: dict[str, Any] = {"labels": {GROUP: "team"}, "scheduler_name": "odd"}
        cluster.create(PODS, *(make_pod(f"odd-g{i}", gpus=1, **of_group) for i in range(2)))
        cluster.create(PODS, make_pod("odd-large", gpus=9, scheduler_name="odd"))
        await asyncio.sleep(3)
        cluster.create(PODS, make_pod("well", gpus=1, scheduler_name="healthy"))
        await cluster.until(lambda: "well" in cluster.bound())
        cluster.server.delete(NODES, "c")
        await asyncio.sleep(3)
        check_books(scheduler.cache)


def played(odd: type[Any]) -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.create(NODES, *(make_node(name, gpus=4) for name in "abc"))
    cluster.play(lambda: live(cluster, odd))
    return cluster


NAMES = st.sampled_from([hook for hook in HOOKS if hook not in ("events_to_register", "queue_sort")])

CALLED = {*POINTS, *UNLISTED}


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    # A plugin that has only hooks that go with others is refused.
    st.dictionaries(NAMES, ANSWERS, min_size=1, max_size=3).filter(lambda answers: bool(answers.keys() & CALLED)),
    st.sampled_from([None, 1, 3]),
    st.one_of(st.none(), st.sampled_from(ERRORS).map(raising)),
)
def test_whatever_a_plugin_does_others_are_bound_and_the_books_are_right(
    answers: dict[str, Any], reads: int | None, tracks: Any
) -> None:
    cluster = played(plugin(answers, reads, tracks))

    assert "well" in cluster.bound()
