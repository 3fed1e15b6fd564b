"""The state machine: hypothesis decides what comes, what breaks and when; the judge looks at every write.

Rules:
- All choices are arguments of the rules, so a failure comes with the shortest list of steps that hypothesis finds, and
  `@reproduce_failure` plays it again.
- An object that a step is about is chosen by its place among those that there are, so no step depends on a name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from gangline.errors import NotFound
from gangline.kube.resources import LEASES, PODS
from gangline_chaos import owned, units
from gangline_chaos.judge.objects import HOLDERS
from gangline_chaos.site import ELECTION
from gangline_chaos.units import SHARES, Unit
from gangline_chaos.virtual.client import Fate, FateKind
from gangline_chaos.virtual.replicas import NAMESPACE, Replica
from gangline_chaos.virtual.site import FABRIC, Site
from gangline_chaos.virtual.workload import Workload
from gangline_e2e import gangs
from gangline_e2e.gangs import LEAF, SPINE, Dialect, Rule

DIALECTS: tuple[Dialect, ...] = (*gangs.DIALECTS, owned.replica_set, owned.restarted_set, owned.job_set)
"""The dialects; for the last five, controllers create the pods."""
MOST_PODS = 40
"""The most pods at the same time."""
WRITES = st.integers(0, 30)
PLACES = st.integers(0, 50)
NODES = st.integers(0, FABRIC.nodes - 1)
MOMENTS = st.sampled_from((0.0, 0.0, 0.003, 0.02, 0.2, 1.5, 6.0))
"""Seconds that pass after a step."""
RULES = st.sampled_from((Rule(), Rule(required=LEAF), Rule(required=SPINE), Rule(preferred=LEAF)))
GPUS_OF_GANGS = st.sampled_from((1, 2, 4, 8))
CUTS = st.sampled_from((0.5, 3.0, 8.0, 40.0, 90.0, 400.0))
"""Seconds: shorter and longer than a Lease, than a request, and than locks of waiting pods stay."""
FATES = st.builds(Fate, st.sampled_from(tuple(FateKind)), st.sampled_from((0.01, 3.0, 31.0, 55.0)))
Notes = dict[str, str | None]
EDITS: dict[str, Callable[[Notes], Notes]] = {
    "no holders": lambda notes: {HOLDERS: "{}"},
    "no annotation": lambda notes: {HOLDERS: None},
    "no JSON": lambda notes: {HOLDERS: "{"},
    "a pod that is gone": lambda notes: {HOLDERS: _held_by_nobody(notes.get(HOLDERS) or "{}")},
}
"""The values that strangers write into the annotation of a lease."""
Chosen = TypeVar("Chosen")


def chosen(found: Sequence[Chosen], place: int) -> Chosen | None:
    """The object at this place, counted round; None if there is no object."""
    return found[place % len(found)] if found else None


def _held_by_nobody(holders: str) -> str:
    ids = [hold["ids"] for hold in json.loads(holders).values()] if holders.endswith("}") else []
    hold = {"pod": "default/nobody", "by": "stranger.1"}
    return json.dumps({f"stranger-{number}": {**hold, "ids": each} for number, each in enumerate(ids)})


class Machine(RuleBasedStateMachine):
    """One cluster."""

    replicas: ClassVar[int] = 2
    steps: ClassVar[int] = 0
    """The number of steps of all machines of this class."""
    faults: ClassVar[int] = 0
    """The number of faults of all machines of this class, as the judge counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.site = Site(self.replicas)
        self.workload = Workload(self.site)
        self._is_broken = False

    # What is wanted

    @initialize(gpus=st.lists(st.integers(1, 8), min_size=1, max_size=4), of=RULES, then=MOMENTS)
    def begin(self, gpus: list[int], of: Rule, then: float) -> None:
        """Begin with a scheduler that leads, and some work."""
        self.site.pass_time(3.0)
        for each in gpus:
            self.workload.add(partial(units.exclusive, gpus=each))
        self._add(lambda name: units.gang_of(gangs.koordinator(name, 3, of, gpus[0]), gpus[0]), then)

    @precondition(lambda self: self.workload.count < MOST_PODS)
    @rule(gpus=st.integers(1, 8), then=MOMENTS)
    def pod(self, gpus: int, then: float) -> None:
        self._add(lambda name: units.single(name, gpus), then)

    @precondition(lambda self: self.workload.count < MOST_PODS)
    @rule(
        dialect=st.sampled_from(DIALECTS),
        of=RULES,
        size=st.integers(2, 5),
        gpus=GPUS_OF_GANGS,
        then=MOMENTS,
    )
    def gang(self, dialect: Dialect, of: Rule, size: int, gpus: int, then: float) -> None:
        self._add(lambda name: units.gang_of(dialect(name, size, of, gpus), gpus), then)

    @precondition(lambda self: self.workload.count < MOST_PODS)
    @rule(count=st.integers(1, 4), milli=st.sampled_from(SHARES), then=MOMENTS)
    def shares(self, count: int, milli: int, then: float) -> None:
        for _ in range(count):
            self._add(lambda name: units.share(name, milli), 0.0)
        self._pass(then)

    @precondition(lambda self: self.workload.count < MOST_PODS)
    @rule(gpus=st.integers(1, 8), then=MOMENTS)
    def gpu_claim(self, gpus: int, then: float) -> None:
        self._add(lambda name: units.exclusive(name, gpus), then)

    @precondition(lambda self: self.workload.count < MOST_PODS)
    @rule(size=st.integers(1, 3), cards=st.integers(1, 2), then=MOMENTS)
    def resource_claims(self, size: int, cards: int, then: float) -> None:
        self._add(lambda name: units.with_claims(name, [cards] * size, gpus_by_card=2), then)

    @precondition(lambda self: self.workload.units)
    @rule(place=PLACES, then=MOMENTS)
    def end_unit(self, place: int, then: float) -> None:
        if (unit := chosen(self.workload.units, place)) is not None:
            self.workload.end(unit)
        self._pass(then)

    @precondition(lambda self: self.workload.count)
    @rule(place=PLACES, at_once=st.booleans(), then=MOMENTS)
    def delete_pod(self, place: int, at_once: bool, then: float) -> None:
        if (pod := chosen(self.site.pods(), place)) is not None:
            self.site.fault("delete-pod")
            self.site.delete_pod(pod["metadata"]["name"], at_once)
        self._pass(then)

    @precondition(lambda self: self.workload.units)
    @rule(then=MOMENTS)
    def repair(self, then: float) -> None:
        self.workload.repair()
        self._pass(then)

    @precondition(lambda self: self.workload.count)
    @rule(place=PLACES, phase=st.sampled_from(("Succeeded", "Failed")), then=MOMENTS)
    def pod_ends(self, place: int, phase: str, then: float) -> None:
        running = [pod for pod in self.site.pods() if pod["status"].get("phase") == "Running"]
        if (pod := chosen(running, place)) is not None:
            status = {"status": {"phase": phase}}
            self.site.server.patch(PODS, pod["metadata"]["name"], status, subresource="status")
        self._pass(then)

    # Nodes

    @rule(number=NODES, then=MOMENTS)
    def make_node(self, number: int, then: float) -> None:
        self.site.fleet.make(number)
        self._pass(then)

    @rule(number=NODES, then=MOMENTS)
    def cordon_node(self, number: int, then: float) -> None:
        self.site.fleet.cordon(number)
        self._pass(then)

    @rule(number=NODES, then=MOMENTS)
    def fail_node(self, number: int, then: float) -> None:
        self.site.fault("fail-node")
        self.site.fleet.fail(number)
        self._pass(then)

    @rule(number=NODES, then=MOMENTS)
    def lose_node(self, number: int, then: float) -> None:
        self.site.fault("lose-node")
        self.site.fleet.lose(number)
        self._pass(then)

    @rule(number=NODES, seconds=st.sampled_from((0.01, 1.0, 10.0, 60.0)), then=MOMENTS)
    def lose_report(self, number: int, seconds: float, then: float) -> None:
        self.site.fault("lose-report", seconds)
        self.site.fleet.silence(number)
        self.site.later(seconds, self.site.fleet.report, number)
        self._pass(then)

    # Strangers

    @precondition(lambda self: self.site.locks())
    @rule(place=PLACES, count=st.sampled_from((1, 1, 5, 50)), then=MOMENTS)
    def delete_locks(self, place: int, count: int, then: float) -> None:
        self.site.fault("delete-locks")
        locks = self.site.locks()
        for lock in (locks[place % len(locks) :] + locks)[: min(count, len(locks))]:
            self.site.server.delete(LEASES, lock["metadata"]["name"], namespace=NAMESPACE)
        self._pass(then)

    @precondition(lambda self: self.site.locks())
    @rule(place=PLACES, edit=st.sampled_from(tuple(EDITS)), then=MOMENTS)
    def edit_lock(self, place: int, edit: str, then: float) -> None:
        self.site.fault("edit-lock")
        if (lock := chosen(self.site.locks(), place)) is not None:
            annotations = EDITS[edit](lock["metadata"]["annotations"])
            patch = {"metadata": {"annotations": annotations}}
            self.site.server.patch(LEASES, lock["metadata"]["name"], patch, namespace=NAMESPACE)
        self._pass(then)

    @rule(then=MOMENTS)
    def delete_election(self, then: float) -> None:
        self.site.fault("delete-election")
        with suppress(NotFound):
            self.site.server.delete(LEASES, ELECTION, namespace=NAMESPACE)
        self._pass(then)

    # Schedulers

    @rule(writes=WRITES, fate=FATES, seconds=st.sampled_from((0.1, 2.0, 20.0)), then=MOMENTS)
    def next_write(self, writes: int, fate: Fate, seconds: float, then: float) -> None:
        """The leader's next write, or one of those after it, meets a fate."""
        if (leader := self.site.leader()) is not None:
            leader.arm(writes, fate, seconds)
        self._pass(then)

    @rule(place=PLACES, seconds=st.sampled_from((0.0, 1.0, 10.0, 70.0)), then=MOMENTS)
    def kill(self, place: int, seconds: float, then: float) -> None:
        replica = self._replica(place)
        self.site.fault("kill", seconds)
        self.site.call(replica.kill, seconds)
        self._pass(then)

    @rule(place=PLACES, then=MOMENTS)
    def restart(self, place: int, then: float) -> None:
        """As a rolling update does."""
        self.site.fault("restart")
        self.site.begin(self._replica(place).restart())
        self._pass(then)

    @rule(place=PLACES, seconds=CUTS, delivers=st.booleans(), then=MOMENTS)
    def cut(self, place: int, seconds: float, delivers: bool, then: float) -> None:
        self.site.fault("cut", seconds)
        self._replica(place).wire.cut(seconds, delivers)
        self._pass(then)

    @rule(place=PLACES, seconds=st.sampled_from((0.0, 45.0, -45.0, 86400.0, -86400.0)), then=MOMENTS)
    def jump_clock(self, place: int, seconds: float, then: float) -> None:
        """Shift the wall clock of one scheduler."""
        self.site.fault("jump-clock")
        self._replica(place).clock.skew = seconds
        self._pass(then)

    @rule(compact=st.booleans(), then=MOMENTS)
    def break_watches(self, compact: bool, then: float) -> None:
        self.site.fault("break-watches")
        if compact:
            self.site.server.compact()
        self.site.server.disconnect()
        self._pass(then)

    # Time

    @rule(seconds=st.floats(1.0, 60.0))
    def time_passes(self, seconds: float) -> None:
        self._pass(seconds)

    def look(self) -> None:
        """Raises AssertionError if a rule of the judge is broken."""
        if self.site.judge.violations:
            self._is_broken = True
            said = "\n".join([*map(str, self.site.judge.violations), *self.site.told()])
            order = os.environ.get("PYTHONHASHSEED", "random")
            raise AssertionError(f"{said}\nPYTHONHASHSEED={order}, digest of the history: {self.site.feed.digest[:16]}")

    def teardown(self) -> None:
        """End all faults: everything must come into order. Then delete all units: no pod and no lock may be left."""
        try:
            if not self._is_broken:
                self.site.settle()
                self.look()
                self.workload.end_all()
                self.site.wait_for_order(is_empty=True)
                self.look()
                assert not self.site.locks() and not self.site.pods(), "something is left"
        finally:
            type(self).faults += self.site.judge.faults
            self.site.close()

    def _add(self, make: Callable[[str], Unit], then: float) -> None:
        self.workload.add(make)
        self._pass(then)

    def _pass(self, seconds: float) -> None:
        type(self).steps += 1
        self.site.pass_time(seconds)
        self.look()

    def _replica(self, place: int) -> Replica:
        """The leader for even places, if there is one; else one of all."""
        leader = self.site.leader()
        return leader if leader is not None and place % 2 == 0 else self.site.replicas[place % len(self.site.replicas)]
