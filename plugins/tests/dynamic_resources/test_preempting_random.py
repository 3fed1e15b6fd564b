"""Whatever claims and pods there are: a trial leaves no trace, and victims are enough, and none goes in vain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gangline import PodInfo, Status
from gangline.testing.deciding import Decision

from .preempting_cases import Bench

NODES = ("a", "b")
DEVICES = 3
PRIORITY = 2
"""Of the pod that comes."""
RUNNING, ENDING, GONE = range(3)


@dataclass(frozen=True)
class User:
    """A pod with claims on its node."""

    node: int
    claims: tuple[int, ...]
    priority: int
    place: int
    """RUNNING, ENDING or GONE."""


@dataclass(frozen=True)
class Story:
    """Which claim has which devices, who uses the claims, and how many devices the pod that comes wants."""

    claims: tuple[tuple[int, frozenset[int]], ...]
    """The node and the devices."""
    users: tuple[User, ...]
    wanted: int
    has_counters: bool

    def of(self, user: User) -> list[int]:
        """The claims of a pod: those that have devices on the node of the pod."""
        return [each for each in user.claims if self.claims[each][0] == user.node]

    def bench(self) -> Bench:
        """The cluster."""
        bench = self._bench(frozenset())
        for number, user in enumerate(self.users):
            if user.place == GONE:
                bench.cache.remove_pod(f"pod-default-p{number}")
        return bench

    def fits(self, victims: frozenset[int], node: str) -> bool:
        """Whether the pod that comes fits on a node once the victims and all who are ending are gone, and their claims
        have been taken care of.
        """
        over = frozenset(number for number, user in enumerate(self.users) if user.place != RUNNING)
        bench = self._bench(over | victims)
        row = bench.cache.nodes.row_of(node)
        return bool(bench.runtime.evaluator.filter(bench.waiting(count=self.wanted)).feasible[row])

    def _bench(self, without: frozenset[int]) -> Bench:
        """The cluster without some pods, and without the devices of claims that nobody else uses."""
        bench = Bench(counters=self.has_counters, **dict.fromkeys(NODES, DEVICES))
        free = [set(range(DEVICES)) for _ in NODES]
        for number, (node, devices) in enumerate(self.claims):
            given = free[node] & devices
            free[node] -= given
            users = [n for n, user in enumerate(self.users) if number in self.of(user)]
            bench.claim(f"c{number}", NODES[node], given if set(users) - without else (), [f"p{n}" for n in users])
        for number, user in enumerate(self.users):
            if number not in without:
                names = [f"c{each}" for each in self.of(user)]
                bench.run(f"p{number}", NODES[user.node], names, user.priority, user.place == ENDING)
        return bench


def stories() -> st.SearchStrategy[Story]:
    """Clusters of two nodes with three devices each."""
    claims = st.tuples(st.integers(0, 1), st.frozensets(st.integers(0, DEVICES - 1), min_size=1, max_size=2))
    uses = st.lists(st.integers(0, 4), min_size=1, max_size=2, unique=True).map(tuple)
    users = st.builds(
        User, st.integers(0, 1), uses, st.integers(0, 3), st.sampled_from((RUNNING, RUNNING, RUNNING, ENDING, GONE))
    )
    return st.builds(
        Story,
        st.lists(claims, min_size=5, max_size=5).map(tuple),
        st.lists(users, min_size=3, max_size=7).map(tuple),
        st.integers(2, 3),
        st.booleans(),
    )


@given(stories())
def test_victims_are_enough_and_none_of_them_goes_in_vain(story: Story) -> None:
    bench = story.bench()
    pod = bench.waiting(count=story.wanted, priority=PRIORITY)
    before = bench.devices()

    if isinstance(bench.decide(pod), Decision):
        return
    assert bench.devices() == before
    lower = {
        number: NODES[user.node]
        for number, user in enumerate(story.users)
        if user.priority < PRIORITY and user.place != GONE
    }
    found = bench.said[-1]
    if isinstance(found, Status):
        for node in NODES:
            everybody = frozenset(number for number, where in lower.items() if where == node)
            assert story.fits(frozenset(), node) or not story.fits(everybody, node)
        return
    victims = frozenset(int(each.name[1:]) for each in found.victims)
    running = frozenset(each for each in victims if story.users[each].place == RUNNING)
    assert story.fits(victims, found.node)
    for each in running:
        assert not story.fits(victims - {each}, found.node)


Step = tuple[int, int, int]


def steps() -> st.SearchStrategy[list[Step]]:
    """What is done, to which pod, on which node."""
    return st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(0, 1)), max_size=25)


@given(stories(), steps())
def test_a_trial_leaves_no_trace_on_the_devices(story: Story, steps: list[Step]) -> None:
    bench = story.bench()
    waiting = [bench.waiting("own", count=story.wanted), *_sharing(bench)]
    placed = [pod for pod in bench.cache.pods.values() if pod.row >= 0]
    rows = {pod.uid: pod.row for pod in placed}
    bench.runtime.evaluator.filter(waiting[0])
    before = bench.devices()
    verdicts = bench.runtime.evaluator.filter(waiting[0]).feasible.tolist()

    with ExitStack() as blocks:
        transactions = [blocks.enter_context(bench.cache.transaction())]
        for what, number, node in steps:
            tx = transactions[-1]
            if what == 0 and placed and (pod := placed[number % len(placed)]).row >= 0:
                tx.unplace(pod)
            elif what == 1 and placed and (pod := placed[number % len(placed)]).row < 0:
                tx.place(pod, rows[pod.uid])
            elif what == 2 and (pod := waiting[number % len(waiting)]).row < 0:
                tx.place(pod, node)
            elif what == 3:
                transactions.append(blocks.enter_context(bench.cache.transaction()))
            elif what == 4:
                blocks.enter_context(bench.cache.foreseen())
            elif what == 5:
                bench.runtime.evaluator.filter(waiting[0])
                if number == 0 and len(transactions) > 1:
                    tx.commit()

    assert [pod.uid for pod in placed if pod.row != rows[pod.uid]] == []
    assert bench.devices() == before
    assert bench.runtime.evaluator.filter(waiting[0]).feasible.tolist() == verdicts


def _sharing(bench: Bench) -> Iterator[PodInfo]:
    """Waiting pods that name claims which others use."""
    for number in range(2):
        yield bench.cache.record(bench.pod_with(f"w{number}", [f"c{number}"]))
