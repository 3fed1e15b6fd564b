"""Groups that pods name themselves: upstream, scheduler-plugins, KAI, Volcano, Koordinator, Kueue and gangRef."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import model
from gangline.api.pod_group import TopologyConstraint
from gangline.kube.resources import (
    GPU_CLAIMS,
    KAI_POD_GROUPS,
    POD_GROUPS_V1ALPHA2,
    POD_GROUPS_V1BETA1,
    SCHEDULER_PLUGINS_POD_GROUPS,
    STATEFUL_SETS,
    VOLCANO_POD_GROUPS,
    Resource,
)
from gangline.state.pods import PodInfo

from .stories import INDEX, World, part_of, parts

GANG = {"schedulingPolicy": {"gang": {"minCount": 4}}}
KOORDINATOR = "gang.scheduling.koordinator.sh"
IN_GROUP: dict[str, dict[str, Any]] = {
    "upstream": {"scheduling_group": model.SchedulingGroup("g")},
    "scheduler-plugins": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
    "kai": {"annotations": {"pod-group-name": "g"}},
    "volcano": {"annotations": {"scheduling.k8s.io/group-name": "g"}},
    "gang-ref": {"annotations": {"gpu.scheduling/claim": "c"}},
}
"""How a pod says in each dialect that it is in the group g."""
OBJECT: dict[str, Resource[Any]] = {
    "upstream": POD_GROUPS_V1BETA1,
    "scheduler-plugins": SCHEDULER_PLUGINS_POD_GROUPS,
    "kai": KAI_POD_GROUPS,
    "volcano": VOLCANO_POD_GROUPS,
    "gang-ref": SCHEDULER_PLUGINS_POD_GROUPS,
}
MIN_4 = {dialect: GANG if dialect == "upstream" else {"minMember": 4} for dialect in IN_GROUP}
DIALECTS = pytest.mark.parametrize("dialect", IN_GROUP)


@pytest.fixture
def world() -> World:
    made = World()
    made.put(GPU_CLAIMS, "c", {"gangRef": "g"})
    return made


def kueue(world: World, count: str | None = "8", index: int | None = None, **annotations: str) -> PodInfo:
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    if index is not None:
        labels["kueue.x-k8s.io/pod-group-pod-index"] = str(index)
    if count is not None:
        annotations["kueue.x-k8s.io/pod-group-total-count"] = count
    return world.pod(labels=labels, annotations=annotations)


# With an object


@DIALECTS
def test_the_object_says_how_many_members_start_together(world: World, dialect: str) -> None:
    world.put(OBJECT[dialect], "g", MIN_4[dialect])

    group = world.member(world.pod(**IN_GROUP[dialect])).group

    assert (group.key, group.min_member) == (f"{dialect}:default/g", 4)
    assert group.object is not None
    assert (group.object.kind, group.object.name, group.object.api_version) == (
        "PodGroup",
        "g",
        OBJECT[dialect].api_version,
    )


@pytest.mark.parametrize("dialect", ["upstream", "scheduler-plugins", "kai", "volcano"])
def test_a_group_without_its_object_is_a_problem_until_that_comes(world: World, dialect: str) -> None:
    pod = world.pod(**IN_GROUP[dialect])
    assert world.problem(pod) == "PodGroup default/g does not exist"

    world.put(OBJECT[dialect], "g", MIN_4[dialect])

    assert world.member(pod).group.min_member == 4


@pytest.mark.parametrize("dialect", ["scheduler-plugins", "kai", "volcano", "gang-ref"])
@pytest.mark.parametrize(
    ("spec", "says"),
    [({"minMember": 0}, "0: expected a whole number from 1"), ({}, "is not set"), ({"minMember": -3}, "-3: expected")],
    ids=["zero", "absent", "negative"],
)
def test_a_group_of_nobody_is_a_problem(world: World, dialect: str, spec: dict[str, int], says: str) -> None:
    world.put(OBJECT[dialect], "g", spec)

    assert f"PodGroup default/g: spec.minMember: {says}" in world.problem(world.pod(**IN_GROUP[dialect]))


@DIALECTS
def test_annotations_of_the_object_say_how_close(world: World, dialect: str) -> None:
    world.put(OBJECT[dialect], "g", MIN_4[dialect], {"gangline.dev/topology-required": "rack"})

    assert world.member(world.pod(**IN_GROUP[dialect])).group.topology == TopologyConstraint("rack")


@DIALECTS
def test_an_annotation_that_cannot_be_read_is_a_problem_of_the_group(world: World, dialect: str) -> None:
    world.put(OBJECT[dialect], "g", MIN_4[dialect], {"gangline.dev/topology-fallback": "rack"})
    pod = world.pod(**IN_GROUP[dialect])
    assert world.member(pod).group.topology.required_at(0) == "rack"

    world.put(OBJECT[dialect], "g", MIN_4[dialect], {"gangline.dev/topology-fallback": "rack,2m"})

    assert world.problem(pod).startswith("annotation gangline.dev/topology-fallback: 'rack,2m'")


# Upstream


def test_both_versions_of_the_upstream_object_are_read(world: World) -> None:
    pod = world.pod(**IN_GROUP["upstream"])
    world.put(POD_GROUPS_V1ALPHA2, "g", {**GANG, "disruptionMode": "PodGroup"})
    older = world.member(pod).group
    world.put(POD_GROUPS_V1BETA1, "g", {**GANG, "disruptionMode": {"single": {}}})

    newer = world.member(pod).group

    assert (older.disruptive, newer.disruptive) == (True, False)


def test_an_upstream_group_has_a_level_and_a_priority(world: World) -> None:
    topology = {"topology": [{"key": "topology.kubernetes.io/rack"}]}
    world.put(POD_GROUPS_V1BETA1, "g", {**GANG, "schedulingConstraints": topology, "priority": 7})

    group = world.member(world.pod(**IN_GROUP["upstream"])).group

    assert (group.topology.required, group.priority) == ("topology.kubernetes.io/rack", 7)


def test_a_basic_upstream_group_starts_with_one_pod(world: World) -> None:
    world.put(POD_GROUPS_V1BETA1, "g", {"schedulingPolicy": {"basic": {}}})

    assert world.member(world.pod(**IN_GROUP["upstream"])).group.min_member == 1


@pytest.mark.parametrize(
    ("policy", "says"),
    [({}, "names neither gang nor basic"), ({"gang": {"minCount": 0}}, "gang.minCount: 0: expected a whole number")],
    ids=["none", "zero"],
)
def test_an_upstream_policy_that_says_nothing_is_a_problem(world: World, policy: dict[str, Any], says: str) -> None:
    world.put(POD_GROUPS_V1BETA1, "g", {"schedulingPolicy": policy})

    assert says in world.problem(world.pod(**IN_GROUP["upstream"]))


# scheduler-plugins


def test_a_scheduler_plugins_group_has_a_timeout_of_its_own(world: World) -> None:
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": 2, "scheduleTimeoutSeconds": 30})

    assert world.member(world.pod(**IN_GROUP["scheduler-plugins"])).group.timeout == 30.0


def test_a_negative_timeout_is_a_problem(world: World) -> None:
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": 2, "scheduleTimeoutSeconds": -1})

    assert "spec.scheduleTimeoutSeconds: -1: must not" in world.problem(world.pod(**IN_GROUP["scheduler-plugins"]))


# KAI


def kai_pod(world: World, subgroup: str) -> PodInfo:
    return world.pod(labels={"kai.scheduler/subgroup-name": subgroup}, annotations={"pod-group-name": "g"})


def test_kai_sub_groups_have_levels_of_their_own(world: World) -> None:
    near = {"requiredTopologyLevel": "rack", "preferredTopologyLevel": "host"}
    subs = [{"name": "decode", "minMember": 2, "topologyConstraint": near}, {"name": "prefill", "minMember": 3}]
    whole = {"topology": "t", "requiredTopologyLevel": "block"}
    world.put(KAI_POD_GROUPS, "g", {"minMember": 5, "subGroups": subs, "topologyConstraint": whole})

    member = world.member(kai_pod(world, "decode"))

    assert (parts(member), member.group.topology) == ({"decode": 2, "prefill": 3}, TopologyConstraint("block"))
    assert part_of(member).topology == TopologyConstraint("rack", "host")


def test_without_min_member_a_kai_group_needs_what_its_innermost_parts_need(world: World) -> None:
    subs = [{"name": "all"}, {"name": "a", "minMember": 2, "parent": "all"}, {"name": "b", "parent": "all"}]
    world.put(KAI_POD_GROUPS, "g", {"subGroups": subs})

    member = world.member(kai_pod(world, "a"))

    assert (member.group.min_member, parts(member)) == (3, {"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("subs", "says"),
    [
        ([{"name": "b"}], "label kai.scheduler/subgroup-name: 'a': PodGroup g has no such subGroup"),
        ([{"name": "a", "minMember": -1}], "spec.subGroups[a].minMember: -1: must not be negative"),
        ([{"name": "a", "minSubGroup": 1}], "spec.subGroups[a].minSubGroup: 1: is not supported"),
        (
            [{"name": "a", "parent": "o"}, {"name": "o", "topologyConstraint": {"requiredTopologyLevel": "rack"}}],
            "spec.subGroups[o].topologyConstraint: it holds other subGroups",
        ),
    ],
    ids=["unknown", "negative", "minSubGroup", "outer level"],
)
def test_kai_sub_groups_that_cannot_be_kept_are_a_problem(world: World, subs: list[Any], says: str) -> None:
    world.put(KAI_POD_GROUPS, "g", {"minMember": 1, "subGroups": subs})

    assert says in world.problem(kai_pod(world, "a"))


# Volcano


def test_volcano_tasks_are_sub_groups(world: World) -> None:
    world.put(VOLCANO_POD_GROUPS, "g", {"minMember": 3, "minTaskMember": {"worker": 4, "master": 1}})
    task = {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": "worker", "volcano.sh/task-index": "2"}

    member = world.member(world.pod(annotations=task))

    assert (member.subgroup, member.index, member.group.min_member) == ("worker", 2, 5)
    assert parts(member) == {"master": 1, "worker": 4}


@pytest.mark.parametrize(
    ("wanted", "topology"),
    [
        ({"mode": "hard", "highestTierAllowed": 2}, TopologyConstraint("tier-2")),
        ({"highestTierAllowed": 1}, TopologyConstraint("tier-1")),
        ({"mode": "hard", "highestTierName": "spine"}, TopologyConstraint("spine")),
        ({"mode": "soft"}, TopologyConstraint("", "tier-1")),
    ],
    ids=["hard", "default", "named", "soft"],
)
def test_volcano_tiers_are_levels(world: World, wanted: dict[str, Any], topology: TopologyConstraint) -> None:
    world.put(VOLCANO_POD_GROUPS, "g", {"minMember": 3, "networkTopology": wanted})

    assert world.member(world.pod(**IN_GROUP["volcano"])).group.topology == topology


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"networkTopology": {"mode": "firm"}}, 'networkTopology.mode: \'firm\': expected "hard" or "soft"'),
        ({"networkTopology": {"highestTierAllowed": 0}}, "highestTierAllowed: 0: expected a whole number from 1"),
        ({"minTaskMember": {"w": -1}}, "spec.minTaskMember[w]: -1: must not be negative"),
    ],
    ids=["mode", "tier", "task"],
)
def test_a_volcano_group_that_makes_no_sense_is_a_problem(world: World, spec: dict[str, Any], says: str) -> None:
    world.put(VOLCANO_POD_GROUPS, "g", {"minMember": 3, **spec})

    assert says in world.problem(world.pod(**IN_GROUP["volcano"]))


# Koordinator


def test_a_koordinator_gang_needs_no_object(world: World) -> None:
    said = {
        "name": "g",
        "min-available": "4",
        "total-number": "6",
        "waiting-time": "1m30s",
        "network-topology-index": "5",
    }

    member = world.member(world.pod(annotations={f"{KOORDINATOR}/{key}": value for key, value in said.items()}))

    group = member.group
    assert (group.key, group.min_member, group.size, group.timeout) == ("koordinator:default/g", 4, 6, 90.0)
    assert member.index == 5


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({}, "min-available: is not set"),
        ({"min-available": "lots"}, "min-available: 'lots': expected a whole number from 1"),
        ({"min-available": "7", "total-number": "6"}, "min-available: 7: there will be 6 pods only"),
        ({"min-available": "4", "waiting-time": "soon"}, "waiting-time: 'soon': expected a duration"),
    ],
    ids=["absent", "no number", "more than all", "no duration"],
)
def test_a_koordinator_gang_that_makes_no_sense_is_a_problem(world: World, said: dict[str, str], says: str) -> None:
    said = {"name": "g", **said}

    assert says in world.problem(world.pod(annotations={f"{KOORDINATOR}/{key}": value for key, value in said.items()}))


# Kueue


def test_a_kueue_group_counts_its_pods(world: World) -> None:
    member = world.member(kueue(world, index=3))

    assert (member.group.key, member.group.min_member, member.group.size) == ("kueue:default/g", 8, 8)
    assert (member.index, member.subgroup) == (3, "")


def test_another_label_may_hold_the_index(world: World) -> None:
    labels = {"kueue.x-k8s.io/pod-group-name": "g", "rank": "6"}
    pointing = {"kueue.x-k8s.io/pod-group-total-count": "8", "kueue.x-k8s.io/pod-group-pod-index-label": "rank"}

    assert world.member(world.pod(labels=labels, annotations=pointing)).index == 6


@pytest.mark.parametrize(("count", "says"), [(None, "is not set"), ("0", "'0': expected"), ("two", "'two': expected")])
def test_a_kueue_group_of_unknown_size_is_a_problem(world: World, count: str | None, says: str) -> None:
    assert f"kueue.x-k8s.io/pod-group-total-count: {says}" in world.problem(kueue(world, count))


SLICES = {"kueue.x-k8s.io/podset-slice-size": "3", "kueue.x-k8s.io/podset-slice-required-topology": "rack"}


def test_slices_are_sub_groups_of_consecutive_ranks(world: World) -> None:
    member = world.member(kueue(world, index=5, **SLICES))

    assert (member.subgroup, parts(member)) == ("slice-1", {"slice-0": 3, "slice-1": 3, "slice-2": 2})
    assert part_of(member).topology == TopologyConstraint("rack")


@pytest.mark.parametrize(
    ("index", "count", "says"),
    [
        (None, "8", "slices are cut by rank, and the pod has no index"),
        (9, "8", "the group has 3 slices of 3 pods, and the pod has index 9"),
        (0, "2000000000", "at most 1024 are"),
    ],
    ids=["no index", "beyond", "too many"],
)
def test_slices_that_cannot_be_cut_are_a_problem(world: World, index: int | None, count: str, says: str) -> None:
    assert says in world.problem(kueue(world, count, index, **SLICES))


# gangRef


def test_pods_whose_claims_have_one_gang_ref_are_one_group(world: World) -> None:
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": 2})
    world.put(GPU_CLAIMS, "other", {"gangRef": "g"})

    one, two = (world.member(world.pod(annotations={"gpu.scheduling/claim": name})) for name in ("c", "other"))

    assert one.group == two.group


def test_without_an_object_the_owner_says_how_many_there_are(world: World) -> None:
    pod = world.pod(owner=world.job(), **IN_GROUP["gang-ref"])

    group = world.member(pod).group

    assert (group.key, group.min_member, group.size) == ("gang-ref:default/g", 4, 4)


@pytest.mark.parametrize(("policy", "least"), [("Parallel", 3), ("OrderedReady", 1)])
def test_pods_that_are_made_in_turn_do_not_wait_for_each_other(world: World, policy: str, least: int) -> None:
    owner = world.put(STATEFUL_SETS, "s", {"replicas": 3, "podManagementPolicy": policy})

    group = world.member(world.pod(owner=owner, **IN_GROUP["gang-ref"])).group

    assert (group.min_member, group.size) == (least, 3)


def test_a_gang_ref_of_which_nobody_knows_the_size_is_a_problem(world: World) -> None:
    assert world.problem(world.pod(**IN_GROUP["gang-ref"])) == (
        "GpuClaim default/c: spec.gangRef: 'g': no PodGroup has this name, "
        "and the pod has no owner that tells how many pods there are"
    )


def test_a_claim_without_gang_ref_makes_no_group(world: World) -> None:
    pod = world.pod(annotations={"gpu.scheduling/claim": "alone"})
    assert world.groups.of(pod) is None

    world.put(GPU_CLAIMS, "alone", {})

    assert world.groups.of(pod) is None


def test_the_completion_index_is_the_rank_of_pods_without_another(world: World) -> None:
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": 2})

    pod = world.pod(labels={"scheduling.x-k8s.io/pod-group": "g"}, annotations={INDEX: "3"})

    assert world.member(pod).index == 3
