"""VolumeBinding: which nodes a pod's claims allow, and how they are bound once a node is chosen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline import SKIP, SUCCESS, Code, Conflict, Cycle, PodInfo, Status, model, resources
from gangline_plugins.volumes.volume_binding import VolumeBinding
from gangline_plugins.volumes.volume_binding.binding import wait_for

from ..volume_cases import StandingClock, VolumeCluster, claim, node, pod, storage_class, volume

UNREACHABLE = "node(s) didn't match PersistentVolume's node affinity"
NO_MATCH = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
SELECTED = "volume.kubernetes.io/selected-node"
NODES = [node("a", zone="x"), node("b", zone="x"), node("c", zone="y")]


def cluster(**objects: list[Any]) -> VolumeCluster:
    objects.setdefault("storageclasses", [storage_class()])
    return VolumeCluster(VolumeBinding, nodes=NODES, **objects)


def dynamic(**objects: list[Any]) -> VolumeCluster:
    """One claim whose class has a provisioner."""
    classes = objects.pop("storageclasses", [storage_class("fast", "driver")])
    return cluster(pvcs=[claim("c", "fast", "10Gi")], storageclasses=classes, **objects)


# Claims that reject the pod


def ephemeral(owner: str | None) -> dict[str, Any]:
    made = claim("pod-scratch")
    if owner is not None:
        made["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "pod", "uid": owner, "controller": True}]
    return made


SCRATCH = pod(volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])


@pytest.mark.parametrize(
    ("claims", "wanted", "message"),
    [
        pytest.param([], pod("p", "nope"), 'persistentvolumeclaim "nope" not found', id="missing"),
        pytest.param(
            [],
            SCRATCH,
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "pod-scratch"',
            id="ephemeral, not made yet",
        ),
        pytest.param(
            [ephemeral("uid-other")],
            SCRATCH,
            "PVC default/pod-scratch was not created for pod default/pod (pod is not owner)",
            id="ephemeral, of another pod",
        ),
        pytest.param(
            [{**claim("c", volume="v"), "status": {"phase": "Lost"}}],
            pod("p", "c"),
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
            id="lost",
        ),
        pytest.param(
            [{**claim("c"), "metadata": {"name": "c", "namespace": "default", "deletionTimestamp": "now"}}],
            pod("p", "c"),
            'persistentvolumeclaim "c" is being deleted',
            id="being deleted",
        ),
        pytest.param(
            [claim("c", "no-such-class")],
            pod("p", "c"),
            "pod has unbound immediate PersistentVolumeClaims",
            id="immediate",
        ),
        pytest.param(
            [claim("c", volumeName="v")],
            pod("p", "c"),
            "pod has unbound immediate PersistentVolumeClaims",
            id="bound on one side only",
        ),
    ],
)
def test_a_claim_that_cannot_be_used_rejects_the_pod(claims: list[Any], wanted: Any, message: str) -> None:
    found = cluster(pvcs=claims).status(wanted)

    assert found is not None
    assert (found.code, found.message) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, message)


def test_an_ephemeral_claim_of_the_pod_itself_is_used() -> None:
    assert set(cluster(pvcs=[ephemeral("uid-pod")], pvs=[volume("v", "b")]).rejected(SCRATCH)) == {"a", "c"}


# Which nodes


def test_a_bound_claim_keeps_the_pod_where_its_volume_can_be_reached() -> None:
    bound = cluster(pvcs=[claim("c", volume="v")], pvs=[volume("v", "b")])

    assert bound.rejected(pod("p", "c")) == {"a": (UNREACHABLE,), "c": (UNREACHABLE,)}


def test_of_two_bound_claims_the_first_to_fail_is_told() -> None:
    bound = cluster(pvcs=[claim("c", volume="v"), claim("d", volume="gone")], pvs=[volume("v", "b", "c")])

    assert bound.rejected(pod("p", "c", "d")) == {"a": (UNREACHABLE,), "b": (NO_VOLUME,), "c": (NO_VOLUME,)}


def test_a_node_can_be_rejected_for_two_reasons_at_once() -> None:
    taken: dict[str, Any] = {"claimRef": {"name": "c", "namespace": "default", "uid": "uid-c"}}
    both = cluster(pvcs=[claim("c", volume="v"), claim("d")], pvs=[volume("v", "b", "c", **taken), volume("w", "b")])

    assert both.rejected(pod("p", "c", "d")) == {"a": (UNREACHABLE, NO_MATCH), "c": (NO_MATCH,)}


def other_class() -> dict[str, Any]:
    return volume("v", storage_class="other")


def bound_to(name: str, uid: str = "") -> dict[str, Any]:
    return volume("v", "a", claimRef={"name": name, "namespace": "default", "uid": uid})


@pytest.mark.parametrize(
    ("offered", "wanted", "feasible"),
    [
        pytest.param(volume("v"), claim("c"), {"a", "b", "c"}, id="reachable from anywhere"),
        pytest.param(volume("v", "a", "b"), claim("c"), {"a", "b"}, id="reachable from some"),
        pytest.param(volume("v", size="1023Mi"), claim("c"), set(), id="too small"),
        pytest.param(other_class(), claim("c"), set(), id="of another class"),
        pytest.param({**volume("v"), "status": {"phase": "Released"}}, claim("c"), set(), id="not available"),
        pytest.param(volume("v", accessModes=["ReadOnlyMany"]), claim("c"), set(), id="another access mode"),
        pytest.param(volume("v", volumeMode="Block"), claim("c"), set(), id="another mode"),
        pytest.param(volume("v"), claim("c", selector={"matchLabels": {"x": "y"}}), set(), id="not selected"),
        pytest.param(bound_to("c", "uid-c"), claim("c"), {"a"}, id="kept for the claim"),
        pytest.param(bound_to("c", "uid-old"), claim("c"), set(), id="kept for an earlier claim of that name"),
        pytest.param(bound_to("d"), claim("c"), set(), id="kept for another"),
        pytest.param(
            volume(
                "v",
                nodeAffinity={
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x"]}]}
                        ]
                    }
                },
            ),
            claim("c"),
            {"c"},
            id="reachable by a selector of another kind",
        ),
    ],
)
def test_an_unbound_claim_needs_a_volume_that_fits(offered: Any, wanted: Any, feasible: set[str]) -> None:
    rejected = cluster(pvcs=[wanted], pvs=[offered]).rejected(pod("p", "c"))

    assert rejected == dict.fromkeys({"a", "b", "c"} - feasible, (NO_MATCH,))


def test_a_volume_kept_for_the_claim_is_used_or_none() -> None:
    kept = cluster(pvcs=[claim("c")], pvs=[bound_to("c"), {**volume("w", "b")}])

    assert kept.rejected(pod("p", "c")) == {"b": (NO_MATCH,), "c": (NO_MATCH,)}


def test_two_claims_need_two_volumes() -> None:
    one = cluster(
        pvcs=[claim("c"), claim("d")],
        pvs=[volume("v", "a"), volume("w", "b"), volume("x", "b"), volume("y", "c"), volume("z")],
    )
    rejected = one.rejected(pod("p", "c", "d"))
    one.add(resources.PVS, volume("z", size="1Mi"))

    assert rejected == {}
    assert set(one.rejected(pod("p", "c", "d"))) == {"a", "c"}


@pytest.mark.parametrize(
    ("topologies", "rejected"),
    [
        pytest.param([], set(), id="anywhere"),
        pytest.param([{"key": "zone", "values": ["x"]}], {"c"}, id="one label"),
        pytest.param([{"key": "zone", "values": ["x"]}, {"key": "host", "values": ["b"]}], {"a", "c"}, id="two labels"),
    ],
)
def test_a_volume_is_made_only_in_allowed_topologies(topologies: list[Any], rejected: set[str]) -> None:
    allowed = [{"matchLabelExpressions": topologies}] if topologies else []
    made = dynamic(storageclasses=[storage_class("fast", "driver", allowedTopologies=allowed)])

    assert made.rejected(pod("p", "c")) == dict.fromkeys(rejected, (NO_MATCH,))


def capacity(selector: Any, **amounts: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"cap-{selector}", "namespace": "default"},
        "storageClassName": "fast",
        "nodeTopology": selector,
        **amounts,
    }


@pytest.mark.parametrize(
    ("reported", "roomy"),
    [
        pytest.param([], set(), id="nothing reported"),
        pytest.param([capacity({"matchLabels": {"zone": "x"}}, capacity="10Gi")], {"a", "b"}, id="by one label"),
        pytest.param([capacity({}, capacity="10Gi")], {"a", "b", "c"}, id="everywhere"),
        pytest.param([capacity(None, capacity="10Gi")], set(), id="nowhere"),
        pytest.param([capacity({"matchLabels": {"zone": "x"}}, capacity="9Gi")], set(), id="too little"),
        pytest.param([capacity({}, capacity="20Gi", maximumVolumeSize="9Gi")], set(), id="in too small parts"),
        pytest.param(
            [capacity({"matchExpressions": [{"key": "zone", "operator": "Exists"}], "matchLabels": {"host": "b"}},
                      capacity="10Gi")],
            {"b"},
            id="by expressions",
        ),
    ],
)  # fmt: skip
def test_a_driver_that_reports_free_space_is_asked(reported: list[Any], roomy: set[str]) -> None:
    drivers = [{"metadata": {"name": "driver"}, "spec": {"storageCapacity": True}}]
    made = dynamic(csidrivers=drivers, csistoragecapacities=reported)

    assert made.rejected(pod("p", "c")) == dict.fromkeys({"a", "b", "c"} - roomy, (NO_ROOM,))


def test_a_driver_that_does_not_report_free_space_has_enough() -> None:
    assert dynamic(csidrivers=[{"metadata": {"name": "driver"}, "spec": {}}]).rejected(pod("p", "c")) == {}


def test_a_claim_that_names_a_node_already_stays_there() -> None:
    selected = claim("c", "fast")
    selected["metadata"]["annotations"] = {SELECTED: "b"}
    made = cluster(pvcs=[selected], storageclasses=[storage_class("fast", "driver")])

    assert made.rejected(pod("p", "c")) == {"a": (NO_MATCH,), "c": (NO_MATCH,)}


# Reserving


def test_the_smallest_volume_that_fits_is_taken() -> None:
    offered = cluster(
        pvcs=[claim("c")], pvs=[volume("big", size="3Gi"), volume("fits", size="1Gi"), volume("mid", size="2Gi")]
    )
    offered.assume(pod("p", "c"), "a")

    taken = offered.plugin._volumes.get("fits")
    assert taken.spec.claim_ref.name == "c"


def test_the_smaller_claim_gets_the_smaller_volume() -> None:
    offered = cluster(pvcs=[claim("large", size="2Gi"), claim("small")], pvs=[volume("v1"), volume("v2", size="2Gi")])
    offered.assume(pod("p", "large", "small"), "a")

    refs = [offered.plugin._volumes.get(name).spec.claim_ref.name for name in ("v1", "v2")]
    assert refs == ["small", "large"]


def test_two_pods_do_not_take_one_volume_until_it_is_given_back() -> None:
    offered = cluster(pvcs=[claim("c"), claim("d")], pvs=[volume("v", "a")])
    cycle, first, _ = offered.assume(pod("1", "c"), "a")
    while_taken = offered.rejected(pod("2", "d"))
    offered.runtime.unreserve(cycle, first, "a")

    assert set(while_taken) == {"a", "b", "c"}
    assert set(offered.rejected(pod("2", "d"))) == {"b", "c"}


def test_a_second_pod_with_the_same_claim_follows_the_first() -> None:
    made = dynamic()
    cycle, first, _ = made.assume(pod("1", "c"), "b")
    while_reserved = made.rejected(pod("2", "c"))
    made.runtime.unreserve(cycle, first, "b")

    assert set(while_reserved) == {"a", "c"}
    assert made.rejected(pod("2", "c")) == {}


def test_news_from_the_api_server_end_an_assumption() -> None:
    offered = cluster(pvcs=[claim("c"), claim("d")], pvs=[volume("v", "a")])
    offered.assume(pod("1", "c"), "a")
    offered.server.change(resources.PVS, "v", {"metadata": {"labels": {"x": "y"}}}, "")

    assert set(offered.rejected(pod("2", "d"))) == {"b", "c"}


def test_a_volume_that_changed_after_filtering_is_not_reserved() -> None:
    offered = cluster(pvcs=[claim("c")], pvs=[volume("v", "a")])
    record = offered.pod(pod("p", "c"))
    filtered = offered.runtime.evaluator.filter(record)
    offered.server.change(resources.PVS, "v", {"metadata": {"labels": {"x": "y"}}}, "")

    assert offered.runtime.reserve(filtered.cycle, record, "a").code is Code.ERROR


# Binding


async def test_a_match_is_written_to_the_volume_and_waited_for() -> None:
    offered = cluster(pvcs=[claim("c")], pvs=[volume("v", "a")])
    offered.server.reaction = lambda name: offered.server.bind("c", "v")
    cycle, record, _ = offered.assume(pod("p", "c"), "a")

    assert await offered.runtime.pre_bind(cycle, record, "a") == SUCCESS
    ((plural, name, patch),) = offered.server.patches
    assert (plural, name) == ("persistentvolumes", "v")
    assert patch["metadata"] == {
        "resourceVersion": "5",
        "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
    }
    assert patch["spec"]["claimRef"] == {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "c",
        "uid": "uid-c",
        "resourceVersion": "7",
    }


def test_only_a_claim_that_is_still_to_be_bound_takes_long() -> None:
    waiting = cluster(pvcs=[claim("c")], pvs=[volume("v", "a")])
    bound = cluster(pvcs=[claim("c", volume="v")], pvs=[bound_to("c", "uid-c")])

    for offered, flight in ((waiting, SUCCESS), (bound, SKIP)):
        cycle, record, _ = offered.assume(pod("p", "c"), "a")
        assert offered.runtime.pre_flight(cycle, record, "a") == flight


async def test_a_volume_that_names_the_claim_already_is_not_written() -> None:
    offered = cluster(pvcs=[claim("c")], pvs=[bound_to("c", "uid-c")])
    cycle, record, _ = offered.assume(pod("p", "c"), "a")
    offered.server.bind("c", "v")

    assert await offered.runtime.pre_bind(cycle, record, "a") == SUCCESS
    assert offered.server.patches == []


async def test_a_claim_to_provision_for_names_the_node_and_is_waited_for() -> None:
    made, written = dynamic(), asyncio.Event()
    made.server.reaction = lambda name: written.set()
    cycle, record, _ = made.assume(pod("p", "c"), "b")

    async with asyncio.TaskGroup() as tasks:
        binding = tasks.create_task(made.runtime.pre_bind(cycle, record, "b"))
        await written.wait()
        waited = not binding.done()
        made.add(resources.PVS, volume("new", "b"))
        made.server.bind("c", "new")

    assert waited
    assert binding.result() == SUCCESS
    assert made.server.patches == [
        ("persistentvolumeclaims", "c", {"metadata": {"resourceVersion": "7", "annotations": {SELECTED: "b"}}})
    ]


async def test_a_pod_whose_claims_are_bound_writes_nothing() -> None:
    bound = cluster(pvcs=[claim("c", volume="v")], pvs=[volume("v")])
    cycle, record, _ = bound.assume(pod("p", "c"), "a")

    assert await bound.runtime.pre_bind(cycle, record, "a") == SUCCESS
    assert bound.server.patches == []


async def test_a_conflict_fails_the_binding_and_what_was_not_written_is_given_back() -> None:
    offered = cluster(pvcs=[claim("c"), claim("d")], pvs=[volume("v", "a"), volume("w", "a", size="2Gi")])
    offered.server.failures["w"] = Conflict(409, "Conflict", "w has changed")
    cycle, record, _ = offered.assume(pod("p", "c", "d"), "a")

    status = await offered.runtime.pre_bind(cycle, record, "a")
    offered.runtime.unreserve(cycle, record, "a")

    assert (status.code, status.plugin) == (Code.ERROR, "VolumeBinding")
    assert [name for _, name, _ in offered.server.patches] == ["v"]
    assert offered.plugin._volumes.get("v").spec.claim_ref.name == "c"
    assert offered.plugin._volumes.get("w").spec.claim_ref is None


def lose_selection(made: VolumeCluster) -> None:
    made.server.change(resources.PVCS, "c", {"metadata": {"annotations": {SELECTED: None}}})


def reset_reference(offered: VolumeCluster) -> None:
    offered.server.change(resources.PVS, "v", {"spec": {"claimRef": None}}, "")


def move_volume(made: VolumeCluster) -> None:
    made.add(resources.PVS, volume("v", "c"))
    made.server.bind("c", "v")


def lose_claim(made: VolumeCluster) -> None:
    made.cache.store(resources.PVCS).remove("default", "c")


def lose_node(made: VolumeCluster) -> None:
    made.cache.remove_node("a")


def lose_pod(made: VolumeCluster) -> None:
    made.cache.remove_pod("uid-p")


@pytest.mark.parametrize(
    ("happens", "static", "message"),
    [
        pytest.param(lose_selection, False, 'provisioning failed for PVC "c"', id="the provisioner gives up"),
        pytest.param(move_volume, False, 'pv "v" node affinity doesn\'t match node "a"', id="made elsewhere"),
        pytest.param(lose_claim, False, 'failed to check provisioning pvc: "default/c" not found', id="claim gone"),
        pytest.param(reset_reference, True, 'ClaimRef got reset for pv "v"', id="the controller unbinds"),
        pytest.param(lose_node, True, 'failed to get node "a"', id="node gone"),
        pytest.param(lose_pod, True, "pod does not exist any more", id="pod gone"),
    ],
)
async def test_a_binding_that_cannot_succeed_fails_at_once(happens: Any, static: bool, message: str) -> None:
    found = cluster(pvcs=[claim("c")], pvs=[volume("v", "a")]) if static else dynamic()
    found.server.reaction = lambda name: happens(found)
    cycle, record, _ = found.assume(pod("p", "c"), "a")

    status = await found.runtime.pre_bind(cycle, record, "a")

    assert (status.code, status.message) == (Code.ERROR, f"binding volumes: {message}")


def test_what_the_watch_has_not_shown_yet_is_waited_for() -> None:
    made = dynamic()
    cycle, record, _ = made.assume(pod("p", "c"), "a")
    from_server = made.server.change(resources.PVCS, "c", {"metadata": {"annotations": {SELECTED: "a"}}})
    made.add(resources.PVCS, claim("c", "fast"))
    (to_bind,) = [value for key, value in cycle.export().items() if key.name == "VolumeBinding to bind"]
    to_bind.provisions[0].claim = from_server

    assert made.plugin._checks.outcome(record.uid, "a", to_bind) is False


async def test_a_wait_pauses_longer_and_longer_and_ends_in_time() -> None:
    clock = StandingClock()
    asked: list[float] = []

    def not_yet() -> bool:
        asked.append(round(clock.time, 3))
        return False

    status = await wait_for(not_yet, 3.0, clock, clock.sleep)

    assert status == Status(Code.ERROR, ("binding volumes: timed out after 3 s",))
    assert asked == [0.0, 0.1, 0.3, 0.7, 1.5, 2.5, 3.0]


# Wake-ups


def hint_of(resource: str) -> Any:
    (found,) = [e.hint for e in cluster().plugin.events_to_register() if e.event.resource == resource]
    return found


def test_more_free_space_wakes_pods() -> None:
    hint = hint_of("csistoragecapacities")
    less, more = (model.CSIStorageCapacity(model.ObjectMeta(name="x"), capacity=amount) for amount in ("1Gi", "2Gi"))

    assert (hint(None, less, more), hint(None, more, less), hint(None, None, less)) == (True, False, True)


def test_only_the_pods_own_claims_wake_it() -> None:
    found = cluster(pvcs=[claim("c"), claim("d"), claim("pod-scratch")])
    store = found.cache.store(resources.PVCS)
    hint, named, scratch = hint_of("persistentvolumeclaims"), found.pod(pod("p", "c")), found.pod(SCRATCH)

    assert [hint(named, None, store.get(name, "default")) for name in ("c", "d")] == [True, False]
    assert hint(scratch, None, store.get("pod-scratch", "default"))


# Members of a group: placed like others of their class, without being filtered


def placed(volumes: VolumeCluster, name: str, on: str) -> tuple[Cycle, PodInfo, Status]:
    """Prepare, place on a node and reserve, as a group's cycle does."""
    record = volumes.pod(pod(name, f"claim-of-{name}"))
    evaluator = volumes.runtime.evaluator
    [prepared] = evaluator.members.prepare([record], evaluator.filter(record))
    row = volumes.cache.nodes.row_of(on)
    assert prepared is not None and row is not None
    cycle, _ = prepared
    volumes.cache.assume(record, row)
    return cycle, record, volumes.runtime.reserve(cycle, record, on)


async def test_each_member_of_a_group_gets_a_volume_of_its_own() -> None:
    names = ("p", "q")
    volumes = cluster(pvcs=[claim(f"claim-of-{name}") for name in names], pvs=[volume("v", "b"), volume("w", "b")])
    volumes.server.reaction = lambda name: volumes.server.bind(
        volumes.server.patches[-1][2]["spec"]["claimRef"]["name"], name
    )

    members = [placed(volumes, name, "b") for name in names]
    statuses = [await volumes.runtime.pre_bind(cycle, record, "b") for cycle, record, _ in members]

    assert all(status.is_success for _, _, status in members) and all(status.is_success for status in statuses)
    assert {name for _, name, _ in volumes.server.patches} == {"v", "w"}


def test_a_member_for_which_no_volume_is_left_on_its_node_is_refused() -> None:
    volumes = cluster(pvcs=[claim("claim-of-p"), claim("claim-of-q")], pvs=[volume("v", "b"), volume("w", "a")])

    _, _, first = placed(volumes, "p", "b")
    _, _, second = placed(volumes, "q", "b")

    assert first.is_success and second.message == f"pod default/q on node b: {NO_MATCH}"
