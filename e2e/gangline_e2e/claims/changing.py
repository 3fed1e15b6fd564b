"""Stories of administrators who change their minds: taints, classes, claims and groups of devices that are in use."""

from __future__ import annotations

from gangline_e2e.claims.attaching import ATTACHED, attachable, said
from gangline_e2e.claims.building import (
    Changed,
    Created,
    Decided,
    Deleted,
    Given,
    Gone,
    Story,
    Withheld,
    claim,
    class_,
    devices,
    exactly,
    node,
    offer,
    pod,
    template,
)
from gangline_e2e.claims.extending import NAME, one
from gangline_e2e.claims.grouping import group, member
from gangline_e2e.claims.tainting import rule

FULL = "cannot allocate all claims"
ONE, TWO = claim("one", exactly()), claim("two", exactly())


TAINTS = (
    Story(
        "rule-comes-later",
        [node(), offer(devices("gpu-0", "gpu-1")), class_(), ONE, TWO, claim("three", exactly())],
        [
            pod("p", "one", at="a"),
            Created(rule()),
            Withheld(),
            pod("q", "two", refused=FULL),
            pod("r", "one", at="a"),
            Deleted("DeviceTaintRule", "@rule"),
            Decided("@q", at="a"),
        ],
        {"one": ["gpu=gpu-0"], "two": ["gpu=gpu-1"], "three": []},
    ),
    Story(
        "rule-evicts",
        [node(), offer(devices("gpu-0")), class_(), ONE, TWO],
        [
            pod("p", "one", at="a"),
            Created(rule(effect="NoExecute", device="gpu-0")),
            Gone("Pod", "@p"),
            pod("q", "two", refused=FULL),
            Deleted("DeviceTaintRule", "@rule"),
            Decided("@q", at="a"),
        ],
        {"one": [], "two": ["gpu=gpu-0"]},
    ),
    Story(
        "rule-tolerated-for-a-second",
        [
            node(),
            offer(devices("gpu-0")),
            class_(),
            claim(
                "one",
                exactly(
                    tolerations=[
                        {
                            "key": "example.com/broken",
                            "operator": "Exists",
                            "effect": "NoExecute",
                            "tolerationSeconds": 1,
                        }
                    ]
                ),
            ),
            TWO,
        ],
        [
            pod("p", "one", at="a"),
            Created(rule(effect="NoExecute", device="gpu-0")),
            Gone("Pod", "@p"),
            pod("q", "two", refused=FULL),
        ],
        {"one": [], "two": []},
    ),
    Story(
        "rule-long-tolerated",
        [
            node(),
            offer(devices("gpu-0")),
            class_(),
            claim(
                "one",
                exactly(tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}]),
            ),
            rule(effect="NoExecute"),
        ],
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "rule-zero-seconds",
        [
            node(),
            offer(devices("gpu-0")),
            class_(),
            claim("one", exactly(tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}])),
            rule(effect="NoExecute"),
        ],
        [pod("p", "one"), Gone("Pod", "@p")],
        {"one": []},
    ),
    Story(
        "rule-nothing",
        [node(), offer(devices("gpu-0")), class_(), ONE, rule(device="gpu-7"), rule("two", pool="@z", device="gpu-0")],
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
)

CLASSES = (
    Story(
        "class-goes-while-waiting",
        [node(), class_(), ONE, TWO],
        [
            pod("p", "one", refused=FULL),
            Deleted("DeviceClass", "@gpu"),
            pod("q", "two", refused="device class @gpu does not exist"),
            Deleted("Pod", "@q"),
            Created(offer(devices("gpu-0"))),
            Decided("@p", refused="device class @gpu does not exist"),
            Created(class_()),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-0"], "two": []},
    ),
    Story(
        "class-goes-after",
        [node(), offer(devices("gpu-0", "gpu-1")), class_(), ONE, TWO],
        [
            pod("p", "one", at="a"),
            Deleted("DeviceClass", "@gpu"),
            pod("q", "one", at="a"),
            pod("r", "two", refused="device class @gpu does not exist"),
        ],
        {"one": ["gpu=gpu-0"], "two": []},
    ),
    Story(
        "class-changes",
        [node(), offer(devices("gpu-0")), class_("gpu", 'device.driver == "other"'), ONE],
        [
            pod("p", "one", refused=FULL),
            Changed(
                "DeviceClass", "@gpu", {"spec": {"selectors": [{"cel": {"expression": 'device.driver == "DRIVER"'}}]}}
            ),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "class-changes-after",
        [node(), offer(devices("gpu-0", "gpu-1")), class_(), ONE, TWO],
        [
            pod("p", "one", at="a"),
            Changed(
                "DeviceClass", "@gpu", {"spec": {"selectors": [{"cel": {"expression": 'device.driver == "other"'}}]}}
            ),
            pod("q", "one", at="a"),
            pod("r", "two", refused=FULL),
        ],
        {"one": ["gpu=gpu-0"], "two": []},
    ),
    Story(
        "extended-moves",
        [
            node(),
            offer(devices("gpu-0")),
            class_("gpu", 'device.driver == "other"', extendedResourceName=NAME),
            class_("new"),
        ],
        [
            one("p", refused=FULL),
            Changed("DeviceClass", "@gpu", {"spec": {"extendedResourceName": None}}),
            Changed("DeviceClass", "@new", {"spec": {"extendedResourceName": NAME}}),
            Decided("@p", at="a"),
        ],
        {"p/extended": ["container-0-request-0=gpu-0"]},
    ),
    Story(
        "extended-class-goes",
        [node(), class_("gpu", extendedResourceName=NAME)],
        [
            one("p", refused=FULL),
            Deleted("DeviceClass", "@gpu"),
            Created(offer(devices("gpu-0"))),
            Decided("@p", refused="Insufficient"),
            Created(class_("gpu", extendedResourceName=NAME)),
            Decided("@p", at="a"),
        ],
        {"p/extended": ["container-0-request-0=gpu-0"]},
    ),
    Story(
        "claim-of-nothing",
        [node(), class_(), claim("one", exactly(allocationMode="All"))],
        [pod("p", "one", refused=FULL), Created(offer(devices("gpu-0"))), Decided("@p", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "claim-is-deleted",
        [node(), offer(devices("gpu-0")), class_(), ONE, TWO],
        [
            pod("p", "one", at="a"),
            Deleted("ResourceClaim", "@one"),
            pod("q", "one"),
            pod("r", "two", refused=FULL),
            Deleted("Pod", "@p"),
            Decided("@r", at="a"),
            Created(claim("one", exactly())),
            Decided("@q", refused=FULL),
        ],
        {"one": [], "two": ["gpu=gpu-0"]},
    ),
)

GROUPS = (
    Story(
        "group-anew",
        [node(), node("b"), offer(devices("gpu-0")), class_(), ONE, TWO, group("one")],
        [
            member("p", "one", at="a"),
            Deleted("PodGroup", "@g"),
            Deleted("Pod", "@p"),
            Gone("PodGroup", "@g"),
            Created(group("one")),
            member("q", "one", at="a"),
        ],
        {"one": ["gpu=gpu-0"], "two": []},
    ),
    Story(
        "group-is-going",
        [node(), node("b"), offer(devices("gpu-0")), class_(), ONE, TWO, group("one")],
        [member("p", "one", at="a"), Deleted("PodGroup", "@g"), member("q", "one", at="a")],
        {"one": ["gpu=gpu-0"], "two": []},
    ),
    Story(
        "group-of-templates-anew",
        [node(), node("b"), offer(devices("gpu-0")), class_(), template("one", exactly()), group(templates=("one",))],
        [
            member("p", templates=["one"], at="a"),
            Deleted("PodGroup", "@g"),
            Deleted("Pod", "@p"),
            Gone("PodGroup", "@g"),
            Created(group(templates=("one",))),
            member("q", templates=["one"], at="a"),
        ],
        {"g/one": ["gpu=gpu-0"]},
    ),
    Story(
        "group-binding",
        [node(), offer([attachable()]), class_(), ONE, group("one")],
        [
            member("p", "one"),
            member("q", "one"),
            Given("@one", "gpu-0"),
            said(ATTACHED),
            Decided("@p", at="a"),
            Decided("@q", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "group-comes-later",
        [node(), offer(devices("gpu-0")), class_(), ONE],
        [member("p", "one"), Created(group("one")), Decided("@p", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
)

STORIES = (*TAINTS, *CLASSES, *GROUPS)

ALONE = (
    Story(
        "rule-everything",
        [
            node(),
            offer(devices("gpu-0")),
            class_(),
            ONE,
            TWO,
            {**rule(), "spec": {"deviceSelector": {}, "taint": {"key": "example.com/x", "effect": "NoSchedule"}}},
        ],
        [
            Withheld(),
            pod("p", "one", refused=FULL),
            Deleted("DeviceTaintRule", "@rule"),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-0"], "two": []},
    ),
    Story(
        "rule-without-a-selector",
        [
            node(),
            offer(devices("gpu-0")),
            class_(),
            ONE,
            {**rule(), "spec": {"taint": {"key": "example.com/x", "effect": "NoSchedule"}}},
        ],
        [Withheld(), pod("p", "one", refused=FULL), Deleted("DeviceTaintRule", "@rule"), Decided("@p", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "admin-label-goes",
        [node(), offer(devices("gpu-0")), class_(), claim("one", exactly(adminAccess=True)), TWO],
        [
            Changed("Namespace", "", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": None}}}),
            pod("q", "two", at="a"),
            pod("p", "one", refused="admin"),
            Changed("Namespace", "", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}),
            Decided("@p", at="a"),
            Changed("Namespace", "", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": None}}}),
            pod("r", "one", at="a"),
            Changed("Namespace", "", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}),
            Decided("@r", at="a"),
        ],
        {"one": ["gpu=gpu-0"], "two": ["gpu=gpu-0"]},
    ),
)
"""Stories that would disturb other stories, so they are told after all others, one by one."""

TOLD_OTHERWISE = frozenset(("admin-label-goes", "extended-class-goes"))
"""Stories of which Gangline gives another reason than kube-scheduler, with the same end."""
