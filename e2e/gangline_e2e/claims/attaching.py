"""Stories of devices with binding conditions: a driver attaches the device first, and reports whether that worked."""

from __future__ import annotations

from gangline_e2e.claims.building import (
    Changed,
    Created,
    Decided,
    Deleted,
    Given,
    Story,
    claim,
    class_,
    device,
    devices,
    exactly,
    node,
    offer,
    pod,
)
from gangline_e2e.workloads import Manifest

ATTACHED, FAILED = "example.com/attached", "example.com/failed"
ONE = claim("one", exactly())


def _attachable() -> Manifest:
    """The device of node `a`."""
    found = device("gpu-0", bindingConditions=[ATTACHED], bindingFailureConditions=[FAILED])
    return offer([found])


def _said(condition: str) -> Changed:
    """A step: the driver writes a condition of the device into the claim's status."""
    said = {
        "type": condition,
        "status": "True",
        "reason": "DriverSaysSo",
        "message": "the driver says so",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    of = {"driver": "DRIVER", "pool": "@a", "device": "gpu-0", "conditions": [said]}
    return Changed("ResourceClaim", "@one", {"status": {"devices": [of]}}, "status")


STORIES = (
    Story(
        "binding-later",
        [node(), _attachable(), class_(), ONE],
        [pod("p", "one"), Given("@one", "gpu-0"), _said(ATTACHED), Decided("@p", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "binding-fails",
        [node(), node("b"), _attachable(), class_(), ONE],
        [
            pod("p", "one"),
            Given("@one", "gpu-0"),
            Deleted("ResourceSlice", "@a"),
            Created(offer(devices("gpu-1"), at="b")),
            _said(FAILED),
            Decided("@p", at="b"),
        ],
        {"one": ["gpu=gpu-1"]},
    ),
)
