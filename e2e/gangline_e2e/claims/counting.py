"""Stories of how many devices a claim asks for, who shares them, and when they come free."""

from __future__ import annotations

from gangline_e2e.claims.building import (
    Changed,
    Created,
    Decided,
    Deleted,
    Story,
    allocated,
    claim,
    class_,
    device,
    devices,
    exactly,
    node,
    offer,
    pod,
    template,
)

TWO = devices("gpu-0", "gpu-1")
FULL = "cannot allocate all claims"

STORIES = (
    Story(
        "one-device",
        [node(), offer(TWO), class_(), claim("c", exactly())],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "two-devices",
        [node(), offer(devices("gpu-0", "gpu-1", "gpu-2")), class_(), claim("c", exactly(count=2))],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-0", "gpu=gpu-1"]},
    ),
    Story(
        "too-many",
        [node(), offer(TWO), class_(), claim("c", exactly(count=3))],
        [pod("p", "c", refused=FULL)],
        {"c": []},
    ),
    Story(
        "node-with-room",
        [node("a"), node("b"), offer(devices("gpu-0")), offer(TWO, at="b"), class_(), claim("c", exactly(count=2))],
        [pod("p", "c", at="b")],
        {"c": ["gpu=gpu-0", "gpu=gpu-1"]},
    ),
    Story(
        "two-requests",
        [node(), offer(TWO), class_(), claim("c", exactly("one"), exactly("two"))],
        [pod("p", "c", at="a")],
        {"c": ["one=gpu-0", "two=gpu-1"]},
    ),
    Story(
        "two-claims",
        [node(), offer(TWO), class_(), claim("c", exactly()), claim("d", exactly())],
        [pod("p", "c", "d", at="a")],
        {"c": ["gpu=gpu-0"], "d": ["gpu=gpu-1"]},
    ),
    Story(
        "claims-of-one-pod-compete",
        [node(), offer(TWO), class_(), claim("c", exactly()), claim("d", exactly(count=2))],
        [pod("p", "c", "d", refused=FULL)],
        {"c": [], "d": []},
    ),
    Story(
        "next-pod-next-device",
        [node(), offer(TWO), class_(), *(claim(name, exactly()) for name in "cde")],
        [pod("p", "c", at="a"), pod("q", "d", at="a"), pod("r", "e", refused=FULL)],
        {"c": ["gpu=gpu-0"], "d": ["gpu=gpu-1"], "e": []},
    ),
    Story(
        "all-devices",
        [node(), offer(devices("gpu-0", "gpu-1", "gpu-2")), class_(), claim("c", exactly(allocationMode="All"))],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-0", "gpu=gpu-1", "gpu=gpu-2"]},
    ),
    Story(
        "all-but-one-is-taken",
        [node(), offer(TWO), class_(), claim("c", exactly()), claim("d", exactly(allocationMode="All"))],
        [pod("p", "c", at="a"), pod("q", "d", refused=FULL)],
        {"c": ["gpu=gpu-0"], "d": []},
    ),
    Story(
        "all-of-none",
        [
            node(),
            offer(TWO),
            class_(),
            class_("other", 'device.driver == "other.DRIVER"'),
            claim("c", exactly(of="other", allocationMode="All")),
        ],
        [pod("p", "c", refused=FULL)],
        {"c": []},
    ),
    Story(
        "all-that-a-selector-admits",
        [
            node(),
            offer([device("gpu-0", {"big": False}), device("gpu-1", {"big": True}), device("gpu-2", {"big": True})]),
            class_(),
            claim("c", exactly("gpu", 'device.attributes["DRIVER"].big', allocationMode="All"), exactly("rest")),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-1", "gpu=gpu-2", "rest=gpu-0"]},
    ),
    Story(
        "all-over-two-slices",
        [
            node(),
            offer(devices("gpu-0"), name="one", slices=2),
            offer(devices("gpu-1"), name="two", slices=2),
            class_(),
            claim("c", exactly(allocationMode="All")),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-0", "gpu=gpu-1"]},
    ),
    Story(
        "shared-claim",
        [node("a"), node("b"), offer(devices("gpu-0")), class_(), claim("c", exactly())],
        [pod("p", "c", at="a"), pod("q", "c", at="a")],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "shared-claim-elsewhere",
        [node("a"), node("b", side="b"), offer(devices("gpu-0")), class_(), claim("c", exactly())],
        [
            pod("p", "c", at="a"),
            pod("q", "c", nodeSelector={"side": "b"}, refused="resourceclaim not available on the node"),
        ],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "claim-of-a-template",
        [node(), offer(TWO), class_(), template("t", exactly())],
        [pod("p", templates=["t"], at="a"), pod("q", templates=["t"], at="a")],
        {"p/t": ["gpu=gpu-0"], "q/t": ["gpu=gpu-1"]},
    ),
    Story(
        "claims-of-two-kinds",
        [node(), offer(TWO), class_(), template("t", exactly()), claim("c", exactly())],
        [pod("p", "c", templates=["t"], at="a")],
        {"c": ["gpu=gpu-0"], "p/t": ["gpu=gpu-1"]},
    ),
    Story(
        "free-after-deletion",
        [node(), offer(devices("gpu-0")), class_(), template("t", exactly())],
        [pod("p", templates=["t"], at="a"), Deleted("Pod", "@p"), pod("q", templates=["t"], at="a")],
        {"q/t": ["gpu=gpu-0"]},
    ),
    Story(
        "kept-by-a-claim-without-pods",
        [node(), offer(devices("gpu-0")), class_(), claim("c", exactly()), claim("d", exactly())],
        [pod("p", "d", refused=FULL)],
        {"c": ["gpu=gpu-0"], "d": []},
        [allocated("c", "gpu-0")],
    ),
    Story(
        "allocated-by-others",
        [node("a"), node("b"), offer(TWO), offer(TWO, at="b"), class_(), claim("c", exactly())],
        [pod("p", "c", at="b")],
        {"c": ["gpu=gpu-1"]},
        [allocated("c", "gpu-1", at="b")],
    ),
    Story(
        "claim-comes-later",
        [node(), offer(devices("gpu-0")), class_()],
        [pod("p", "c"), Created(claim("c", exactly())), Decided("@p", at="a")],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "class-comes-later",
        [node(), offer(TWO), claim("c", exactly())],
        [pod("p", "c", refused="request gpu: device class @gpu does not exist"), Created(class_()), Decided("@p", "a")],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "slice-comes-later",
        [node(), class_(), claim("c", exactly())],
        [pod("p", "c", refused=FULL), Created(offer(TWO)), Decided("@p", "a")],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "admin-sees-what-is-taken",
        [
            node(),
            offer(devices("gpu-0")),
            class_(),
            claim("c", exactly()),
            claim("d", exactly(adminAccess=True)),
            claim("e", exactly(allocationMode="All", adminAccess=True)),
        ],
        [pod("p", "c", at="a"), pod("q", "d", at="a"), pod("r", "e", at="a")],
        {"c": ["gpu=gpu-0"], "d": ["gpu=gpu-0"], "e": ["gpu=gpu-0"]},
    ),
    Story(
        "admin-takes-nothing",
        [node(), offer(devices("gpu-0")), class_(), claim("c", exactly(adminAccess=True)), claim("d", exactly())],
        [pod("p", "c", at="a"), pod("q", "d", at="a")],
        {"c": ["gpu=gpu-0"], "d": ["gpu=gpu-0"]},
    ),
    Story(
        "configuration-goes-along",
        [
            node(),
            offer(devices("gpu-0")),
            class_(config=[{"opaque": {"driver": "DRIVER", "parameters": {"of": "class"}}}]),
            claim(
                "c",
                exactly(),
                config=[{"requests": ["gpu"], "opaque": {"driver": "DRIVER", "parameters": {"of": "claim"}}}],
            ),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-0"]},
    ),
    Story(
        "devices-go-away",
        [node(), offer(TWO), class_(), claim("c", exactly()), claim("d", exactly(count=2))],
        [
            pod("p", "c", at="a"),
            Changed("ResourceSlice", "@a", {"spec": {"devices": devices("gpu-1")}}),
            pod("q", "d", refused=FULL),
        ],
        {"c": ["gpu=gpu-0"], "d": []},
    ),
)
