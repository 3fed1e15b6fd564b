"""Groups that follow from Jobs, and from how many GPUs a workload takes in all."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import model
from gangline.api.pod_group import FallbackStep, TopologyConstraint
from gangline.kube.resources import GPU_CLAIMS, JOBS, REPLICA_SETS, STATEFUL_SETS

from .stories import INDEX, World, owner_reference, part_of, parts

GANG, MIN_MEMBER = "gangline.dev/gang", "gangline.dev/min-member"
GPU_COUNT = "topology.scheduler/gpu-count"
SLICES = {"kueue.x-k8s.io/podset-slice-size": "2", "kueue.x-k8s.io/podset-slice-required-topology": "rack"}


@pytest.fixture
def world() -> World:
    return World()


# Jobs


def test_an_indexed_job_that_runs_at_once_is_a_gang(world: World) -> None:
    member = world.member(world.pod(owner=world.job(), annotations={INDEX: "2"}))

    group = member.group
    assert (group.key, group.min_member, group.size, member.index) == ("job:default/train", 4, 4, 2)


@pytest.mark.parametrize(
    "spec",
    [{"completionMode": "NonIndexed"}, {"completions": 8}, {"completions": 1, "parallelism": 1}],
    ids=["not indexed", "in turns", "alone"],
)
def test_another_job_is_none(world: World, spec: dict[str, Any]) -> None:
    assert world.groups.of(world.pod(owner=world.job(**spec))) is None


@pytest.mark.parametrize("on", ["job", "pod"])
def test_an_annotation_makes_any_job_a_gang(world: World, on: str) -> None:
    said = {GANG: "true"}
    owner = world.job(annotations=said if on == "job" else None, completionMode="NonIndexed", completions=9)

    group = world.member(world.pod(owner=owner, annotations=said if on == "pod" else None)).group

    assert (group.min_member, group.size) == (4, 4)


def test_an_annotation_keeps_a_job_from_being_a_gang(world: World) -> None:
    assert world.groups.of(world.pod(owner=world.job(annotations={GANG: "false"}))) is None


@pytest.mark.parametrize("key", [MIN_MEMBER, "kai.scheduler/batch-min-member"])
def test_an_elastic_job_starts_with_fewer_pods(world: World, key: str) -> None:
    group = world.member(world.pod(owner=world.job(annotations={key: "2"}, completionMode="NonIndexed"))).group

    assert (group.min_member, group.size) == (2, 4)


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({GANG: "yes"}, 'annotation gangline.dev/gang: \'yes\': expected "true" or "false"'),
        ({MIN_MEMBER: "0"}, "annotation gangline.dev/min-member: '0': expected a whole number from 1"),
        ({MIN_MEMBER: "many"}, "annotation gangline.dev/min-member: 'many': expected a whole number from 1"),
        ({MIN_MEMBER: "5"}, "Job default/train: the least number of members: 5: there will be 4 pods only"),
        ({"gangline.dev/topology-required": "!"}, "annotation gangline.dev/topology-required: '!': "),
    ],
    ids=["flag", "zero", "no number", "more than all", "level"],
)
def test_a_job_whose_annotations_make_no_sense_is_a_problem(
    world: World, annotations: dict[str, str], says: str
) -> None:
    assert world.problem(world.pod(owner=world.job(annotations=annotations))).startswith(says)


def test_an_index_that_is_no_number_is_a_problem(world: World) -> None:
    assert f"annotation {INDEX}: 'first'" in world.problem(world.pod(owner=world.job(), annotations={INDEX: "first"}))


def test_pods_that_have_succeeded_are_not_waited_for(world: World) -> None:
    pod = world.pod(owner=world.job())
    assert world.member(pod).group.min_member == 4

    world.job(succeeded=3)

    assert (world.member(pod).group.min_member, world.member(pod).group.size) == (1, 1)


def test_a_pod_waits_until_its_job_is_known(world: World) -> None:
    pod = world.pod(owner=owner_reference(JOBS, "train"))
    assert world.problem(pod) == "Job default/train does not exist"

    world.job()

    assert world.member(pod).group.min_member == 4


def test_another_job_of_the_same_name_is_not_the_pods(world: World) -> None:
    world.job()
    gone = model.OwnerReference("Job", "train", "an-older-uid", "batch/v1", controller=True)

    assert world.problem(world.pod(owner=gone)) == "Job default/train does not exist"


def test_annotations_of_a_job_say_how_close_and_those_of_the_pod_win(world: World) -> None:
    owner = world.job(annotations={"gangline.dev/topology-fallback": "rack,2m;any"})
    near = {"gangline.dev/topology-fallback": "host,1m;any"}

    topologies = [world.member(world.pod(owner=owner, annotations=own)).group.topology for own in (None, near)]

    assert [topology.fallback[0] for topology in topologies] == [FallbackStep("rack"), FallbackStep("host")]


def test_slices_of_a_job_are_sub_groups(world: World) -> None:
    member = world.member(world.pod(owner=world.job(annotations=SLICES), annotations={INDEX: "3"}))

    assert (member.subgroup, parts(member)) == ("slice-1", {"slice-0": 2, "slice-1": 2})
    assert part_of(member).topology == TopologyConstraint("rack")


def test_slices_are_not_waited_for_once_some_pods_have_succeeded(world: World) -> None:
    owner = world.job(annotations=SLICES, succeeded=2)

    member = world.member(world.pod(owner=owner, annotations={INDEX: "3"}))

    assert (member.group.min_member, parts(member)) == (2, {"slice-0": 0, "slice-1": 0})


# gpu-count


@pytest.mark.parametrize(
    ("gpus", "members"), [(0, 4), (8, 2), (5, 4), (4, 4)], ids=["none", "eight", "rounded up", "four"]
)
def test_a_job_has_as_many_members_as_have_its_gpus(world: World, gpus: int, members: int) -> None:
    owner = world.job(annotations={GPU_COUNT: "16"}, completionMode="NonIndexed")

    group = world.member(world.pod(owner=owner, gpus=gpus)).group

    assert (group.key, group.min_member, group.size) == ("gpu-count:default/train", members, 4)


def test_a_deployment_says_it_for_the_pods_of_its_replica_set(world: World) -> None:
    owner = world.deployment(annotations={GPU_COUNT: "8"})

    group = world.member(world.pod(owner=owner, gpus=2)).group

    assert (group.name, group.min_member, group.size) == ("serve-1", 4, 4)


def test_a_replica_set_that_its_deployment_grows_is_as_large_as_it_is(world: World) -> None:
    owner = world.deployment(annotations={GPU_COUNT: "8"}, replicas=1, desired=4)

    group = world.member(world.pod(owner=owner, gpus=2)).group

    assert (group.min_member, group.size) == (1, 4)


def test_a_stateful_set_that_starts_in_turn_is_not_waited_for(world: World) -> None:
    owner = world.put(STATEFUL_SETS, "s", {"replicas": 4}, {GPU_COUNT: "8"})

    group = world.member(world.pod(owner=owner, gpus=2)).group

    assert (group.min_member, group.size) == (1, 4)


def test_the_gpus_of_a_claim_count(world: World) -> None:
    world.put(GPU_CLAIMS, "c", {"devices": {"count": 8}})
    owner = world.job(annotations={GPU_COUNT: "16"}, completionMode="NonIndexed")

    assert world.member(world.pod(owner=owner, annotations={"gpu.scheduling/claim": "c"})).group.min_member == 2


def test_a_controller_that_nobody_looks_up_leaves_it_to_the_pods(world: World) -> None:
    owner = model.OwnerReference("PyTorchJob", "t", "u", "kubeflow.org/v1", controller=True)
    said = {GPU_COUNT: "16"}

    assert world.member(world.pod(owner=owner, annotations=said, gpus=4)).group.min_member == 4
    assert "the pods ask for no GPUs, and PyTorchJob t has no known size" in world.problem(
        world.pod(owner=owner, annotations=said)
    )


def test_a_lone_pod_is_no_group(world: World) -> None:
    alone = world.job(annotations={GPU_COUNT: "8"}, parallelism=1, completions=1)

    assert world.groups.of(world.pod(annotations={GPU_COUNT: "8"}, gpus=8)) is None
    assert world.groups.of(world.pod(owner=alone, gpus=8)) is None


def test_pods_of_an_unindexed_job_that_have_succeeded_are_not_waited_for(world: World) -> None:
    said = {GPU_COUNT: "16"}
    pod = world.pod(owner=world.job(annotations=said, completionMode="NonIndexed", completions=6), gpus=4)
    sizes = []
    for succeeded in (0, 2, 3, 5):
        world.job(annotations=said, completionMode="NonIndexed", completions=6, succeeded=succeeded)
        group = world.member(pod).group
        sizes.append((group.key, group.min_member, group.size))

    key = "gpu-count:default/train"
    assert sizes == [(key, 4, 4), (key, 4, 4), (key, 3, 3), (key, 1, 1)]


def test_members_that_an_elastic_job_needs_are_no_more_than_are_to_come(world: World) -> None:
    pod = world.pod(owner=world.job(annotations={GPU_COUNT: "8"}, completionMode="NonIndexed"), gpus=4)
    sizes = []
    for succeeded in (0, 1, 3):
        world.job(annotations={GPU_COUNT: "8"}, completionMode="NonIndexed", succeeded=succeeded)
        sizes.append((world.member(pod).group.min_member, world.member(pod).group.size))

    assert sizes == [(2, 4), (2, 3), (1, 1)]


def test_a_job_with_a_count_and_no_number_of_completions_stays_a_gang(world: World) -> None:
    owner = world.job(annotations={GPU_COUNT: "16"}, completionMode="NonIndexed", completions=None, succeeded=1)

    group = world.member(world.pod(owner=owner, gpus=4)).group

    assert (group.min_member, group.size) == (4, 4)


def test_pods_without_an_index_have_no_rank_and_cannot_be_cut_into_slices(world: World) -> None:
    plain = world.job("plain", annotations={GPU_COUNT: "16"}, completionMode="NonIndexed")
    sliced = world.job("sliced", annotations={GPU_COUNT: "16", **SLICES}, completionMode="NonIndexed")

    assert world.member(world.pod("plain-x7k2p", owner=plain, gpus=4)).index is None
    assert "slices are cut by rank, and the pod has no index" in world.problem(
        world.pod("sliced-b9fqz", owner=sliced, gpus=4)
    )


def test_slices_of_a_job_with_a_count_reach_over_all_of_its_indices(world: World) -> None:
    said = {GPU_COUNT: "16", **SLICES}
    owner = world.job(annotations=said, completions=8, succeeded=5)

    member = world.member(world.pod(owner=owner, annotations={INDEX: "7"}, gpus=4))

    assert (member.subgroup, member.group.min_member) == ("slice-3", 3)
    assert set(parts(member).values()) == {0}


def test_an_annotation_keeps_a_workload_with_a_count_from_being_a_gang(world: World) -> None:
    owner = world.job(annotations={GPU_COUNT: "16", GANG: "false"}, completionMode="NonIndexed")

    assert world.groups.of(world.pod(owner=owner, gpus=4)) is None


@pytest.mark.parametrize(
    ("count", "says"),
    [
        ("lots", "'lots': expected a whole number from 1"),
        ("0", "'0': expected a whole number from 1"),
        ("-8", "'-8': expected a whole number from 1"),
        ("64", "64: that takes 8 pods with 8 GPUs each, and Job train has 4 pods"),
    ],
)
def test_a_count_that_cannot_be_kept_is_a_problem(world: World, count: str, says: str) -> None:
    owner = world.job(annotations={GPU_COUNT: count})

    assert world.problem(world.pod(owner=owner, gpus=8)).startswith(f"annotation {GPU_COUNT}: {says}")


def test_a_workload_that_is_not_known_yet_is_waited_for(world: World) -> None:
    pod = world.pod(owner=owner_reference(REPLICA_SETS, "serve-1"), annotations={GPU_COUNT: "8"}, gpus=2)
    assert world.problem(pod) == "ReplicaSet default/serve-1 does not exist"

    world.deployment()

    assert world.member(pod).group.min_member == 4
