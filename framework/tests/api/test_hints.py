"""Which events match what a plugin registered."""

from __future__ import annotations

import pytest

from gangline import Action, ClusterEvent, on
from gangline.api.hints import ANY_EVENT, EventHint


@pytest.mark.parametrize(
    ("registered", "matches"),
    [
        (on("nodes", Action.ADD), False),
        (on("nodes", Action.UPDATE_NODE_LABEL), True),
        (on("nodes", Action.UPDATE_NODE), True),
        (on("nodes", Action.ADD | Action.UPDATE), True),
        (on("pods", Action.ALL), False),
        (on("*", Action.UPDATE), True),
        (ANY_EVENT, True),
    ],
    ids=["add", "label", "any update of nodes", "several", "pods", "any resource", "anything"],
)
def test_an_event_matches_by_resource_and_by_any_of_the_actions(registered: EventHint, matches: bool) -> None:
    happened = ClusterEvent("nodes", Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT)

    assert registered.event.matches(happened) is matches


def test_groups_of_actions_hold_their_parts() -> None:
    assert Action.UPDATE_NODE_TAINT in Action.UPDATE_NODE and Action.UPDATE_NODE in Action.UPDATE
    assert Action.ADD not in Action.UPDATE and all(action in Action.ALL for action in Action)
