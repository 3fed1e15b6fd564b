"""Whatever runs where: victims are enough, none of them is one too many, and no gang is left in pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gangline import model
from gangline.testing import GPU
from gangline.testing.deciding import GroupDecision
from gangline_plugins.gang_preemption.plugin import EvictionPlan
from gangline_plugins.node_ports import NodePorts

from .preemption_cases import GROUP, ONE_LEAF, Bench

LEAVES, NODES = 3, 2
NAMES = [f"l{leaf}-n{n}" for leaf in range(LEAVES) for n in range(NODES)]
PRIORITY = 2
"""Of the gang that comes."""


@dataclass(frozen=True)
class Running:
    """A gang, or a pod on its own when it has no minimum."""

    nodes: tuple[str, ...]
    gpus: int
    priority: int
    min_member: int | None = None
    is_young: bool = False
    wants_port: bool = False


@dataclass(frozen=True)
class Story:
    """What runs, what a budget protects, what fills the rest of each node, and what comes."""

    running: tuple[Running, ...]
    protected: frozenset[int]
    rest: tuple[int, ...]
    """Priorities."""
    size: int
    gpus: int
    level: bool
    wants_port: bool

    def bench(self, without: Collection[str] = ()) -> Bench:
        """The cluster without some pods."""
        bench = Bench(LEAVES, NODES, None, NodePorts)
        free = Counter(dict.fromkeys(NAMES, 8))
        for number, each in enumerate(self.running):
            members = [node for node in each.nodes if free[node] >= each.gpus]
            free.subtract(dict.fromkeys(members, each.gpus))
            self._run(bench, f"r{number}", each, members, number in self.protected)
        for number, (node, priority) in enumerate(zip(NAMES, self.rest, strict=True)):
            if free[node]:
                bench.run(f"rest{number}", node, priority, free[node])
        bench.protect("pdb", 1, app="protected")
        bench.remove(without)
        return bench

    def _run(self, bench: Bench, name: str, each: Running, members: list[str], is_protected: bool) -> None:
        labels = {"app": "protected"} if is_protected else {}
        notes = {"gangline.dev/min-runtime": "1h"} if each.is_young else {}
        pod: dict[str, Any] = {"age": 60, "annotations": notes, **ports(each.gpus, each.wants_port)}
        if each.min_member is None:
            for node in members:
                bench.run(name, node, each.priority, labels=labels, **pod)
            return
        bench.define(name, min(each.min_member, max(1, len(members))))
        for i, node in enumerate(members):
            bench.run(f"{name}-{i}", node, each.priority, labels=labels | {GROUP: name}, **pod)

    def is_placed(self, bench: Bench) -> bool:
        """Whether the gang that comes finds its place."""
        notes = ONE_LEAF if self.level else {}
        wanted = ports(self.gpus, self.wants_port)
        pods = bench.members("new", self.size, PRIORITY, annotations=notes, **wanted)
        return isinstance(bench.decide(pods), GroupDecision)


def ports(gpus: int, wants_port: bool) -> dict[str, Any]:
    """What a pod asks for: GPUs, and maybe a port of its node, which no request tells."""
    if not wants_port:
        return {"gpus": gpus}
    wanted = model.ResourceRequirements(requests={GPU: gpus})
    port = model.ContainerPort(container_port=80, host_port=80)
    return {"containers": [model.Container(name="main", image="main:1", resources=wanted, ports=[port])]}


SINGLE = st.builds(
    Running,
    nodes=st.sampled_from(NAMES).map(lambda node: (node,)),
    gpus=st.sampled_from([2, 4, 8]),
    priority=st.integers(0, 3),
    is_young=st.sampled_from([False, False, True]),
    wants_port=st.booleans(),
)
GANG = st.builds(
    Running,
    nodes=st.lists(st.sampled_from(NAMES), min_size=2, max_size=5, unique=True).map(tuple),
    gpus=st.sampled_from([2, 4, 8]),
    priority=st.integers(0, 3),
    min_member=st.integers(1, 5),
    is_young=st.sampled_from([False, False, False, True]),
    wants_port=st.booleans(),
)
STORIES = st.builds(
    Story,
    running=st.lists(st.one_of(SINGLE, GANG), min_size=3, max_size=10).map(tuple),
    protected=st.frozensets(st.integers(0, 9), max_size=4),
    rest=st.tuples(*(st.integers(0, 3) for _ in NAMES)),
    size=st.integers(1, 4),
    gpus=st.sampled_from([2, 4, 8]),
    level=st.booleans(),
    wants_port=st.booleans(),
)


def units(bench: Bench, victims: Iterable[str]) -> list[set[str]]:
    """Victims that go together: all members of a gang that goes as a whole, or one pod."""
    gone = set(victims)
    found: list[set[str]] = []
    for name in sorted({name.split("-")[0] for name in gone}):
        members = {pod.name for pod in bench.cache.pods.values() if pod.name.split("-")[0] == name}
        found += [members] if members <= gone else [{member} for member in members & gone]
    return found


FOUND = Story(  # one leaf needs a victim that the cluster does not need
    running=(
        Running(("l0-n0",), gpus=2, priority=0, is_young=True),
        Running(("l0-n0",), gpus=2, priority=1),
        Running(("l0-n0", "l2-n0", "l1-n0"), gpus=4, priority=1, min_member=3),
        Running(("l0-n1", "l1-n0", "l1-n1"), gpus=4, priority=2, min_member=1),
        *(Running(("l0-n0",), gpus=2, priority=0),) * 5,
        Running(("l0-n0", "l0-n1"), gpus=2, priority=1, min_member=1),
    ),
    protected=frozenset(),
    rest=(0, 0, 0, 1, 0, 1),
    size=4,
    gpus=2,
    level=False,
    wants_port=False,
)


@example(story=FOUND)
@given(story=STORIES)
def test_victims_are_enough_and_none_is_one_too_many(story: Story) -> None:
    bench = story.bench()
    before = bench.cache.nodes.requested.copy()
    if story.is_placed(bench):
        return
    plan = bench.plans[-1]

    assert (bench.cache.nodes.requested == before).all()
    if not isinstance(plan, EvictionPlan):
        may_go = {p.name for p in bench.cache.pods.values() if p.priority < PRIORITY and not p.annotations}
        assert not story.is_placed(story.bench(without=may_go))
        return
    victims = {pod.name for pod in plan.victims}
    assert story.is_placed(story.bench(without=victims))
    for unit in units(bench, victims):
        assert not story.is_placed(story.bench(without=victims - unit)), unit


@given(story=STORIES)
def test_no_gang_is_left_in_pieces_and_no_pod_goes_that_may_not(story: Story) -> None:
    bench = story.bench()
    if story.is_placed(bench) or not isinstance(plan := bench.plans[-1], EvictionPlan):
        return
    victims = {pod.name for pod in plan.victims}

    assert all(pod.priority < PRIORITY and not pod.annotations for pod in plan.victims)
    for number, each in enumerate(story.running):
        members = {pod.name for pod in bench.cache.pods.values() if pod.name.startswith(f"r{number}-")}
        left = len(members - victims)
        assert left == 0 or left == len(members) or left >= min(each.min_member or 1, len(members))
