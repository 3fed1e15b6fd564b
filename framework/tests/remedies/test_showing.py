"""Remedies for viewers who may not see the pods of every namespace."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gangline.remedies import RemedyKind
from gangline.remedies.showing import HIDDEN, ShownRemedies

from .worlds import World, node, occupant, waiting

FULL = (occupant("secret", "n0", 8, namespace="theirs"), occupant("known", "n1", 2, namespace="mine"))
WORLD = World((node("n0", 0), node("n1", 0), node("n2", 0)), (waiting(),), (*FULL, occupant("b", "n2", 7)))


@pytest.fixture(scope="module")
def shown() -> ShownRemedies:
    return ShownRemedies(WORLD.remedies())


def told(shown: ShownRemedies, *seen: str) -> dict[str, Any]:
    return {each["kind"]: each for each in json.loads(shown.told(seen))["remedies"]}


def test_who_may_see_the_pods_is_told_everything(shown: ShownRemedies) -> None:
    everything = {each.kind: each.sentence for each in shown.found.remedies}

    assert {kind: each["sentence"] for kind, each in told(shown, *shown.namespaces).items()} == everything
    assert shown.namespaces <= {"theirs", "mine", "default"} and len(shown.namespaces) > 0


def test_a_remedy_about_pods_that_the_viewer_may_not_see_names_neither_them_nor_their_namespace() -> None:
    world = replace(WORLD, nodes=WORLD.nodes[:1], running=FULL[:1])
    found = told(ShownRemedies(world.remedies()))

    room, priority = found[RemedyKind.FREE_ROOM], found[RemedyKind.RAISE_PRIORITY]
    assert room["sentence"] == f"Wait until 8 GPUs of node n0 come free: 1 pod would have to end. {HIDDEN}"
    assert priority["sentence"].endswith(f"so that preemption may remove 1 pod. {HIDDEN}")
    assert room["cost"]["interrupted"] == 1 and room["values"]["gpus"] == 8
    assert not any(word in json.dumps(found) for word in ("theirs", "secret"))


def test_moves_are_counted_where_the_pods_may_not_be_seen() -> None:
    running = (occupant("a", "n0", 6), occupant("b", "n1", 2, namespace="theirs"))
    world = World((node("n0", 0), node("n1", 0)), (waiting(),), running)
    found = told(ShownRemedies(world.remedies()), "default")

    assert found[RemedyKind.MOVE_PODS]["sentence"] == f"Move 1 pod to other nodes. {HIDDEN}"
    assert found[RemedyKind.MOVE_PODS]["values"] == {}


def test_a_remedy_without_pods_is_told_to_everybody() -> None:
    cordoned = World((node("n0", 0, unschedulable=True),), (waiting(),))

    assert told(ShownRemedies(cordoned.remedies()))[RemedyKind.REPAIR_NODES]["values"] == {
        "nodes": {"n0": ["cordoned"]}
    }
