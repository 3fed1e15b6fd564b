"""Which group a pod is in: the order of readers, what is remembered, and whom a changed object concerns."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import msgspec
import pytest

from gangline import model
from gangline.api.pod_group import Membership, PodGroup, Problem, TopologyConstraint
from gangline.groups import READERS, WATCHES, Groups, conflict, place_of_object
from gangline.groups.reading import Lookup
from gangline.groups.succeeded import SUCCEEDED_PODS, SucceededPod
from gangline.kube.resources import (
    DEPLOYMENTS,
    GPU_CLAIMS,
    JOB_SETS,
    JOBS,
    LEADER_WORKER_SETS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    SERVICES,
    Resource,
)
from gangline.state.pods import PodInfo
from gangline.testing import make_node, make_pod
from gangline.wire.custom_resources import ALLOCATED, CLAIM, GpuClaim, GpuClaimSpec

from .stories import World

LABEL = "scheduling.x-k8s.io/pod-group"


@pytest.fixture
def world() -> World:
    return World()


def test_each_kind_is_watched_once_under_a_name_of_its_own() -> None:
    keys = [resource.key for resource in WATCHES]

    assert len(set(keys)) == len(keys) and {DEPLOYMENTS, JOBS, JOB_SETS, LEADER_WORKER_SETS, GPU_CLAIMS} < set(WATCHES)
    assert sum(resource.plural == "podgroups" for resource in WATCHES) == 5


def test_groups_that_are_named_come_before_those_that_owners_make() -> None:
    assert [reader.dialect for reader in READERS] == [
        "upstream",
        "scheduler-plugins",
        "kai",
        "volcano",
        "koordinator",
        "kueue",
        "gang-ref",
        "leader-worker-set",
        "job-set",
        "gpu-count",
        "job",
    ]


def test_a_pod_that_names_a_group_is_not_in_that_of_its_job(world: World) -> None:
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": 2})

    member = world.member(world.pod(owner=world.job(), labels={LABEL: "g"}))

    assert member.group.dialect == "scheduler-plugins"


@pytest.mark.parametrize("owned", [False, True], ids=["alone", "of a deployment"])
def test_an_ordinary_pod_is_in_no_group(world: World, owned: bool) -> None:
    owner = world.deployment() if owned else None

    assert world.groups.of(world.pod(owner=owner, labels={"app": "web"}, annotations={"note": "x"})) is None


# Remembering


class Counting:
    """A reader that puts every pod with a Job behind it into a group, and counts how often it is asked."""

    dialect = "counting"
    watches: tuple[Resource[Any], ...] = (JOBS,)

    def __init__(self) -> None:
        self.asked = 0

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        self.asked += 1
        job: model.Job | None = lookup.store(JOBS).get("train", pod.namespace)
        return (
            None if job is None else Membership(PodGroup(pod.namespace, "g", self.dialect, job.spec.parallelism or 1))
        )


def status_changes(world: World) -> None:
    job = world.cache.store(JOBS).get("train", "default")
    assert isinstance(job, model.Job)
    metadata = msgspec.structs.replace(job.metadata, resource_version="2")
    world.cache.store(JOBS).upsert(msgspec.structs.replace(job, metadata=metadata))


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        pytest.param(lambda world: None, 1, id="nothing"),
        pytest.param(lambda world: world.job("another"), 1, id="another job"),
        pytest.param(status_changes, 1, id="its resourceVersion"),
        pytest.param(lambda world: world.job(parallelism=2), 2, id="its spec"),
        pytest.param(lambda world: world.job(annotations={"a": "b"}), 2, id="its annotations"),
        pytest.param(lambda world: world.job(succeeded=1), 2, id="what has succeeded"),
        pytest.param(lambda world: world.cache.store(JOBS).remove("default", "train"), 2, id="it is gone"),
    ],
)
def test_a_pod_is_read_again_only_when_what_it_was_read_from_changes(world: World, change: Any, asked: int) -> None:
    reader = Counting()
    groups = Groups(world.cache, (reader,))
    pod = world.pod(owner=world.job())
    groups.of(pod)

    change(world)
    answers = [groups.of(pod) for _ in range(3)]

    assert reader.asked == asked and answers[0] == answers[2]


@pytest.mark.parametrize(
    ("annotations", "labels", "asked"),
    [
        pytest.param({ALLOCATED: "0,1"}, {}, 1, id="its devices"),
        pytest.param({CLAIM: "another"}, {}, 2, id="an annotation"),
        pytest.param({}, {"zone": "z"}, 2, id="a label"),
    ],
)
def test_the_group_of_a_pod_that_is_bound_is_read_again_only_if_the_pod_may_be_in_another(
    world: World, annotations: dict[str, str], labels: dict[str, str], asked: int
) -> None:
    reader, owner = Counting(), world.job()
    groups = Groups(world.cache, (reader,))
    world.cache.upsert_node(make_node("n"))
    waiting = world.pod(owner=owner)
    before = groups.of(waiting)
    world.cache.assume(waiting, 0)

    bound = world.pod(owner=owner, annotations=annotations, labels=labels, node="n")
    world.cache.upsert_pod(bound)

    assert groups.of(bound) == before is not None and reader.asked == asked
    world.job(parallelism=2)
    assert groups.of(bound) != before


def test_pods_that_are_gone_are_forgotten(world: World) -> None:
    pod = world.pod(owner=world.job())
    world.groups.of(pod)
    gone = weakref.ref(pod)

    del pod
    gc.collect()

    assert gone() is None


def test_the_version_grows_with_what_groups_are_read_from(world: World) -> None:
    before = world.groups.version
    world.cache.store(SERVICES).upsert(model.Service(model.ObjectMeta(name="s")))
    between = world.groups.version

    world.job()

    assert (between - before, world.groups.version - between) == (0, 1)


# Whom a change concerns


def concerned(world: World, pod: PodInfo, resource: Any, name: str) -> bool:
    changed = world.cache.store(resource).get(name, "default")
    is_concerned = world.groups.is_member_hint(pod, None, changed)
    assert not is_concerned or place_of_object(None, changed) in set(world.groups.subjects(pod))
    return is_concerned


def test_a_group_that_comes_concerns_the_pods_that_wait_for_it(world: World) -> None:
    waiting, other = (world.pod(name, labels={LABEL: name}) for name in ("g", "h"))
    assert world.problem(waiting) and world.problem(other)

    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": 2})

    asked = [concerned(world, pod, SCHEDULER_PLUGINS_POD_GROUPS, "g") for pod in (waiting, other)]
    assert asked == [True, False]


def test_every_object_on_the_way_to_the_group_concerns_its_pods(world: World) -> None:
    world.put(GPU_CLAIMS, "c", {"gangRef": "g"})
    world.put(GPU_CLAIMS, "d", {"gangRef": "g"})
    owner = world.deployment()
    pod = world.pod(owner=owner, annotations={"gpu.scheduling/claim": "c"})
    changes = [(GPU_CLAIMS, "c"), (GPU_CLAIMS, "d"), (DEPLOYMENTS, "serve")]

    asked = [concerned(world, pod, *change) for change in changes]

    assert asked == [True, False, True]


def test_an_object_of_another_kind_with_the_same_name_concerns_nobody(world: World) -> None:
    pod = world.pod(labels={LABEL: "g"})
    world.put(GPU_CLAIMS, "g", {})
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": 2})
    elsewhere = model.PodGroup(model.ObjectMeta(name="g", namespace="elsewhere"))

    assert not concerned(world, pod, GPU_CLAIMS, "g")
    assert not world.groups.is_member_hint(pod, None, elsewhere)
    assert not world.groups.is_member_hint(pod, pod, None)


def test_a_deletion_concerns_the_pods_too(world: World) -> None:
    pod = world.pod(labels={LABEL: "g"})
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": 2})
    gone = world.cache.store(SCHEDULER_PLUGINS_POD_GROUPS).get("g", "default")

    assert world.groups.is_member_hint(pod, gone, None)
    assert place_of_object(gone, None) in set(world.groups.subjects(pod))


# Definitions that differ


def test_two_definitions_of_one_group_are_told_apart_in_one_line() -> None:
    one = PodGroup("default", "g", "job", 4, topology=TopologyConstraint("rack"))
    other = PodGroup("default", "g", "job", 8, topology=TopologyConstraint("rack"))

    assert conflict(one, one) == ""
    assert conflict(one, other) == "its pods define the group default/g differently: min_member 4 and 8"


def test_levels_that_differ_are_named() -> None:
    one = PodGroup("default", "g", "job", 4, topology=TopologyConstraint("rack"))
    other = PodGroup("default", "g", "job", 4, topology=TopologyConstraint("", "block"))

    assert conflict(one, other).endswith("differently: topology required rack and preferred block")


def ended(world: World, number: int) -> SucceededPod:
    """A member of a group that nobody knows yet, because its claim comes later."""
    pod = SucceededPod(make_pod(f"p-{number}", annotations={CLAIM: "c"}).metadata)
    world.cache.store(SUCCEEDED_PODS).upsert(pod)
    return pod


def in_a_group(world: World, size: int) -> PodInfo:
    """Another member, once the group of this size is known."""
    spec = GpuClaimSpec(gang_ref="g")
    world.cache.store(GPU_CLAIMS).upsert(GpuClaim(model.ObjectMeta(name="c", namespace="default"), spec))
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": size})
    return world.cache.record(make_pod("waiting", annotations={CLAIM: "c"}))


def needed(world: World, pod: PodInfo) -> int:
    found = world.groups.of(pod)
    assert isinstance(found, Membership)
    return found.group.min_member


def test_pods_that_have_succeeded_before_their_groups_were_known_count_once_all_is_listed(world: World) -> None:
    ended(world, 0)
    waiting = in_a_group(world, 3)

    list(world.groups.start_over())

    assert needed(world, waiting) == 2


def test_groups_of_many_pods_that_have_succeeded_are_read_in_slices(world: World) -> None:
    pods = [ended(world, number) for number in range(300)]
    waiting = in_a_group(world, 400)

    steps = world.groups.start_over()
    next(steps)
    assert needed(world, waiting) == 300
    world.cache.store(SUCCEEDED_PODS).remove("default", pods[-1].metadata.name)
    list(steps)

    assert needed(world, waiting) == 101
