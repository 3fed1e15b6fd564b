"""Waiting gangs and members that were alike when they were rejected, and that a plugin tells apart when pods go."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pytest

from gangline import (
    NODE,
    CodeColumn,
    EventHint,
    GroupAttempt,
    NodeView,
    PodInfo,
    Reason,
    Status,
    codes,
    hookimpl,
    unschedulable,
)
from gangline.groups.keys import KOORDINATOR_GROUP, KOORDINATOR_MIN_AVAILABLE
from gangline.testing import make_pod

from .test_gangs_alike import NAME, GangWorld


class Doors:
    """Lets no pod on nodes of the zone y, and pods whose label is shut out on no node at all."""

    name = "Doors"
    reads = NODE
    reasons = (Reason("the door is shut"),)
    shut_out: frozenset[str] = frozenset()

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        return ()

    def _is_out(self, pod: PodInfo) -> bool:
        return pod.labels.get("app") in self.shut_out

    @hookimpl
    def identity(self, pod: PodInfo) -> Hashable:
        return self._is_out(pod) if self.shut_out else None

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        return codes(nodes.full(True) if self._is_out(pod) else nodes.label("zone").equals("y"))


class Favours:
    """Helps the gang that it favours."""

    name = "Favours"
    favoured = ""
    helped: list[str] = []  # noqa: RUF012  # the test looks at it

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        return ()

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt) -> Status:
        if attempt.group.name == self.favoured:
            self.helped.append(attempt.group.name)
        return unschedulable("")

    @hookimpl
    def pod_group_key(self, attempt: GroupAttempt) -> Hashable:
        return attempt.group.name if self.favoured else ()

    @hookimpl
    def pod_group_can_help(self, attempt: GroupAttempt) -> bool:
        return attempt.group.name == self.favoured


class EqualToItself:
    """Cannot be compared with others of its kind."""

    def __eq__(self, other: object) -> bool:
        if self is not other:
            raise ValueError("no")
        return True

    def __hash__(self) -> int:
        return 1


class OddlyKeyed(Favours):
    """Helps nobody, and makes a new key each time."""

    name = "OddlyKeyed"

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt) -> Status:
        return unschedulable("")

    @hookimpl
    def pod_group_key(self, attempt: GroupAttempt) -> Hashable:
        return EqualToItself()

    @hookimpl
    def pod_group_can_help(self, attempt: GroupAttempt) -> bool:
        return False


def waiting(more: str, plugin: type, *gangs: tuple[str, ...], counts_room: bool = True) -> GangWorld:
    """Gangs that need one member each, with members of these labels. One node is full, and `Doors` shuts the other."""
    world = GangWorld(more=more, plugins=(Doors, plugin), counts_room=counts_room)
    world.node("n-0", 0)
    world.node("n-1", 1)  # in the zone y
    world.handle.upsert(make_pod("first", node="n-0", cpu=4))
    for number, labels in enumerate(gangs):
        note = {KOORDINATOR_GROUP: f"g-{number}", KOORDINATOR_MIN_AVAILABLE: "1"}
        for label in labels:
            pod = make_pod(f"g-{number}-{label}", labels={"app": label}, annotations=note, scheduler_name=NAME, cpu=4)
            world.waiting[pod.metadata.name] = pod
            world.handle.upsert(pod)
    world.settle()
    return world


def first_goes(world: GangWorld) -> None:
    world.handle.remove("default", "first", "pod-default-first")
    world.settle()


@pytest.mark.parametrize("counts_room", [True, False], ids=["counted", "tried"])
@pytest.mark.parametrize("gangs", [(("a",), ("b",)), (("a", "b"),)], ids=["gangs", "members"])
def test_one_starts_though_a_plugin_now_rejects_another_that_was_like_it(
    gangs: tuple[tuple[str, ...], ...], counts_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = waiting("{name: Doors}", Doors, *gangs, counts_room=counts_room)
    assert len({unit.kind for unit in world.scheduler.queue}) == 1
    monkeypatch.setattr(Doors, "shut_out", frozenset("a"))

    first_goes(world)

    assert [name[-1] for name in world.bound] == ["b"]


@pytest.mark.parametrize("counts_room", [True, False], ids=["counted", "tried"])
def test_a_gang_is_helped_though_the_plugin_cannot_help_another_that_was_like_it(
    counts_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Favours, "helped", [])
    world = GangWorld(more="{name: Favours}", plugins=(Favours,), counts_room=counts_room)
    world.node("n-0", 0)
    world.play(("gangs", 7, 1))  # one pod
    world.play(("gangs", 0, 3))  # each needs two nodes
    world.handle.upsert(make_pod("first", node="n-0", cpu=3))
    world.settle()
    monkeypatch.setattr(Favours, "favoured", "g-004")

    world.play(("bound_goes", 0))
    first_goes(world)

    assert set(Favours.helped) == {"g-004"}


def test_a_gang_starts_though_the_keys_of_a_plugin_cannot_be_compared() -> None:
    world = GangWorld(more="{name: OddlyKeyed}", plugins=(OddlyKeyed,))
    world.node("n-0", 0)
    world.play(("gangs", 7, 1))  # one pod
    world.play(("gangs", 0, 1))  # needs two nodes
    world.play(("bound_goes", 0))

    world.play(("gangs", 7, 1))
    world.node("n-1", 0)
    world.play(("bound_goes", 0))

    assert [name[:5] for name in world.bound] == ["g-002"] * 2
