"""Groups that follow from JobSets and LeaderWorkerSets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gangline.api.pod_group import Membership, TopologyConstraint
from gangline.kube.resources import JOB_SETS, JOBS, LEADER_WORKER_SETS
from gangline.state.pods import PodInfo

from .stories import INDEX, World, owner_reference, part_of, parts

JOBSET, LWS = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
REQUIRED = "gangline.dev/topology-required"
KUEUE = "kueue.x-k8s.io/podset"


@pytest.fixture
def world() -> World:
    return World()


# JobSets


def replicated(
    name: str = "workers", replicas: int = 2, pods: int = 4, said: Mapping[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    template = {"metadata": {"annotations": dict(said or {})}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **fields}


def job_set(world: World, *jobs: Any, annotations: Mapping[str, str] | None = None, **fields: Any) -> None:
    status = fields.pop("status", {})
    world.put(JOB_SETS, "js", {"replicatedJobs": list(jobs), **fields}, annotations, status=status)


def pod_of(world: World, part: str = "workers", job: int | None = 0, index: int = 0) -> PodInfo:
    labels = {f"{JOBSET}/jobset-name": "js", f"{JOBSET}/replicatedjob-name": part}
    if job is not None:
        labels[f"{JOBSET}/job-index"] = str(job)
    return world.pod(owner=owner_reference(JOBS, f"js-{part}-{job}"), labels=labels, annotations={INDEX: str(index)})


def test_all_jobs_of_a_job_set_are_one_group(world: World) -> None:
    job_set(world, replicated("driver", 1, 1), replicated("workers", 2, 4))

    driver, last = world.member(pod_of(world, "driver")), world.member(pod_of(world, "workers", 1, 3))

    assert (driver.group, driver.index, driver.subgroup) == (last.group, 0, "driver")
    assert (last.index, last.subgroup, last.group.min_member, last.group.size) == (8, "workers", 9, 9)
    assert parts(last) == {"driver": 1, "workers": 8}


def test_annotations_of_a_template_are_for_its_part_alone(world: World) -> None:
    job_set(
        world,
        replicated("driver", 1, 1),
        replicated(said={f"{KUEUE}-required-topology": "rack"}),
        annotations={REQUIRED: "block"},
    )

    member = world.member(pod_of(world))

    assert (member.group.topology, part_of(member).topology) == (
        TopologyConstraint("block"),
        TopologyConstraint("rack"),
    )


def test_a_lone_part_is_the_whole_group(world: World) -> None:
    job_set(world, replicated(said={f"{KUEUE}-required-topology": "rack"}))

    member = world.member(pod_of(world))

    assert (member.group.topology, member.group.subgroups) == (TopologyConstraint("rack"), ())
    assert (member.group.key, member.group.min_member, member.subgroup) == ("job-set:default/js", 8, "")


@pytest.mark.parametrize(
    "fields",
    [{"startupPolicy": {"startupPolicyOrder": "InOrder"}}, {}],
    ids=["in order", "depends on"],
)
def test_parts_that_start_in_turn_are_groups_of_their_own(world: World, fields: dict[str, Any]) -> None:
    after: dict[str, Any] = {} if fields else {"dependsOn": [{"name": "driver", "status": "Ready"}]}
    job_set(world, replicated("driver", 1, 1), replicated(**after), **fields)

    groups = [world.member(pod_of(world, part)).group for part in ("driver", "workers")]

    assert [(group.name, group.min_member) for group in groups] == [("js/driver", 1), ("js/workers", 8)]


@pytest.mark.parametrize(
    ("more", "least"), [({}, 1), ({"alpha.jobset.sigs.k8s.io/node-selector": "true"}, 4)], ids=["leaders", "labelled"]
)
def test_each_exclusive_job_has_a_domain_of_its_own(world: World, more: dict[str, str], least: int) -> None:
    job_set(world, replicated(), annotations={EXCLUSIVE: "topology.kubernetes.io/rack", **more})

    member = world.member(pod_of(world, job=1, index=2))

    assert (member.subgroup, member.index, member.group.min_member) == ("workers/1", 6, 2 * least)
    assert parts(member) == {"workers/0": least, "workers/1": least}
    assert part_of(member).topology == TopologyConstraint("topology.kubernetes.io/rack")


def test_slices_of_a_part_count_through_its_jobs(world: World) -> None:
    slices = {f"{KUEUE}-slice-size": "2", f"{KUEUE}-slice-required-topology": "host"}
    job_set(world, replicated("driver", 1, 1), replicated(said=slices))

    member = world.member(pod_of(world, job=1, index=0))

    assert (member.subgroup, member.index) == ("workers/slice-2", 5)
    assert parts(member) == {"driver": 1, **{f"workers/slice-{n}": 2 for n in range(4)}}


def test_jobs_that_have_succeeded_are_not_waited_for(world: World) -> None:
    job_set(world, replicated(), status={"replicatedJobsStatus": [{"name": "workers", "succeeded": 1}]})

    assert world.member(pod_of(world, job=1)).group.min_member == 4


def test_an_elastic_job_set_starts_with_fewer_pods(world: World) -> None:
    job_set(world, replicated("driver", 1, 1), replicated(), annotations={"gangline.dev/min-member": "5"})

    member = world.member(pod_of(world))

    assert (member.group.min_member, parts(member)) == (5, {"driver": 1, "workers": 4})


def test_a_job_set_that_comes_late_is_waited_for(world: World) -> None:
    pod = pod_of(world)
    assert world.problem(pod) == "JobSet default/js does not exist"

    job_set(world, replicated())

    assert world.member(pod).group.min_member == 8


@pytest.mark.parametrize(
    ("jobs", "annotations", "says"),
    [
        ([replicated("other")], {}, "replicatedjob-name: 'workers': JobSet js has no such replicatedJob"),
        ([replicated()], {"gangline.dev/min-member": "9"}, "least number of members: 9: there will be 8 pods only"),
        (
            [replicated(said={f"{KUEUE}-required-topology": "block"}), replicated("b")],
            {EXCLUSIVE: "rack"},
            "replicatedJob workers: topology: 'block': cannot be combined with exclusive placement or slices",
        ),
        (
            [replicated()],
            {f"{KUEUE}-slice-size": "2", f"{KUEUE}-slice-required-topology": "host"},
            "topology slices: 2: belongs on the template of a replicated job",
        ),
        ([replicated(replicas=20_000)], {EXCLUSIVE: "rack"}, "more than 1024 exclusive Jobs"),
        ([replicated(replicas=1)], {EXCLUSIVE: "rack"}, "job-index: 1: replicatedJob workers has 1 Jobs"),
    ],
    ids=["part", "elastic", "two levels", "slices of all", "many", "job"],
)
def test_a_job_set_that_makes_no_sense_is_a_problem(
    world: World, jobs: list[Any], annotations: dict[str, str], says: str
) -> None:
    job_set(world, *jobs, annotations=annotations)

    assert says in world.problem(pod_of(world, job=1))


def test_an_exclusive_job_without_its_number_is_a_problem(world: World) -> None:
    job_set(world, replicated(), annotations={EXCLUSIVE: "rack"})

    assert f"label {JOBSET}/job-index: is not set" in world.problem(pod_of(world, job=None))


# LeaderWorkerSets


def worker(world: World, rank: int = 0, size: int | None = 4, **annotations: str) -> PodInfo:
    labels = {
        f"{LWS}/name": "l",
        f"{LWS}/group-index": "1",
        f"{LWS}/group-key": "5e1f",
        f"{LWS}/worker-index": str(rank),
    }
    said = {f"{LWS}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    if size is not None:
        said[f"{LWS}/size"] = str(size)
    return world.pod(labels=labels, annotations=said)


def places(world: World, size: int, **annotations: str) -> tuple[list[str], Membership]:
    members = [world.member(worker(world, rank, size, **annotations)) for rank in range(size)]
    assert all(each.group == members[0].group for each in members)
    return [each.subgroup for each in members], members[0]


def test_each_replica_is_a_leader_with_its_workers(world: World) -> None:
    names, member = places(world, 3)

    assert (member.group.key, member.group.min_member) == ("leader-worker-set:default/l-1", 3)
    assert names == ["leader", "workers", "workers"]
    assert parts(member) == {"leader": 1, "workers": 2}


@pytest.mark.parametrize(
    ("size", "kind", "names", "counts"),
    [
        (4, "", [0, 0, 1, 1], {"subgroup-0": 2, "subgroup-1": 2}),
        (5, "", [0, 0, 0, 1, 1], {"subgroup-0": 3, "subgroup-1": 2}),
        (5, "LeaderExcluded", ["leader", 0, 0, 1, 1], {"leader": 1, "subgroup-0": 2, "subgroup-1": 2}),
        (1, "", [0], {"subgroup-0": 1}),
    ],
    ids=["equal", "extra leader", "leader apart", "alone"],
)
def test_a_replica_is_cut_into_its_sub_groups(
    world: World, size: int, kind: str, names: list[int | str], counts: dict[str, int]
) -> None:
    cut = {"subgroup_size": "2", "subgroup_policy_type": kind, "subgroup_exclusive_topology": "rack"}

    found, member = places(world, size, **cut)

    assert found == [name if isinstance(name, str) else f"subgroup-{name}" for name in names]
    assert parts(member) == counts
    assert member.group.subgroups[-1].topology == TopologyConstraint("rack")


def test_with_exclusive_placement_the_leader_alone_starts_a_replica(world: World) -> None:
    _, member = places(world, 4, exclusive_topology="rack")

    assert (member.group.min_member, member.group.size, member.group.topology.required) == (1, 4, "rack")
    assert parts(member) == {"leader": 1, "workers": 0}


def template(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {f"{KUEUE}-{key}-topology": level for key, level in annotations.items()}}}


def test_the_object_says_how_close_leader_and_workers_have_to_be(world: World) -> None:
    templates = {"size": 4, "leaderTemplate": template(), "workerTemplate": template(required="rack")}
    world.put(LEADER_WORKER_SETS, "l", {"leaderWorkerTemplate": templates}, {REQUIRED: "block"})

    leader, other = (world.member(worker(world, rank, size=None)) for rank in (0, 1))

    assert leader.group == other.group and other.group.topology.required == "block"
    assert [part_of(each).topology.required for each in (leader, other)] == ["", "rack"]


def test_workers_that_wait_for_a_ready_leader_are_not_waited_for(world: World) -> None:
    world.put(LEADER_WORKER_SETS, "l", {"leaderWorkerTemplate": {"size": 4}, "startupPolicy": "LeaderReady"})

    assert world.member(worker(world)).group.min_member == 1


@pytest.mark.parametrize(
    ("rank", "size", "annotations", "says"),
    [
        (0, None, {}, "size: is not set, and LeaderWorkerSet default/l does not exist"),
        (4, 4, {}, "worker-index: 4: expected a whole number below the size, 4"),
        (0, 4, {"subgroup_size": "none"}, "subgroup-size: 'none': expected a whole number from 1"),
        (0, 2_000_000_000, {"subgroup_size": "1"}, "2000000000: a group has at most 16384 members"),
        (0, 9_999, {"subgroup_size": "1"}, "9999 pods make too many sub-groups"),
    ],
    ids=["no size", "rank", "no number", "huge", "many"],
)
def test_a_replica_that_makes_no_sense_is_a_problem(
    world: World, rank: int, size: int | None, annotations: dict[str, str], says: str
) -> None:
    assert says in world.problem(worker(world, rank, size, **annotations))
