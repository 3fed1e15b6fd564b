"""Stories of DeviceTaintRules, which need the feature gate DRADeviceTaintRules and resource.k8s.io/v1beta2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline_e2e.claims.building import (
    Changed,
    Decided,
    Deleted,
    Story,
    claim,
    class_,
    devices,
    exactly,
    node,
    offer,
    pod,
)
from gangline_e2e.workloads import Manifest

NONE_LEFT = "cannot allocate all claims"


def rule(name: str = "rule", effect: str = "NoSchedule", **selector: str) -> Manifest:
    """A DeviceTaintRule for the devices of the story's driver."""
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": f"@{name}"},
        "spec": {
            "deviceSelector": {"driver": "DRIVER", **selector},
            "taint": {"key": "example.com/broken", "value": "yes", "effect": effect},
        },
    }


def _there(*more: Manifest, **request: Any) -> list[Manifest]:
    """One node with two devices, and a claim for one of them."""
    return [node(), offer(devices("gpu-0", "gpu-1")), class_(), claim("one", exactly(**request)), *more]


def _tolerating(**toleration: str) -> Mapping[str, Any]:
    return {"tolerations": [{"key": "example.com/broken", **toleration}]}


STORIES = (
    Story(
        "rule-device",
        _there(rule(device="gpu-0", pool="@a")),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-1"]},
    ),
    Story(
        "rule-evicting",
        _there(rule(effect="NoExecute", device="gpu-0")),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-1"]},
    ),
    Story(
        "rule-none",
        _there(rule(effect="None")),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "rule-other-pool",
        _there(rule(pool="@b")),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "rule-driver",
        _there(rule()),
        [pod("p", "one", refused=NONE_LEFT)],
    ),
    Story(
        "rule-tolerated",
        _there(rule(), **_tolerating(operator="Equal", value="yes", effect="NoSchedule")),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "rule-other-value",
        _there(rule(), **_tolerating(operator="Equal", value="no")),
        [pod("p", "one", refused=NONE_LEFT)],
    ),
    Story(
        "rule-two",
        _there(rule("one", device="gpu-0"), rule("two", device="gpu-1")),
        [pod("p", "one", refused=NONE_LEFT), Deleted("DeviceTaintRule", "@two"), Decided("@p", at="a")],
        {"one": ["gpu=gpu-1"]},
    ),
    Story(
        "rule-goes",
        _there(rule()),
        [pod("p", "one", refused=NONE_LEFT), Deleted("DeviceTaintRule", "@rule"), Decided("@p", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "rule-changes",
        _there(rule()),
        [
            pod("p", "one", refused=NONE_LEFT),
            Changed("DeviceTaintRule", "@rule", {"spec": {"deviceSelector": {"device": "gpu-0"}}}),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-1"]},
    ),
)
