"""Stories of pools: several slices, generations, nodes that share devices, taints, partitions and shared capacity."""

from __future__ import annotations

from typing import Any

from gangline_e2e.claims.building import (
    Changed,
    Created,
    Decided,
    Story,
    claim,
    class_,
    consumes,
    counters,
    device,
    devices,
    either,
    exactly,
    first,
    node,
    offer,
    pod,
)

FULL = "cannot allocate all claims"
TAINT = {"key": "DRIVER/sick", "value": "yes", "effect": "NoSchedule"}
TWO = devices("gpu-0", "gpu-1")


def _numa(*numbers: int) -> list[dict[str, Any]]:
    return [device(f"gpu-{at}", {"numa": number, "serial": f"s{at}"}) for at, number in enumerate(numbers)]


def _same(*requests: str) -> list[dict[str, Any]]:
    return [{"requests": list(requests), "matchAttribute": "DRIVER/numa"}]


def _unlike(*requests: str) -> list[dict[str, Any]]:
    return [{"requests": list(requests), "distinctAttribute": "DRIVER/numa"}]


PARTS = [
    device("whole", {"size": 4}, consumesCounters=consumes(memory="40Gi")),
    device("half-0", {"size": 2}, consumesCounters=consumes(memory="20Gi")),
    device("half-1", {"size": 2}, consumesCounters=consumes(memory="20Gi")),
]
PARTITIONED = [
    offer(PARTS, name="parts", slices=2),
    offer(name="counters", slices=2, sharedCounters=counters(memory="40Gi")),
]
HALF = 'device.attributes["DRIVER"].size == 2'
WHOLE = 'device.attributes["DRIVER"].size == 4'


def _shared(**policy: Any) -> dict[str, Any]:
    capacity = {"memory": {"value": "10Gi", **({"requestPolicy": policy} if policy else {})}}
    return device("gpu-0", None, capacity, allowMultipleAllocations=True)


def _wants(memory: str) -> dict[str, Any]:
    return {"capacity": {"requests": {"memory": memory}}}


CONSTRAINTS = (
    Story(
        "match",
        [node(), offer(_numa(0, 1, 1)), class_(), claim("c", exactly(count=2), constraints=_same("gpu"))],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-1", "gpu=gpu-2"]},
    ),
    Story(
        "match-nowhere",
        [node(), offer(_numa(0, 1, 2)), class_(), claim("c", exactly(count=2), constraints=_same("gpu"))],
        [pod("p", "c", refused=FULL)],
        {"c": []},
    ),
    Story(
        "match-over-requests",
        [
            node(),
            offer(_numa(0, 1, 1, 0)),
            class_(),
            claim("c", exactly("one"), exactly("two", count=2), constraints=_same("two")),
        ],
        [pod("p", "c", at="a")],
        {"c": ["one=gpu-0", "two=gpu-1", "two=gpu-2"]},
    ),
    Story(
        "match-all-requests",
        [node(), offer(_numa(0, 1, 1)), class_(), claim("c", exactly("one"), exactly("two"), constraints=_same())],
        [pod("p", "c", at="a")],
        {"c": ["one=gpu-1", "two=gpu-2"]},
    ),
    Story(
        "match-without-the-attribute",
        [node(), offer(TWO), class_(), claim("c", exactly(), constraints=_same("gpu"))],
        [pod("p", "c", refused=FULL)],
        {"c": []},
    ),
    Story(
        "match-of-all",
        [
            node("a"),
            node("b"),
            offer(_numa(0, 1)),
            offer(_numa(1, 1), at="b"),
            class_(),
            claim("c", exactly(allocationMode="All"), constraints=_same("gpu")),
        ],
        [pod("p", "c", refused="cannot add device DRIVER/@a/gpu-1 because a claim constraint would not be satisfied")],
        {"c": []},
    ),
    Story(
        "distinct",
        [node(), offer(_numa(0, 0, 1)), class_(), claim("c", exactly(count=2), constraints=_unlike("gpu"))],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-0", "gpu=gpu-2"]},
    ),
    Story(
        "distinct-nowhere",
        [node(), offer(_numa(0, 0)), class_(), claim("c", exactly(count=2), constraints=_unlike("gpu"))],
        [pod("p", "c", refused=FULL)],
        {"c": []},
    ),
    Story(
        "match-and-distinct",
        [
            node(),
            offer(_numa(0, 1, 1)),
            class_(),
            claim(
                "c",
                exactly(count=2),
                constraints=[*_same("gpu"), {"requests": ["gpu"], "distinctAttribute": "DRIVER/serial"}],
            ),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-1", "gpu=gpu-2"]},
    ),
)

ALTERNATIVES = (
    Story(
        "first-alternative",
        [node(), offer(_numa(0, 1)), class_(), claim("c", first("gpu", either("many", count=2), either("one")))],
        [pod("p", "c", at="a")],
        {"c": ["gpu/many=gpu-0", "gpu/many=gpu-1"]},
    ),
    Story(
        "second-alternative",
        [node(), offer(devices("gpu-0")), class_(), claim("c", first("gpu", either("many", count=2), either("one")))],
        [pod("p", "c", at="a")],
        {"c": ["gpu/one=gpu-0"]},
    ),
    Story(
        "no-alternative",
        [
            node(),
            offer(devices("gpu-0")),
            class_(),
            claim("c", first("gpu", either("many", count=3), either("two", count=2))),
        ],
        [pod("p", "c", refused=FULL)],
        {"c": []},
    ),
    Story(
        "node-of-the-better-alternative",
        [
            node("a"),
            node("b"),
            offer(devices("gpu-0")),
            offer(TWO, at="b"),
            class_(),
            claim("c", first("gpu", either("many", count=2), either("one"))),
        ],
        [pod("p", "c", at="b")],
        {"c": ["gpu/many=gpu-0", "gpu/many=gpu-1"]},
    ),
    Story(
        "alternatives-and-more",
        [
            node(),
            offer(TWO),
            class_(),
            claim("c", first("gpu", either("many", count=2), either("one")), exactly("rest")),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu/one=gpu-0", "rest=gpu-1"]},
    ),
    Story(
        "alternative-with-constraint",
        [
            node(),
            offer(_numa(0, 1)),
            class_(),
            claim("c", first("gpu", either("many", count=2), either("one")), constraints=_same("gpu")),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu/one=gpu-0"]},
    ),
    Story(
        "alternative-of-all",
        [
            node(),
            offer(_numa(0, 1)),
            class_(),
            claim(
                "c",
                first(
                    "gpu",
                    either("all", 'device.attributes["DRIVER"].numa == 7', allocationMode="All"),
                    either("one", 'device.attributes["DRIVER"].numa == 1'),
                ),
            ),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu/one=gpu-1"]},
    ),
)

TAINTS = (
    Story(
        "tainted",
        [node(), offer([device("gpu-0", taints=[TAINT]), device("gpu-1")]), class_(), claim("c", exactly())],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-1"]},
    ),
    Story(
        "all-tainted",
        [node(), offer([device("gpu-0", taints=[TAINT])]), class_(), claim("c", exactly())],
        [pod("p", "c", refused=FULL)],
        {"c": []},
    ),
    Story(
        "tolerated",
        [
            node(),
            offer([device("gpu-0", taints=[TAINT])]),
            class_(),
            claim("c", exactly(tolerations=[{"key": "DRIVER/sick", "operator": "Exists", "effect": "NoSchedule"}])),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "tolerated-by-value",
        [
            node(),
            offer([device("gpu-0", taints=[TAINT]), device("gpu-1", taints=[{**TAINT, "value": "no"}])]),
            class_(),
            claim("c", exactly(tolerations=[{"key": "DRIVER/sick", "operator": "Equal", "value": "no"}])),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-1"]},
    ),
    Story(
        "all-with-a-taint",
        [
            node(),
            offer([device("gpu-0", taints=[TAINT]), device("gpu-1")]),
            class_(),
            claim("c", exactly(allocationMode="All")),
        ],
        [pod("p", "c", refused=FULL)],
        {"c": []},
    ),
    Story(
        "taint-of-no-effect",
        [
            node(),
            offer([device("gpu-0", taints=[{**TAINT, "effect": "None"}])]),
            class_(),
            claim("c", exactly()),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "taint-comes-later",
        [node(), offer(TWO), class_(), claim("c", exactly()), claim("d", exactly())],
        [
            pod("p", "c", at="a"),
            Changed("ResourceSlice", "@a", {"spec": {"devices": [device("gpu-0"), device("gpu-1", taints=[TAINT])]}}),
            pod("q", "d", refused=FULL),
        ],
        {"c": ["gpu=gpu-0"], "d": []},
    ),
)

POOLS = (
    Story(
        "incomplete-pool",
        [node(), offer(TWO, slices=2), class_(), claim("c", exactly(allocationMode="All"))],
        [pod("p", "c", refused="asks for all devices, but resource pool DRIVER/@a is currently being updated")],
        {"c": []},
    ),
    Story(
        "newest-generation",
        [
            node(),
            offer(devices("old"), name="one"),
            offer(devices("new"), name="two", generation=2),
            class_(),
            claim("c", exactly()),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=new"]},
    ),
    Story(
        "two-pools-of-a-node",
        [
            node(),
            offer(devices("gpu-0"), name="one", pool="@pool-1"),
            offer(devices("gpu-0"), name="two", pool="@pool-2"),
            class_(),
            claim("c", exactly(count=2)),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-0", "gpu=gpu-0"]},
    ),
    Story(
        "two-drivers",
        [
            node(),
            offer(devices("gpu-0"), name="gpus"),
            offer(devices("nic-0"), name="nics", driver="nic.DRIVER"),
            class_(),
            class_("nic", 'device.driver == "nic.DRIVER"'),
            claim("c", exactly(), exactly("nic", of="nic")),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-0", "nic=nic-0"]},
    ),
    Story(
        "pool-of-selected-nodes",
        [
            node("a"),
            node("b", rack="@1"),
            offer(
                devices("gpu-0"),
                name="rack",
                nodeSelector={
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["@1"]}]}]
                },
            ),
            class_(),
            claim("c", exactly()),
        ],
        [pod("p", "c", at="b")],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "pool-of-all-nodes",
        [
            node(),
            offer(devices("gpu-0"), name="net", allNodes=True),
            class_(),
            claim("c", exactly()),
            claim("d", exactly()),
        ],
        [pod("p", "c", at="a"), pod("q", "d", refused=FULL)],
        {"c": ["gpu=gpu-0"], "d": []},
    ),
    Story(
        "devices-that-select-nodes",
        [
            node("a"),
            node("b", rack="@1"),
            offer(
                [
                    device("gpu-0", {"mine": False}, nodeName="@a"),
                    device(
                        "gpu-1",
                        {"mine": True},
                        nodeSelector={
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["@1"]}]}
                            ]
                        },
                    ),
                ],
                name="mixed",
                perDeviceNodeSelection=True,
            ),
            class_(),
            claim("c", exactly("gpu", 'device.attributes["DRIVER"].mine')),
        ],
        [pod("p", "c", at="b")],
        {"c": ["gpu=gpu-1"]},
    ),
)

PARTITIONS = (
    Story(
        "whole-then-half",
        [node(), *PARTITIONED, class_(), claim("c", exactly("gpu", WHOLE)), claim("d", exactly("gpu", HALF))],
        [pod("p", "c", at="a"), pod("q", "d", refused=FULL)],
        {"c": ["gpu=whole"], "d": []},
    ),
    Story(
        "half-then-whole",
        [node(), *PARTITIONED, class_(), claim("c", exactly("gpu", HALF)), claim("d", exactly("gpu", WHOLE))],
        [pod("p", "c", at="a"), pod("q", "d", refused=FULL)],
        {"c": ["gpu=half-0"], "d": []},
    ),
    Story(
        "two-halves",
        [node(), *PARTITIONED, class_(), claim("c", exactly("gpu", HALF, count=2))],
        [pod("p", "c", at="a")],
        {"c": ["gpu=half-0", "gpu=half-1"]},
    ),
    Story(
        "any-part-twice",
        [node(), *PARTITIONED, class_(), claim("c", exactly(count=2))],
        [pod("p", "c", at="a")],
        {"c": ["gpu=half-0", "gpu=half-1"]},
    ),
)

SHARED = (
    Story(
        "shared-device",
        [node(), offer([_shared()]), class_(), *(claim(name, exactly(**_wants("4Gi"))) for name in "cde")],
        [pod("p", "c", at="a"), pod("q", "d", at="a"), pod("r", "e", refused=FULL)],
        {"c": ["gpu=gpu-0"], "d": ["gpu=gpu-0"], "e": []},
    ),
    Story(
        "shared-device-twice-in-a-claim",
        [
            node(),
            offer([_shared()]),
            class_(),
            claim("c", exactly("one", **_wants("5Gi")), exactly("two", **_wants("5Gi"))),
        ],
        [pod("p", "c", at="a")],
        {"c": ["one=gpu-0", "two=gpu-0"]},
    ),
    Story(
        "shared-without-a-policy",
        [node(), offer([_shared()]), class_(), claim("c", exactly()), claim("d", exactly(**_wants("1Gi")))],
        [pod("p", "c", at="a"), pod("q", "d", refused=FULL)],
        {"c": ["gpu=gpu-0"], "d": []},
    ),
    Story(
        "shared-by-default",
        [
            node(),
            offer([_shared(default="2Gi", validRange={"min": "2Gi", "step": "2Gi"})]),
            class_(),
            claim("c", exactly()),
            claim("d", exactly(**_wants("4Gi"))),
            claim("e", exactly(**_wants("6Gi"))),
        ],
        [pod("p", "c", at="a"), pod("q", "d", at="a"), pod("r", "e", refused=FULL)],
        {"c": ["gpu=gpu-0"], "d": ["gpu=gpu-0"], "e": []},
    ),
    Story(
        "shared-in-valid-sizes",
        [
            node(),
            offer([_shared(default="1Gi", validValues=["1Gi", "4Gi", "8Gi"])]),
            class_(),
            claim("c", exactly(**_wants("5Gi"))),
            claim("d", exactly(**_wants("2Gi"))),
        ],
        [pod("p", "c", at="a"), pod("q", "d", refused=FULL)],
        {"c": ["gpu=gpu-0"], "d": []},
    ),
    Story(
        "capacity-of-a-whole-device",
        [
            node(),
            offer([device("small", None, {"memory": "10Gi"}), device("large", None, {"memory": "80Gi"})]),
            class_(),
            claim("c", exactly(**_wants("40Gi"))),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=large"]},
    ),
)

ALONE = (
    Story(
        "node-comes-later",
        [class_(), offer(devices("gpu-0")), claim("c", exactly())],
        [pod("p", "c", refused="didn't match"), Created(node()), Decided("@p", "a")],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "unknown-counter",
        [
            node(),
            offer([device("gpu-0", consumesCounters=consumes(cores="1"))], name="parts", slices=2),
            offer(name="counters", slices=2, sharedCounters=counters(memory="40Gi")),
            class_(),
            claim("c", exactly()),
        ],
        [pod("p", "c", refused="1 invalid resource pools were encountered")],
        {"c": []},
    ),
)
"""Stories that would disturb other stories, so they are told after all others, one by one."""

STORIES = (*CONSTRAINTS, *ALTERNATIVES, *TAINTS, *POOLS, *PARTITIONS, *SHARED)
