"""The members of groups that have a node, when their groups are read anew."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gangline import PodInfo, model
from gangline.api.pod_group import Membership
from gangline.groups import keys
from gangline.groups.members import PlacedMembers
from gangline.kube.resources import GPU_CLAIMS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.testing import make_node, make_pod
from gangline.wire.custom_resources import CLAIM, GpuClaim, GpuClaimSpec

from .stories import World

PODS = 500


def test_groups_of_many_pods_are_read_anew_in_slices_and_pods_that_go_between_them_stay_away() -> None:
    world = World()
    cache, placed = world.cache, PlacedMembers(world.groups)
    cache.upsert_node(make_node("n", cpu=PODS))
    cache.track(placed)
    for number in range(PODS):
        pod = make_pod(f"p-{number}", annotations={CLAIM: "c"})
        pod.spec.node_name = "n"
        cache.upsert_pod(cache.record(pod))
    meta = model.ObjectMeta(name="c", namespace="default")
    cache.store(GPU_CLAIMS).upsert(GpuClaim(meta, GpuClaimSpec(gang_ref="g")))
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": PODS})
    assert not placed.groups()

    steps = placed.start_over(cache.pods)
    next(steps)
    read = [len(members) for members in placed.groups().values()]
    first, *_, last = cache.pods
    cache.remove_pod(first)
    cache.remove_pod(last)
    list(steps)

    (members,) = placed.groups().values()
    assert 0 < read[0] < PODS and members.keys() == cache.pods.keys() and len(members) == PODS - 2


def test_the_group_of_a_pod_with_a_new_status_is_read_anew_too() -> None:
    world = World()
    cache, placed = world.cache, PlacedMembers(world.groups)
    cache.upsert_node(make_node("n", cpu=PODS))
    cache.track(placed)
    pods = [make_pod(f"p-{number}", annotations={CLAIM: "c"}) for number in range(PODS)]
    for pod in pods:
        pod.spec.node_name = "n"
        cache.upsert_pod(cache.record(pod))
    meta = model.ObjectMeta(name="c", namespace="default")
    cache.store(GPU_CLAIMS).upsert(GpuClaim(meta, GpuClaimSpec(gang_ref="g")))
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": PODS})

    steps = placed.start_over(cache.pods)
    next(steps)
    cache.upsert_pod(cache.record(pods[-1]))  # changed in nothing that columns or trackers count
    list(steps)

    (members,) = placed.groups().values()
    assert members.keys() == cache.pods.keys()


@pytest.mark.parametrize("leaving", [False, True], ids=["all stay", "one is being deleted"])
def test_members_that_are_placed_at_once_count_as_one_by_one(leaving: bool) -> None:
    world = World()
    cache, placed = world.cache, PlacedMembers(world.groups)
    cache.upsert_node(make_node("n"))
    cache.track(placed)
    pods = [make_pod(f"p-{number}", labels={keys.POD_GROUP: "ab"[number % 2]}) for number in range(4)]
    pods += [make_pod("alone"), make_pod("unknown", labels={keys.POD_GROUP: "c"})]
    pods[0].metadata.deletion_timestamp = "2026-01-01T00:00:00Z" if leaving else None
    for name in "ab":
        world.put(SCHEDULER_PLUGINS_POD_GROUPS, name, {"minMember": 2})
    records, found = [cache.record(pod) for pod in pods], []

    for at_once in (True, False):
        with cache.transaction() as tx:
            if at_once:
                tx.place_all(records, [0] * len(records))
            else:
                for record in records:
                    tx.place(record, 0)
            groups = {key: set(members) for key, members in placed.groups().items()}
            found.append((groups, [len(placed.leaving(key)) for key in groups]))
        assert not placed.groups()

    assert found[0] == found[1] and sorted(map(len, found[0][0].values())) == [2 - leaving, 2]


def test_the_group_of_a_member_that_was_placed_at_once_is_read_when_it_is_known() -> None:
    world = World()
    cache, placed = world.cache, PlacedMembers(world.groups)
    cache.upsert_node(make_node("n"))
    cache.track(placed)
    records = [cache.record(make_pod(f"p-{number}", labels={keys.POD_GROUP: "a"})) for number in range(2)]

    with cache.transaction() as tx:
        tx.place_all(records, [0, 0])
        before = dict(placed.groups())
        world.put(SCHEDULER_PLUGINS_POD_GROUPS, "a", {"minMember": 2})
        found = [len(members) for members in placed.groups().values()]

    assert not before and found == [2] and not placed.groups()


class Answers(dict[str, Membership]):
    """The groups of pods, by the names of the pods."""

    version = 0

    def of(self, pod: PodInfo) -> Membership | None:
        return self.get(pod.name)

    def annotations(self, pod: PodInfo) -> Mapping[str, str]:
        return pod.annotations


def test_a_pod_that_joins_or_leaves_a_group_is_found_when_groups_are_read_anew() -> None:
    world, answers = World(), Answers()
    cache, placed = world.cache, PlacedMembers(answers)
    cache.upsert_node(make_node("n"))
    cache.track(placed)
    world.put(SCHEDULER_PLUGINS_POD_GROUPS, "g", {"minMember": 1})
    for name in ("joins", "stays-alone"):
        cache.upsert_pod(cache.record(make_pod(name, node="n", labels={keys.POD_GROUP: "g"})))
    found = world.groups.of(next(iter(cache.pods.values())))
    assert isinstance(found, Membership) and not placed.groups()

    answers["joins"] = found
    list(placed.start_over(cache.pods))
    assert [pod.name for pod in placed.of(found.group.key)] == ["joins"]

    answers.clear()
    list(placed.start_over(cache.pods))
    assert not placed.groups()
