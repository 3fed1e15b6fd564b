"""Before each batch pods and nodes have to be as the plan takes them to be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline import model
from gangline.testing import GPU, make_node, make_pod
from gangline_plugins.defragmentation import Move, MoveStep
from gangline_plugins.defragmentation.checking import changed, lacks_room


def pod(name: str, node: str, gpus: int = 4, **status: Any) -> model.Pod:
    made = make_pod(name, gpus=gpus, node=node)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, **status))


def move(name: str, source: str, destination: str, gpus: int = 4) -> Move:
    uid = f"pod-default-{name}"
    return Move(f"pod default/{name}", [MoveStep("default", name, uid, "o", source, destination, {GPU: gpus})], 1.0, 0)


def said(batch: list[Move], *pods: model.Pod, **node: Any) -> str:
    nodes = [make_node("n1"), make_node("n2", **node)]
    by_uid = {each.metadata.uid: each for each in pods}
    return changed(batch, by_uid) or lacks_room(batch, by_uid, nodes)


def test_nothing_is_said_where_all_is_as_planned() -> None:
    assert said([move("a", "n1", "n2")], pod("a", "n1"), pod("b", "n2", gpus=4)) == ""


@pytest.mark.parametrize(
    ("pods", "node", "why"),
    [
        pytest.param([], {}, "pod default/a is gone, or on its way out", id="gone"),
        pytest.param([pod("a", "n1", phase="Succeeded")], {}, "pod default/a is gone, or on its way out", id="over"),
        pytest.param([pod("a", "n3")], {}, "pod default/a is not on node n1 any more", id="elsewhere"),
        pytest.param([pod("a", "n1")], {"unschedulable": True}, "node n2 is gone or takes no more pods", id="cordoned"),
        pytest.param(
            [pod("a", "n1"), pod("b", "n2", gpus=5)],
            {},
            "node n2 has no room left for what was to move there: nvidia.com/gpu",
            id="full",
        ),
    ],
)
def test_what_has_changed_is_said(pods: list[model.Pod], node: dict[str, Any], why: str) -> None:
    assert said([move("a", "n1", "n2")], *pods, **node) == why


def test_a_node_that_is_gone_is_named() -> None:
    assert said([move("a", "n1", "n9")], pod("a", "n1")) == "node n9 is gone or takes no more pods"


def test_pods_that_are_over_need_no_room() -> None:
    assert said([move("a", "n1", "n2")], pod("a", "n1"), pod("b", "n2", gpus=8, phase="Failed")) == ""


def test_moves_of_one_batch_share_the_room() -> None:
    batch = [move("a", "n1", "n2"), move("b", "n1", "n2")]

    assert said(batch, pod("a", "n1"), pod("b", "n1")) == ""
    assert "no room left" in said([*batch, move("c", "n1", "n2")], *(pod(name, "n1") for name in "abc"))


def test_pods_that_move_together_may_take_each_others_room() -> None:
    steps = [
        MoveStep("default", name, f"pod-default-{name}", "o", source, destination, {GPU: 8})
        for name, source, destination in (("a", "n1", "n2"), ("b", "n2", "n1"))
    ]

    assert said([Move("gang default/g", steps, 1.0, 0)], pod("a", "n1", gpus=8), pod("b", "n2", gpus=8)) == ""
