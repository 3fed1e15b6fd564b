"""Whatever nodes, writes and schedulers do: gangs keep their leaf, no node has two pods, all gangs run in the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gangline import Conflict, NotFound, TooManyRequests, Unavailable, model, resources

from .recovery_cases import LossStory

ALL = [f"l{leaf}-n{number}" for leaf in range(3) for number in range(4)]
WRITES = ("bind", "patch", "delete", "evict")
FAULTS = (
    Unavailable(503, "", "no"),
    TooManyRequests(429, "", "later"),
    Conflict(409, "", "changed"),
    NotFound(404, "", ""),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fail", "heal", "delete", "gang", "other", "wait", "remove", "restart"]),
        st.integers(0, 11),
        st.sampled_from([0.0, 0.5, 3.0, 11.0, 40.0]),
    ),
    max_size=14,
)


def is_over(pod: model.Pod) -> bool:
    return pod.status.phase == "Failed"


class Losses(LossStory):
    """Steps at random, and a look at the objects every half second."""

    def __init__(self, seed: int) -> None:
        super().__init__(leaves=3, faults=self.fault, releaseSeconds=60, roomSeconds=20)
        self._chance = random.Random(seed)
        self.is_faulty = True
        self.gangs: dict[str, int] = {}
        self.pods = 0

    def fault(self, verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        """One of six writes of pods fails, in one way or another."""
        if not self.is_faulty or resource != resources.PODS or verb not in WRITES or self._chance.random() > 1 / 6:
            return None
        return self._chance.choice(FAULTS)

    def step(self, what: str, number: int) -> None:
        """One step."""
        there = {node.metadata.name for node in self.list_nodes()}
        node = ALL[number]
        if what == "fail" and node in there:
            self.fail(node)
        elif what == "heal" and node in there:
            self.fail(node, status="True")
        elif what == "delete" and node in there and len(there) > 10:
            self.lose(node)
        elif what == "gang" and len(self.gangs) < 3:
            name = f"gang{len(self.gangs)}"
            self.gangs[name] = 2 + number % 3
            self.add_job(name, self.gangs[name], priority=number % 2)
        elif what == "other" and self.pods < 4:
            self.pods += 1
            self.add_pods_of_one_node(f"other{self.pods}", 1)
        elif what == "remove" and (bound := sorted(self.bound("gang"))):
            self.server.delete(resources.PODS, bound[number % len(bound)], namespace="default")

    def make_whole(self) -> None:
        """All nodes are there and well, and only the gangs want them: each would have a leaf."""
        there = {node.metadata.name for node in self.list_nodes()}
        for node in sorted(there):
            self.fail(node, status="True")
        self.create(resources.NODES, *(self.make_node(name) for name in ALL if name not in there))
        for each in self.list(resources.REPLICA_SETS):
            self.server.delete(resources.REPLICA_SETS, each.metadata.name, namespace="default")
        for pod in self.list(resources.PODS):
            if pod.metadata.name.startswith("other"):
                self.server.delete(resources.PODS, pod.metadata.name, namespace="default")

    def bound(self, prefix: str = "") -> dict[str, str]:
        """As ever, without pods that were marked as failed, and could not be deleted then: they use no node."""
        over = {pod.metadata.name for pod in self.list(resources.PODS) if is_over(pod)}
        return {name: node for name, node in super().bound(prefix).items() if name not in over}

    def look(self) -> None:
        """Judge the objects as they are."""
        on = Counter(pod.spec.node_name for pod in self.list(resources.PODS) if pod.spec.node_name and not is_over(pod))
        assert max(on.values(), default=0) <= 1, on
        for name, size in self.gangs.items():
            assert len(self.bound(name)) <= size and len(self.leaves_of(name)) <= 1, self.bound(name)


@given(STEPS, st.integers(0, 1 << 20))
@example([("fail", 4, 0.0), ("fail", 8, 0.0), ("delete", 0, 40.0), ("remove", 1, 40.0)], 66528)
def test_gangs_survive_whatever_happens_to_nodes(steps: list[tuple[str, int, float]], seed: int) -> None:
    cluster = Losses(seed)

    async def story() -> None:
        cluster.step("gang", 2)
        for what, number, seconds in steps:
            if what == "restart":
                await cluster.restart()
            cluster.step(what, number)
            for _ in range(int(seconds * 2)):
                await asyncio.sleep(0.5)
                cluster.look()
            await asyncio.sleep(0.01)
        cluster.make_whole()
        cluster.is_faulty = False
        for _ in range(240):
            await asyncio.sleep(0.5)
            cluster.look()
        assert {name: len(cluster.bound(name)) for name in cluster.gangs} == cluster.gangs

    cluster.play(story)
