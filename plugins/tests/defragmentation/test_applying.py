"""A plan is carried out with the room kept, or not at all; and the plugin does so by itself where it is told to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline import Unavailable, resources
from gangline.testing.gangs import LEAF, REQUIRED
from gangline_plugins.defragmentation import Defragmentation
from gangline_plugins.defragmentation.applying import Stopped
from gangline_plugins.defragmentation.record import Record

from .stories import Story


def test_the_moves_of_a_plan_start_the_gang_that_waited() -> None:
    story = Story()

    async def play() -> tuple[dict[str, str], set[str]]:
        await story.fragment()
        found = await story.plan()
        before = story.bound("small")
        await story.apply(found)
        return before, {step.destination for step in found.plan.steps}

    before, destinations = story.play(play)

    after, gang = story.bound("small"), story.bound("big")
    assert len(gang) == 4 and len({node.split("-")[0] for node in gang.values()}) == 1
    assert len(after) == 8 and len(after.items() - before.items()) == 4
    assert {node for name, node in after.items() if name not in before} == destinations
    assert story.records() == 0


def test_a_gang_moves_as_a_whole_and_stays_within_its_own_level() -> None:
    story = Story()

    async def play() -> tuple[str, str]:
        story.add_job("pair", 2, {REQUIRED: "leaf"})
        await story.until(lambda: len(story.bound("pair")) == 2)
        (here,) = {node.split("-")[0] for node in story.bound("pair").values()}
        there = "l1" if here == "l0" else "l0"
        for n in range(2):
            held, leaf = {"gangline.dev/never-move": "true"}, {LEAF: f"leaf-{there[1]}"}
            story.add_replica_set(f"held-{n}", held, nodeSelector=leaf)
        await story.until(lambda: len(story.bound("held")) == 2)
        story.add_gang("big", 4)
        found = await story.plan()
        assert [move.name for move in found.plan.moves] == ["gang default/pair"]
        await story.apply(found)
        return here, there

    here, there = story.play(play)

    assert {node.split("-")[0] for node in story.bound("pair").values()} == {there}
    assert {node.split("-")[0] for node in story.bound("big").values()} == {here}
    assert len(story.bound("pair")) == 2 and len(story.bound("big")) == 4


def test_a_second_plan_says_that_no_move_is_needed() -> None:
    story = Story()

    async def play() -> str:
        await story.fragment()
        await story.apply(await story.plan())
        again = (await story.plan()).plan
        assert again.is_met and not again.moves
        return again.message

    assert story.play(play) == "no move is needed: no gang waits"


def test_nobody_is_evicted_when_no_scheduler_keeps_the_room() -> None:
    story = Story(keeps=False)

    async def play() -> dict[str, str]:
        await story.fragment()
        before = story.bound("small")
        with pytest.raises(Stopped, match='is Defragmentation in the profile "gangs"'):
            await story.apply(await story.plan())
        return before

    assert story.play(play) == story.bound("small")
    assert story.records() == 0


def test_two_do_not_move_pods_at_the_same_time() -> None:
    story = Story()

    async def play() -> None:
        await story.fragment()
        found = await story.plan()
        data = {"record": _record(story.clock.now() + 60.0)}
        metadata = {"name": "gangline-moves", "namespace": "kube-system"}
        story.server.create(resources.CONFIG_MAPS, {"metadata": metadata, "data": data})
        with pytest.raises(Stopped, match="pods are being moved already, for somebody else"):
            await story.apply(found)

    story.play(play)

    assert story.records() == 1


def test_what_somebody_left_behind_is_removed_once_it_has_expired() -> None:
    story = Story()

    async def play() -> None:
        await story.fragment()
        data = {"record": _record(story.clock.now() - 1.0)}
        metadata = {"name": "gangline-moves", "namespace": "kube-system"}
        story.server.create(resources.CONFIG_MAPS, {"metadata": metadata, "data": data})
        await story.apply(await story.plan())

    story.play(play)

    assert len(story.bound("big")) == 4


def test_a_budget_that_allows_nothing_in_the_end_stops_the_moves() -> None:
    story = Story(timeoutSeconds=20)

    async def play() -> str:
        await story.fragment()
        found = await story.plan()
        for n in range(8):
            story.add_budget(f"small-{n}", 0)
        with pytest.raises(Stopped) as raised:
            await story.apply(found)
        return str(raised.value)

    said = story.play(play)

    assert "may not be evicted: Cannot evict pod as it would violate" in said
    assert len(story.bound("small")) == 8 and story.records() == 0


def test_a_pod_that_is_gone_meanwhile_stops_the_moves() -> None:
    story = Story()

    async def play() -> None:
        await story.fragment()
        found = await story.plan()
        step = found.plan.steps[0]
        story.server.delete(resources.PODS, step.name, namespace=step.namespace, grace_period_seconds=0)
        with pytest.raises(Stopped, match=f"pod default/{step.name} is gone"):
            await story.apply(found)

    story.play(play)

    assert not story.bound("big")


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "for-good"])
def test_a_pod_that_is_gone_when_it_is_to_be_evicted_does_not_stop_the_moves(is_replaced: bool) -> None:
    gone: list[str] = []

    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if verb == "evict" and not gone:
            gone.append(name)
            if not is_replaced:
                story.server.delete(resources.REPLICA_SETS, name.rpartition("-")[0], namespace="default")
            story.server.delete(resources.PODS, name, namespace="default", grace_period_seconds=0)
        return None

    story = Story(faults=faults)

    async def play() -> None:
        await story.fragment()
        await story.apply(await story.plan())

    story.play(play)

    assert gone and len(story.bound("big")) == 4 and story.records() == 0
    assert len(story.bound("small")) == (8 if is_replaced else 7)


def test_a_node_that_is_cordoned_meanwhile_stops_the_moves() -> None:
    story = Story(timeoutSeconds=20)

    async def play() -> None:
        await story.fragment()
        found = await story.plan()
        node = found.plan.steps[0].destination
        story.server.patch(resources.NODES, node, {"spec": {"unschedulable": True}})
        with pytest.raises(Stopped, match=f"node {node} is gone or takes no more pods"):
            await story.apply(found)

    story.play(play)

    assert len(story.bound("small")) == 8 and story.records() == 0


def test_an_api_server_that_fails_stops_the_moves_and_frees_what_was_kept() -> None:
    down = False

    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return Unavailable(503, "Unavailable", "down") if down and verb == "evict" else None

    story = Story(faults=faults)

    async def play() -> None:
        nonlocal down
        await story.fragment()
        found = await story.plan()
        down = True
        with pytest.raises(Unavailable):
            await story.apply(found)

    story.play(play)

    assert story.records() == 0 and len(story.bound("small")) == 8


def test_in_the_background_the_gang_that_waits_longest_is_helped() -> None:
    story = Story(intervalSeconds=10)

    async def play() -> None:
        await story.fragment()
        await story.until(lambda: len(story.bound("big")) == 4)
        await story.until(lambda: any("to make room for gang default/big" in note for note in story.notes()))

    story.play(play)

    assert len(story.bound("small")) == 8


def test_in_the_background_a_pod_with_an_annotation_that_cannot_be_read_is_told_and_stays() -> None:
    story = Story(intervalSeconds=10)

    async def play() -> dict[str, str]:
        story.add_replica_set("odd", {"gangline.dev/checkpoint-interval": "-5m"})
        await story.fragment(pods=7)
        before = story.bound("odd")
        await story.until(lambda: any("annotation gangline.dev/checkpoint-interval: '-5m'" in n for n in story.notes()))
        return before

    assert story.play(play) == story.bound("odd")


def test_without_an_interval_nothing_is_moved_in_the_background() -> None:
    story = Story()

    async def play() -> dict[str, str]:
        await story.fragment()
        before = story.bound("small")
        start = story.clock.monotonic()
        await story.until(lambda: story.clock.monotonic() - start > 250.0, 300.0)
        return before

    assert story.play(play) == story.bound("small")


def _record(until: float) -> str:
    return msgspec.json.encode(Record("other", until, "gangs", "somebody else", "", [], [])).decode()


def test_the_plugin_is_told_of_rejected_gangs_and_makes_no_room_within_a_decision() -> None:
    assert not hasattr(Defragmentation, "pod_group_post_filter")
    assert hasattr(Defragmentation, "post_reject")
