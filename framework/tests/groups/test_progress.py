"""The numbers of a group: in a table, and against a recount after whatever its members do."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gangline import model
from gangline.api.pod_group import Membership, PodGroup, SubGroup
from gangline.groups.progress import Progress, expected
from gangline.kube.resources import JOBS
from gangline.queueing.queue import SchedulingQueue
from gangline.state.pods import PodInfo
from gangline.testing import SCHEDULER, cluster, make_node, make_pod
from gangline.testing.gangs import Gangs

QUESTIONS = ("runs", "is_partial", "may_start", "needed", "due", "missing", "there", "spare")
TABLE = [
    # least, placed, waiting: runs, is_partial, may_start, needed, due, missing, there, spare
    ((3, 0, 0), (False, False, False, 3, 0, 3, 0, 0)),
    ((3, 0, 2), (False, False, False, 3, 2, 1, 2, 0)),
    ((3, 0, 3), (False, False, True, 3, 3, 0, 3, 0)),
    ((3, 0, 5), (False, False, True, 3, 3, 0, 5, 0)),
    ((3, 1, 1), (False, True, False, 2, 1, 1, 2, 0)),
    ((3, 1, 2), (False, True, True, 2, 2, 0, 3, 0)),
    ((3, 3, 0), (True, False, False, 0, 0, 0, 3, 0)),
    ((3, 3, 1), (True, False, True, 0, 0, 0, 4, 0)),
    ((3, 5, 0), (True, False, False, 0, 0, 0, 5, 2)),
    ((0, 0, 1), (True, False, True, 0, 0, 0, 1, 0)),
    ((0, 2, 0), (True, False, False, 0, 0, 0, 2, 2)),
]


@pytest.mark.parametrize(("numbers", "answers"), TABLE, ids=[str(numbers) for numbers, _ in TABLE])
def test_the_numbers_say_what_becomes_of_a_group(numbers: tuple[int, int, int], answers: tuple[int, ...]) -> None:
    progress = Progress(*numbers)

    assert tuple(getattr(progress, question) for question in QUESTIONS) == answers


def test_a_part_is_counted_as_a_group_is_and_members_that_need_no_others_need_nobody() -> None:
    group = PodGroup("default", "a", "any", min_member=4)

    assert Progress.of(group, 1, 2) == Progress(4, 1, 2)
    assert Progress.of(SubGroup("workers", 2), 1) == Progress(2, 1, 0)
    assert Progress.of(None, 5) == Progress(0, 5, 0)


def test_members_that_leave_or_come_change_one_number() -> None:
    progress = Progress(3, placed=3, waiting=1)

    assert progress.without(1) == Progress(3, 2, 1) and progress.with_waiting(4) == Progress(3, 3, 4)


@pytest.mark.parametrize(("size", "pods"), [(0, 4), (3, 4), (9, 9)], ids=["not said", "fewer", "more"])
def test_a_group_is_expected_to_have_no_fewer_pods_than_it_needs(size: int, pods: int) -> None:
    assert expected(PodGroup("default", "a", "any", min_member=4, size=size)) == pods


COMPLETIONS = 4
NAMES = st.tuples(st.sampled_from(["named", "job"]), st.integers(0, 5)).map(lambda member: f"{member[0]}-{member[1]}")


class AnyLives(RuleBasedStateMachine):
    """Members of a PodGroup, and of a Job of which those that have succeeded do not come again."""

    @initialize()
    def start(self) -> None:
        self.gangs = Gangs(cluster([make_node("n", cpu=64, gpus=8)]))
        self.gangs.define("named", 3)
        self.queue = SchedulingQueue()
        runtime = self.gangs.runtime
        self.queue.serve(SCHEDULER, lambda pod, since: (since,), runtime.admit, {}, runtime.group_key)
        self.state: dict[str, str] = {}
        self.now, self.succeeded = 0.0, 0
        self.write_job()

    def write_job(self) -> None:
        metadata = model.ObjectMeta(name="job", namespace="default", uid="job")
        spec = model.JobSpec(parallelism=COMPLETIONS, completions=COMPLETIONS, completion_mode="Indexed")
        status = model.JobStatus(succeeded=self.succeeded)
        self.gangs.cache.store(JOBS).upsert(model.Job(metadata=metadata, spec=spec, status=status))

    def record(self, name: str, node: str = "", phase: str = "Pending") -> PodInfo:
        group = name.partition("-")[0]
        labels = {"scheduling.x-k8s.io/pod-group": "named"} if group == "named" else {}
        made = make_pod(name, cpu=1, node=node, labels=labels)
        if group == "job":
            made.metadata.owner_references = [
                model.OwnerReference(api_version="batch/v1", kind="Job", name="job", uid="job", controller=True)
            ]
        made.status.phase = phase
        return self.gangs.cache.record(made)

    @rule(name=NAMES)
    def comes(self, name: str) -> None:
        if self.state.get(name) in (None, "waits"):
            self.state[name] = "waits"
            self.queue.update(self.record(name), self.now)

    @rule(name=NAMES)
    def is_placed(self, name: str) -> None:
        if self.state.get(name) != "ended":
            self.state[name] = "placed"
            pod = self.record(name, "n")
            self.queue.remove(pod.uid)
            self.gangs.cache.upsert_pod(pod)

    @rule(name=NAMES, succeeds=st.booleans())
    def ends(self, name: str, succeeds: bool) -> None:
        if self.state.get(name) == "placed":
            self.state[name] = "ended"
            self.gangs.cache.upsert_pod(self.record(name, "n", "Succeeded" if succeeds else "Failed"))
            if succeeds and name.startswith("job"):
                self.succeeded += 1
                self.write_job()

    @precondition(lambda self: self.state)
    @rule(i=st.integers(0, 11))
    def goes(self, i: int) -> None:
        name = sorted(self.state)[i % len(self.state)]
        del self.state[name]
        uid = self.record(name).uid
        self.queue.remove(uid)
        self.gangs.cache.remove_pod(uid)

    @invariant()
    def the_numbers_are_those_of_a_recount(self) -> None:
        for name, least in (("named", 3), ("job", max(1, COMPLETIONS - self.succeeded))):
            membership = self.gangs.handle.group_of(self.record(f"{name}-0"))
            assert isinstance(membership, Membership)
            group = membership.group
            unit = self.queue.group(group.key)
            members = [] if unit is None else unit.members

            progress = self.gangs.runtime.progress(group, len(members))

            mine = [state for pod, state in self.state.items() if pod.startswith(name)]
            assert progress == Progress(least, mine.count("placed"), mine.count("waits"))
            there = [pod for pod in self.gangs.cache.pods.values() if self.gangs.runtime.group_key(pod) == group.key]
            assert progress.placed == sum(pod.row >= 0 for pod in there) == len(there)
            if members:
                assert self.gangs.runtime.admit(members).is_success == progress.may_start


TestAnyLives = AnyLives.TestCase
TestAnyLives.settings = settings(max_examples=settings().max_examples * 3 // 5, stateful_step_count=30)
