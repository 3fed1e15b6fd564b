"""Stories of devices with binding conditions: a driver attaches the device first, and reports whether that worked."""

from __future__ import annotations

from typing import Any

from gangline_e2e.claims.building import (
    STORY,
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
from gangline_e2e.claims.tainting import rule
from gangline_e2e.workloads import Manifest

ATTACHED, POWERED, FAILED = "example.com/attached", "example.com/powered", "example.com/failed"
ONE, TWO = claim("one", exactly()), claim("two", exactly())


def attachable(name: str = "gpu-0", conditions: tuple[str, ...] = (ATTACHED,), **more: Any) -> Manifest:
    """A device that a driver attaches to its node first."""
    return device(name, bindingConditions=list(conditions), bindingFailureConditions=[FAILED], **more)


def said(*conditions: str, of: str = "gpu-0", name: str = "one", pool: str = "@a", status: str = "True") -> Changed:
    """A step: the driver writes conditions of a device into the claim's status."""
    return Changed("ResourceClaim", f"@{name}", words("DRIVER", pool, of, *conditions, status=status), "status")


def words(driver: str, pool: str, of: str, *conditions: str, status: str = "True") -> Manifest:
    """What a driver writes into a claim: conditions of a device."""
    told = [
        {
            "type": each,
            "status": status,
            "reason": "DriverSaysSo",
            "message": "the driver says so",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        for each in conditions
    ]
    return {"status": {"devices": [{"driver": driver, "pool": pool, "device": of, "conditions": told}]}}


STORIES = (
    Story(
        "binding-later",
        [node(), offer([attachable()]), class_(), ONE],
        [pod("p", "one"), Given("@one", "gpu-0"), said(ATTACHED), Decided("@p", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "binding-fails",
        [node(), node("b"), offer([attachable()]), class_(), ONE],
        [
            pod("p", "one"),
            Given("@one", "gpu-0"),
            Deleted("ResourceSlice", "@a"),
            Created(offer(devices("gpu-1"), at="b")),
            said(FAILED),
            Decided("@p", at="b"),
        ],
        {"one": ["gpu=gpu-1"]},
    ),
)

MISHAPS = (
    Story(
        "binding-shared",
        [node(), offer([attachable()]), class_(), ONE],
        [
            pod("p", "one"),
            pod("q", "one"),
            Given("@one", "gpu-0"),
            said(ATTACHED),
            Decided("@p", at="a"),
            Decided("@q", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "binding-in-two-steps",
        [node(), offer([attachable(conditions=(ATTACHED, POWERED))]), class_(), ONE],
        [
            pod("p", "one"),
            Given("@one", "gpu-0"),
            said(ATTACHED),
            said(POWERED),
            said(ATTACHED, POWERED, status="False"),
            said(ATTACHED, POWERED),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "binding-to-node",
        [
            node("a", zone="a"),
            node("b", zone="b"),
            offer([attachable(bindsToNode=True)], name="net", pool="@a", allNodes=True),
            class_(),
            ONE,
        ],
        [
            pod("p", "one", nodeSelector={STORY: "@nodes", "zone": "a"}),
            Given("@one", "gpu-0"),
            said(ATTACHED),
            Decided("@p", at="a"),
            pod("q", "one", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "binding-slice-replaced",
        [node(), offer([attachable()]), class_(), ONE, TWO],
        [
            pod("p", "one"),
            Given("@one", "gpu-0"),
            Changed("ResourceSlice", "@a", {"spec": {"devices": devices("gpu-1")}}),
            pod("q", "two", at="a"),
            said(ATTACHED),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-0"], "two": ["gpu=gpu-1"]},
    ),
    Story(
        "binding-tainted",
        [node(), offer([attachable()]), class_(), ONE],
        [
            pod("p", "one"),
            Given("@one", "gpu-0"),
            Created(rule(device="gpu-0")),
            said(ATTACHED),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "binding-pod-goes",
        [node(), offer([attachable()]), class_(), ONE, TWO],
        [
            pod("p", "one"),
            Given("@one", "gpu-0"),
            Deleted("Pod", "@p"),
            pod("q", "two"),
            Given("@two", "gpu-0"),
            said(ATTACHED, name="two"),
            Decided("@q", at="a"),
        ],
        {"one": [], "two": ["gpu=gpu-0"]},
    ),
)
"""Stories in which something else happens meanwhile; one needs the feature gate DRADeviceTaintRules."""
