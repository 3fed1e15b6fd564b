"""Random stories of gangs on the in-memory API server: whatever happens to pods, nodes and answers, nothing breaks.

What must hold is read from the objects of the API server, and once all is quiet from the scheduler beside them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest

from gangline import model
from gangline.errors import ApiError, Conflict, NotFound, Unavailable
from gangline.kube.resources import NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.loop.scheduler import Scheduler
from gangline.simulate import SimulatedClient
from gangline.state.cache import Cache
from gangline.state.requests import compute
from gangline.testing import make_node, make_pod
from gangline.testing.gang_stories import PROFILE, GangCluster
from gangline.testing.gangs import FALLBACK, GROUP, LEAF, PREFERRED, REQUIRED, SPINE

CALM = 150.0
"""Seconds after which all must be done: less than those after which the queue tries everything again."""
CLOSENESS: tuple[Mapping[str, str], ...] = (
    {REQUIRED: "leaf"},
    {REQUIRED: "spine"},
    {PREFERRED: "leaf"},
    {REQUIRED: "spine", PREFERRED: "leaf"},
    {FALLBACK: "leaf,20s;spine,40s;any"},
    {},
)


class UnreliableClient(SimulatedClient):
    """Answers to bindings get lost, come as errors though the pod is bound, or are refusals."""

    def __init__(self, story: Story, **settings: Any) -> None:
        super().__init__(story.cluster.server, **settings)
        self._story = story

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """As the interface says, more or less."""
        chance = self._story.dice.random() if self._story.is_stormy else 1.0
        if chance < 0.2:
            self._story.disturbed.add(name.rsplit("-", 1)[0])
        if chance < 0.03:
            raise Conflict(409, "Conflict", "the pod is being looked at")
        if chance < 0.06:
            raise Unavailable(503, "Unavailable", "down")
        await super().bind(namespace, name, uid, node, annotations)
        if chance < 0.1:
            raise Unavailable(0, "Timeout", "no answer in time")
        if chance < 0.2:
            raise ApiError(422, "Invalid", "a webhook said no too late")


class Story:
    """A cluster, and somebody who does things to it at random."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.seed = seed
        self.cluster = GangCluster(leaves=0)
        self.is_stormy = True
        self.gangs: dict[str, tuple[int, Mapping[str, str]]] = {}
        """How many members each needs, and how close."""
        self.disturbed: set[str] = set()
        """Gangs of which a member was deleted, or not bound when it should have been."""
        self.moved: set[str] = set()
        """Nodes that were somewhere else before."""
        self.numbers: Counter[str] = Counter()
        for number in range(14):
            self._add_node(number)

    # Reading

    def pods(self) -> Sequence[model.Pod]:
        return self.cluster.list(PODS)

    def nodes(self) -> dict[str, model.Node]:
        return {node.metadata.name: node for node in self.cluster.list(NODES)}

    def members(self) -> dict[str, list[model.Pod]]:
        found: dict[str, list[model.Pod]] = defaultdict(list)
        for pod in self.pods():
            found[(pod.metadata.labels or {}).get(GROUP, "")].append(pod)
        return found

    # Doing

    def act(self) -> None:
        """One thing happens."""
        acts = {
            self.new_gang: 9,
            self.more_pods: 3,
            self.delete_pod: 3,
            self.delete_gang: 4,
            self.single_pod: 2,
            self.new_node: 2,
            self.lose_node: 1,
            self.cordon: 2,
            self.move_node: 1,
            self.need_less: 1,
            self.lose_group: 1,
            self.cut_off: 1,
        }
        self.dice.choices(list(acts), list(acts.values()))[0]()

    def new_gang(self) -> None:
        name = f"g{len(self.gangs)}"
        size = self.dice.randint(1, 7)
        needed = self.dice.choice([size, size, max(1, size - 2)])
        self.gangs[name] = (needed, self.dice.choice(CLOSENESS))
        self._make_group(name)
        for _ in range(size - self.dice.choice([0, 0, 0, 1])):
            self._add_member(name)

    def more_pods(self) -> None:
        if self.gangs:
            self._add_member(self.dice.choice(sorted(self.gangs)))

    def delete_pod(self) -> None:
        self._delete(self.dice.sample(self.pods(), k=min(2, len(self.pods()))))

    def delete_gang(self) -> None:
        if self.gangs:
            self._delete(self.members()[self.dice.choice(sorted(self.gangs))])

    def single_pod(self) -> None:
        self.numbers["single"] += 1
        pod = make_pod(
            f"single-{self.numbers['single']}", gpus=self.dice.choice([1, 2, 8]), cpu=1, scheduler_name="gangs"
        )
        self._create_pod(pod)

    def new_node(self) -> None:
        self._add_node(self.numbers["node"])

    def lose_node(self) -> None:
        name = self.dice.choice(sorted(self.nodes()))
        self.cluster.server.delete(NODES, name)
        self._delete([pod for pod in self.pods() if pod.spec.node_name == name])

    def cordon(self) -> None:
        name, node = self.dice.choice(sorted(self.nodes().items()))
        self._patch_node(name, {"spec": {"unschedulable": not node.spec.unschedulable}})

    def move_node(self) -> None:
        name = self.dice.choice(sorted(self.nodes()))
        self.moved.add(name)
        self._patch_node(name, {"metadata": {"labels": {LEAF: self.dice.choice(["leaf-0", "leaf-1", None])}}})

    def need_less(self) -> None:
        if self.gangs:
            name = self.dice.choice(sorted(self.gangs))
            needed, closeness = self.gangs[name]
            self.gangs[name] = (max(1, needed - 1), closeness)
            with suppress(NotFound):
                self.cluster.server.patch(
                    SCHEDULER_PLUGINS_POD_GROUPS, name, {"spec": {"minMember": max(1, needed - 1)}}, namespace="default"
                )

    def lose_group(self) -> None:
        """The object is gone for a while."""
        if self.gangs:
            name = self.dice.choice(sorted(self.gangs))
            with suppress(NotFound):
                self.cluster.server.delete(SCHEDULER_PLUGINS_POD_GROUPS, name, namespace="default")

    def cut_off(self) -> None:
        self.cluster.server.disconnect()

    def calm_down(self) -> None:
        """From now on everything works, and every group has its object."""
        self.is_stormy = False
        known = {group.metadata.name for group in self.cluster.list(SCHEDULER_PLUGINS_POD_GROUPS)}
        for name in self.gangs.keys() - known:
            self._make_group(name)

    def _make_group(self, name: str) -> None:
        self.cluster.add_group(name, self.gangs[name][0])

    def _add_member(self, gang: str) -> None:
        self.numbers[gang] += 1
        gpus = (2, 4, 8)[int(gang[1:]) % 3]
        pod = make_pod(
            f"{gang}-{self.numbers[gang]}",
            gpus=gpus,
            labels={GROUP: gang},
            annotations=self.gangs[gang][1],
            scheduler_name="gangs",
        )
        self._create_pod(pod)

    def _create_pod(self, pod: model.Pod) -> None:
        pod.metadata.uid = ""
        self.cluster.create(PODS, pod)

    def _add_node(self, number: int) -> None:
        self.numbers["node"] += 1
        labels = {SPINE: f"spine-{number % 2}", LEAF: f"leaf-{number // 2 % 2}"} if number % 7 != 6 else {}
        node = make_node(f"n{number}", gpus=8, cpu=64, memory="512Gi", labels=labels)
        self.cluster.create(NODES, node)

    def _patch_node(self, name: str, patch: Mapping[str, Any]) -> None:
        self.cluster.server.patch(NODES, name, patch)

    def _delete(self, pods: Sequence[model.Pod]) -> None:
        for pod in pods:
            self.disturbed.add((pod.metadata.labels or {}).get(GROUP, ""))
            self.cluster.server.delete(PODS, pod.metadata.name, namespace="default", grace_period_seconds=0)

    # Telling it

    def scheduler(self) -> AbstractAsyncContextManager[Scheduler]:
        return self.cluster.scheduling(PROFILE, UnreliableClient(self, latency={"bind": 0.2}), seed=self.seed)

    async def tell(self) -> None:
        for _ in range(self.dice.randint(0, 1)):  # a scheduler that is replaced in the middle of it
            async with self.scheduler():
                await self._happen(20)
        async with self.scheduler() as scheduler:
            await self._happen(50)
            self.calm_down()
            await asyncio.sleep(CALM)
            self.check_objects()
            self.check_scheduler(scheduler)
            bound = self.cluster.bound()
        async with self.scheduler():  # one that begins now finds nothing more to do
            await asyncio.sleep(CALM)
        assert self.cluster.bound() == bound

    async def _happen(self, acts: int) -> None:
        for _ in range(acts):
            self.act()
            await asyncio.sleep(self.dice.choice([0.0, 0.05, 0.3, 2.0]))
            self.check_room()

    # What must hold

    def check_room(self) -> None:
        """No node has more on it than it holds."""
        used: Counter[str] = Counter()
        for pod in self.pods():
            if pod.spec.node_name:
                used[pod.spec.node_name] += compute(pod.spec).real["nvidia.com/gpu"]
        assert max(used.values(), default=0) <= 8, used.most_common(3)

    def check_objects(self) -> None:
        nodes = self.nodes()
        for gang, pods in self.members().items():
            if not gang:
                continue
            needed, closeness = self.gangs[gang]
            placed = [pod.spec.node_name for pod in pods if pod.spec.node_name]
            for pod in pods:
                name = pod.metadata.name
                assert pod.spec.node_name or self.cluster.message(name), f"{name} waits: why?"
            if gang in self.disturbed:
                continue
            assert len(placed) == 0 or len(placed) >= needed, f"{gang}: {len(placed)} of {needed}"
            if closeness.get(REQUIRED) and self.moved.isdisjoint(placed):
                depth = {"spine": 1, "leaf": 2}[closeness[REQUIRED]]
                where = {
                    tuple((nodes[node].metadata.labels or {}).get(key) for key in (SPINE, LEAF)[:depth])
                    for node in placed
                }
                assert len(where) <= 1 and not any(None in domain for domain in where), f"{gang} is in {where}"

    def check_scheduler(self, scheduler: Scheduler) -> None:
        """It knows what the API server has, and holds on to nothing else."""
        pods = {pod.metadata.uid: pod for pod in self.pods()}
        waiting = {uid for uid, pod in pods.items() if not pod.spec.node_name}
        queued = [pod.uid for unit in scheduler.queue for pod in unit.everybody()]
        assert sorted(queued) == sorted(waiting)
        assert {unit.place for unit in scheduler.queue} <= {"gated", "unschedulable"}
        assert scheduler.cache.pods.keys() == pods.keys() - waiting and not scheduler.cache.assumed
        assert not len(scheduler.waiting) and not scheduler.queue.nominations.by_node
        fresh = Cache()
        for node in self.nodes().values():
            fresh.upsert_node(node)
        for pod in pods.values():
            if pod.spec.node_name:
                fresh.upsert_pod(fresh.record(pod))
        assert columns(scheduler.cache) == columns(fresh)
        placed = scheduler.runtimes["gangs"].handle.placed
        there = {key: members.keys() for key, members in placed.groups().items()}
        placed.clear()
        list(placed.start_over(scheduler.cache.pods))
        assert there == {key: members.keys() for key, members in placed.groups().items()}


def columns(cache: Cache) -> dict[str, Any]:
    """For each node what is taken of each resource, its pods, and its labels."""
    nodes = cache.nodes
    names = nodes.axis.names
    return {
        name: (
            {names[r]: int(amount) for r, amount in enumerate(nodes.requested[: len(names), row]) if amount},
            {pod.key for pod in nodes.pods_on[row].values()},
            nodes.labels.column(LEAF, nodes.everything).values[nodes.labels.column(LEAF, nodes.everything).ids[row]]
            if nodes.labels.column(LEAF, nodes.everything).exists[row]
            else None,
        )
        for row, name in enumerate(nodes.names)
        if nodes.alive[row]
    }


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_half_done_or_forgotten_whatever_happens(seed: int) -> None:
    story = Story(seed)

    story.cluster.play(story.tell)
