"""What would let a unit start: every kind of remedy, in words and values, and what it does when it is carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gangline import model
from gangline.api.pod_group import PodGroup
from gangline.errors import PluginError
from gangline.groups.keys import KUEUE_SLICE_REQUIRED, KUEUE_SLICE_SIZE
from gangline.remedies import Remedies, Remedy, RemedyCost, RemedyKind
from gangline.remedies.amounts import fewer_members, smaller_requests
from gangline.remedies.freeing import free_room
from gangline.remedies.trying import Trial
from gangline.testing.gang_stories import profile_with
from gangline.testing.gangs import GROUP, LEAF, SPINE
from gangline.wire.custom_resources import CLAIM, COMPLETION_INDEX, ClaimDevices, GpuClaim, GpuClaimSpec

from .worlds import World, members, node, occupant, report, waiting

FOUR = tuple(node(f"n{number}", number % 2) for number in range(4))
ELSEWHERE = model.NodeSelector([model.NodeSelectorTerm([model.Requirement("zone", "In", ["b"])])])
HALF_IN_USE = (occupant("a", "n0", 4), occupant("b", "n1", 4))
CASES: list[tuple[str, World, RemedyKind, str, Mapping[str, Any], RemedyCost]] = [
    (
        "a cordoned node",
        World((node("n0", 0, unschedulable=True), node("n1", 0, gpus=4)), (waiting(),)),
        RemedyKind.REPAIR_NODES,
        "Repair or uncordon node n0 (cordoned).",
        {"nodes": {"n0": ["cordoned"]}},
        RemedyCost(changed=1),
    ),
    (
        "nodes that are not ready",
        World(
            tuple(node(f"n{n}", 0, taints=["node.kubernetes.io/not-ready:NoSchedule"] * (n > 0)) for n in range(4)),
            members(3),
            min_member=3,
        ),
        RemedyKind.REPAIR_NODES,
        "Repair or uncordon 2 nodes n1 (not-ready), n2 (not-ready).",
        {"nodes": {"n1": ["not-ready"], "n2": ["not-ready"]}},
        RemedyCost(changed=2),
    ),
    (
        "a GPU that is not healthy",
        World(
            (node("n0", 0, allocatable_gpus=7),),
            (waiting(),),
            reports=(report("n0", unhealthy=(3,)),),
        ),
        RemedyKind.REPAIR_NODES,
        "Repair or uncordon node n0 (GPU 3 not healthy).",
        {"nodes": {"n0": ["GPU 3 not healthy"]}},
        RemedyCost(changed=1),
    ),
    (
        "a taint",
        World((node("n0", 0, taints=["team=a:NoSchedule"]), node("n1", 0, gpus=4)), (waiting(),)),
        RemedyKind.TOLERATE_TAINT,
        "Let the pods tolerate the taint team=a:NoSchedule, which 1 node has.",
        {"key": "team", "value": "a", "effect": "NoSchedule", "nodes": 1},
        RemedyCost(),
    ),
    (
        "a label that no node has",
        World((node("n0", 0),), (waiting(node_selector={"disk": "ssd"}),)),
        RemedyKind.PREFER_NODES,
        "Prefer nodes with the label disk=ssd, which no node has, instead of requiring them.",
        {"labels": {"disk": "ssd"}, "nodeAffinity": False},
        RemedyCost(),
    ),
    (
        "a label of nodes that are full",
        World((node("n0", 0), node("n1", 1)), members(2, 8, "", node_selector={LEAF: "leaf-1"}), min_member=2),
        RemedyKind.PREFER_NODES,
        f"Prefer nodes with the label {LEAF}=leaf-1, which 1 node has, instead of requiring them.",
        {"labels": {LEAF: "leaf-1"}, "nodeAffinity": False},
        RemedyCost(),
    ),
    (
        "a node affinity",
        World((node("n0", 0),), (waiting(affinity=model.Affinity(model.NodeAffinity(ELSEWHERE))),)),
        RemedyKind.PREFER_NODES,
        "Prefer the nodes of the pods' node affinity instead of requiring them.",
        {"labels": {}, "nodeAffinity": True},
        RemedyCost(),
    ),
    (
        "a label and a node affinity, neither of which is enough alone",
        World(
            (node("n0", 0),),
            (waiting(affinity=model.Affinity(model.NodeAffinity(ELSEWHERE)), node_selector={"disk": "ssd"}),),
        ),
        RemedyKind.PREFER_NODES,
        "Prefer nodes with the label disk=ssd and the pods' node affinity instead of requiring them.",
        {"labels": {"disk": "ssd"}, "nodeAffinity": True},
        RemedyCost(),
    ),
    (
        "a level that is preferred",
        World(FOUR, members(3), min_member=3),
        RemedyKind.PREFER_LEVEL,
        "Prefer the level leaf for the gang instead of requiring it.",
        {"level": "leaf", "subgroups": []},
        RemedyCost(),
    ),
    (
        "a wider level",
        World(FOUR, members(3), min_member=3),
        RemedyKind.WIDEN_LEVEL,
        "Require the level spine for the gang instead of leaf.",
        {"level": "leaf", "to": "spine", "subgroups": []},
        RemedyCost(),
    ),
    (
        "a level that does not exist, for one with a similar name",
        World(FOUR, members(2, level="laef"), min_member=2),
        RemedyKind.WIDEN_LEVEL,
        "Require the level leaf for the gang instead of laef, which does not exist.",
        {"level": "laef", "to": "leaf", "subgroups": []},
        RemedyCost(),
    ),
    (
        "fewer members",
        World(FOUR, members(3), min_member=3),
        RemedyKind.FEWER_MEMBERS,
        "Let the gang start with 2 members instead of 3 (minMember).",
        {"minMember": 2, "from": 3, "fewer": 1},
        RemedyCost(given_up=0.333),
    ),
    (
        "smaller requests",
        World((node("n0", 0),), (waiting(gpus=2, cpu=100),)),
        RemedyKind.SMALLER_REQUESTS,
        "Request 64 cpu per pod instead of 100.",
        {"resource": "cpu", "quantity": "64", "from": "100"},
        RemedyCost(given_up=0.36),
    ),
    (
        "pods that move",
        World(FOUR[:2], (waiting(),), HALF_IN_USE),
        RemedyKind.MOVE_PODS,
        "Move 1 pod: default/a from n0 to n1.",
        {"moves": [{"pod": "default/a", "from": "n0", "to": "n1"}]},
        RemedyCost(1),
    ),
    (
        "a higher priority",
        World(FOUR[:1], (waiting(),), (occupant("a", "n0", 2, 3), occupant("b", "n0", 4, 5))),
        RemedyKind.RAISE_PRIORITY,
        "Raise the priority from 0 to 6, so that preemption may remove others, such as pod default/b, pod default/a.",
        {"priority": 6, "from": 0, "pods": ["default/b", "default/a"]},
        RemedyCost(2),
    ),
    (
        "GPUs that come free",
        World(FOUR, members(2), tuple(occupant(f"busy-{n}", f"n{n}", 8 - 2 * (n == 2)) for n in range(4)), 2),
        RemedyKind.FREE_ROOM,
        "Wait until 14 GPUs of leaf spine-0/leaf-0 come free, for example when pod default/busy-2, pod default/busy-0 "
        "end.",
        {
            "level": "leaf",
            "domain": "spine-0/leaf-0",
            "gpus": 14,
            "amounts": {"nvidia.com/gpu": 14},
            "pods": ["default/busy-2", "default/busy-0"],
        },
        RemedyCost(2, changed=2),
    ),
]


def needing(number: int, group: PodGroup) -> PodGroup:
    return replace(group, min_member=number)


def of_kind(found: Remedies, kind: RemedyKind) -> list[Remedy]:
    return [each for each in found.remedies if each.kind is kind]


@pytest.mark.parametrize(
    ("world", "kind", "sentence", "values", "cost"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_remedy_says_what_would_let_the_unit_start(
    world: World, kind: RemedyKind, sentence: str, values: Mapping[str, Any], cost: RemedyCost
) -> None:
    found = world.remedies()

    assert found.is_complete and not found.note
    assert of_kind(found, kind) == [Remedy(kind, sentence, values, cost)]
    assert not world.starts()
    assert world.after(of_kind(found, kind)[0]).starts()


def test_there_is_a_case_for_each_kind() -> None:
    assert {case[2] for case in CASES} == set(RemedyKind)


# What is no remedy


def kinds(found: Remedies) -> set[RemedyKind]:
    return {each.kind for each in found.remedies}


def test_a_unit_that_starts_needs_no_remedy() -> None:
    found = World((node("n0", 0),), (waiting(),)).remedies()

    assert not found.remedies and found.note == "it would start as things are"


def test_a_pod_with_a_gate_is_not_tried() -> None:
    found = World((node("n0", 0),), (waiting(scheduling_gates=[model.LocalName("quota")]),)).remedies()

    assert not found.remedies and "quota" in found.note and "default/unit-0 is not tried" in found.note


def test_a_gang_that_misses_members_could_need_fewer() -> None:
    found = World(FOUR, members(2), min_member=3).remedies()

    assert [each.values["minMember"] for each in found.remedies] == [2]


def test_the_cheapest_comes_first() -> None:
    nodes = (node("n0", 0), node("n1", 0, taints=["team=a:NoSchedule"]))
    found = World(nodes, (waiting(),), (occupant("a", "n0", 4),)).remedies()

    assert [each.kind for each in found.remedies] == [
        RemedyKind.TOLERATE_TAINT,
        RemedyKind.SMALLER_REQUESTS,
        RemedyKind.RAISE_PRIORITY,
        RemedyKind.FREE_ROOM,
    ]


def test_a_taint_that_stands_for_a_fault_is_to_be_repaired_and_not_tolerated() -> None:
    found = World((node("n0", 0, taints=["node.kubernetes.io/not-ready:NoSchedule"]),), (waiting(),)).remedies()

    assert kinds(found) == {RemedyKind.REPAIR_NODES}


def test_a_pod_moves_only_if_somebody_makes_it_anew_and_budgets_allow_that() -> None:
    orphan = occupant("a", "n0", 4)
    orphan.metadata.owner_references = []
    budget = model.PodDisruptionBudget(
        model.ObjectMeta("b", "default"),
        model.PodDisruptionBudgetSpec(selector=model.LabelSelector(match_labels={"app": "b"})),
        model.PodDisruptionBudgetStatus(disruptions_allowed=0),
    )
    world = World(FOUR[:2], (waiting(),), (orphan, occupant("b", "n1", 4, labels={"app": "b"})))

    assert of_kind(world.remedies(), RemedyKind.MOVE_PODS)[0].values["moves"][0]["pod"] == "default/b"
    assert kinds(replace(world, budgets=(budget,)).remedies()) >= {RemedyKind.FREE_ROOM}
    assert not of_kind(replace(world, budgets=(budget,)).remedies(), RemedyKind.MOVE_PODS)


def test_the_pods_of_a_daemon_set_stay() -> None:
    daemon = occupant("a", "n0", 4)
    daemon.metadata.owner_references[0].kind = "DaemonSet"

    assert kinds(World(FOUR[:1], (waiting(),), (daemon,)).remedies()) == {RemedyKind.SMALLER_REQUESTS}


def test_a_priority_is_not_raised_where_that_makes_no_room() -> None:
    running = (occupant("a", "n0", 4, priority=3),)

    never = World(FOUR[:1], (waiting(preemption_policy="Never"),), running).remedies()
    above = World(FOUR[:1], (waiting(priority=4),), running).remedies()

    assert RemedyKind.RAISE_PRIORITY not in kinds(never) | kinds(above)


def test_a_gang_goes_as_a_whole() -> None:
    running = tuple(occupant(f"busy-{n}", f"n{n}", 8, labels={GROUP: "busy"}) for n in range(2))
    world = World(FOUR[:2], (waiting(),), running, groups=(("busy", 2),))

    (freed,) = of_kind(world.remedies(), RemedyKind.FREE_ROOM)

    assert freed.values["pods"] == ["default/busy-0", "default/busy-1"] and freed.cost.interrupted == 2
    assert freed.sentence == "Wait until 8 GPUs of node n0 come free, for example when gang default/busy ends."


def test_all_containers_give_up_a_part_of_what_is_too_much() -> None:
    wanted = [model.ResourceRequirements({"cpu": cpu, "memory": "1Gi"}) for cpu in ("60", "30")]
    containers = [model.Container(f"c{n}", "i", resources=each) for n, each in enumerate(wanted)]
    found = World(FOUR[:1], (waiting(containers=containers),)).remedies()

    assert [each.values for each in found.remedies] == [{"resource": "cpu", "quantity": "64", "from": "90"}]


def test_a_claim_needs_healthy_devices() -> None:
    pod = waiting(gpus=0, annotations={CLAIM: "all"})
    claim = GpuClaim(model.ObjectMeta("all", "default"), GpuClaimSpec(ClaimDevices(count=8)))
    world = World((node("n0", 0),), (pod,), reports=(report("n0", unhealthy=(2, 5)),), claims=(claim,))

    (remedy,) = world.remedies().remedies

    assert remedy.values == {"nodes": {"n0": ["GPU 2, 5 not healthy"]}}
    assert not world.starts() and world.after(remedy).starts()


def test_the_slices_of_a_gang_are_loosened_together() -> None:
    slices = {KUEUE_SLICE_REQUIRED: "host", KUEUE_SLICE_SIZE: "2"}
    pods = tuple(
        waiting(number, 8, slices, labels={GROUP: "unit", COMPLETION_INDEX: str(number)}) for number in range(4)
    )
    found = World(FOUR, pods, min_member=4).remedies()

    (preferred,) = of_kind(found, RemedyKind.PREFER_LEVEL)
    (wider,) = of_kind(found, RemedyKind.WIDEN_LEVEL)
    assert preferred.values == {"level": "host", "subgroups": ["slice-0", "slice-1"]}
    assert wider.sentence == "Require the level leaf for the subgroups slice-0, slice-1 instead of host."
    assert RemedyKind.FEWER_MEMBERS not in kinds(found)


def test_a_capacity_that_cannot_be_read_is_no_repair() -> None:
    broken = node("n0", 0, unschedulable=True)
    broken.status.capacity = {"nvidia.com/gpu": "many"}
    found = World((broken, node("n1", 0, unschedulable=True)), (waiting(),)).remedies()

    assert [each.values for each in found.remedies] == [{"nodes": {"n1": ["cordoned"]}}]


def test_a_gang_is_let_start_with_as_many_members_as_fit_although_fewer_would_not() -> None:
    # Five to eight nodes have to be in adjacent leaves, and none are: only nine may lie in several spines.
    free = {0: (4, 0), 1: (4, 0), 2: (1, 0)}
    nodes = tuple(
        node(f"s{spine}-l{leaf}-n{number}", leaf, spine=spine, gpus=8 if number < leaves[leaf] else 4)
        for spine, leaves in free.items()
        for leaf in range(2)
        for number in range(4)
    )
    world = World(nodes, members(12, level=""), min_member=12)
    judged = world.judged(profile_with("LeafSpine"))
    (unit,) = judged.groups.values()
    trial = Trial(unit, judged.runtimes["gangs"], judged.cluster, {}, 0.0)

    with trial.finding():
        would_do = [number for number in range(1, 12) if trial.starts(change=partial(needing, number))]
        assert would_do == [1, 2, 3, 4, 9]
    with trial.finding():
        (found,) = fewer_members(trial)

    assert found.values == {"minMember": 9, "from": 12, "fewer": 3} and not trial.is_cut


# Bounds


def test_no_attempt_is_made_with_more_members_than_there_are() -> None:
    judged = World(FOUR, members(40, gpus=0), min_member=200).judged()
    (unit,) = judged.groups.values()
    trial = Trial(unit, judged.runtimes["gangs"], judged.cluster, {}, 0.0)

    with trial.finding():
        (found,) = fewer_members(trial)

    assert found.values["minMember"] == 40 and trial.tried == 1 and not trial.is_cut


def test_where_attempts_run_out_that_is_said() -> None:
    judged = World(FOUR, members(3), min_member=3).judged()
    (unit,) = judged.groups.values()
    trial = Trial(unit, judged.runtimes["gangs"], judged.cluster, {}, 0.0)

    with trial.finding(attempts=1):
        (found,) = fewer_members(trial)
        assert found.values["minMember"] == 2 and not trial.is_cut
        assert not list(smaller_requests(trial)) and trial.is_cut and trial.tried == 1
    with trial.finding(seconds=0.0):
        assert list(free_room(trial)) == [] and trial.tried == 1


def test_an_attempt_that_fails_proves_nothing() -> None:
    judged = World(FOUR, members(3), min_member=3).judged()
    (unit,) = judged.groups.values()
    trial = Trial(unit, judged.runtimes["gangs"], judged.cluster, {}, 0.0)

    def broken(group: PodGroup) -> PodGroup:
        raise PluginError("Some", "filter", "is broken")

    with trial.finding():
        assert not trial.starts(change=broken) and not trial.is_cut


def test_a_node_affinity_that_names_a_node_is_that_of_a_controller_and_is_left_as_it_is() -> None:
    pinned = model.NodeSelectorTerm(match_fields=[model.Requirement("metadata.name", "In", ["gone"])])
    affinity = model.Affinity(model.NodeAffinity(model.NodeSelector([pinned])))

    assert not World((node("n0", 0),), (waiting(affinity=affinity),)).remedies().remedies


def test_labels_that_are_enough_one_by_one_are_not_left_out_together() -> None:
    nodes = (node("n0", 0, gpus=4), node("n1", 1))
    found = World(nodes, (waiting(node_selector={LEAF: "leaf-0", SPINE: "spine-0"}),)).remedies()

    assert [each.values["labels"] for each in of_kind(found, RemedyKind.PREFER_NODES)] == [{LEAF: "leaf-0"}]


def test_a_node_without_labels_has_no_label() -> None:
    bare = node("n0", 0)
    bare.metadata.labels = None
    found = World((bare,), (waiting(node_selector={"disk": "ssd"}),)).remedies()

    assert "which no node has" in of_kind(found, RemedyKind.PREFER_NODES)[0].sentence
