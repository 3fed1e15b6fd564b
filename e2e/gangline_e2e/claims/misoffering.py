"""Stories of drivers that publish what nobody expects: broken counters, pools that contradict themselves, odd names."""

from __future__ import annotations

from gangline_e2e.claims.building import (
    Changed,
    Created,
    Decided,
    Deleted,
    Story,
    claim,
    class_,
    consumes,
    counters,
    device,
    devices,
    exactly,
    node,
    offer,
    pod,
)
from gangline_e2e.workloads import Manifests

FULL, INVALID = "cannot allocate all claims", "1 invalid resource pools were encountered"
ONE, TWO = claim("one", exactly()), claim("two", exactly())


def _partitions(memory: str, *uses: str) -> Manifests:
    """A pool of so much memory, and of devices gpu-0, gpu-1, ... which use these parts of the memory."""
    parts = [device(f"gpu-{at}", consumesCounters=consumes(memory=each)) for at, each in enumerate(uses)]
    shared = counters(memory=memory)
    return [offer(parts, name="parts", slices=2), offer(name="counters", slices=2, sharedCounters=shared)]


STORIES = (
    Story(
        "consumes-too-much",
        [
            node(),
            *_partitions("40Gi", "80Gi"),
            class_(),
            ONE,
        ],
        [pod("p", "one", refused=FULL)],
        {"one": []},
    ),
    Story(
        "consumes-nothing",
        [
            node(),
            *_partitions("0", "0"),
            class_(),
            ONE,
        ],
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "consumes-negative",
        [
            node(),
            *_partitions("20Gi", "-40Gi", "40Gi"),
            class_(),
            claim("one", exactly(count=2)),
        ],
        [pod("p", "one", at="a")],
    ),
    Story(
        "counters-negative",
        [
            node(),
            *_partitions("-1", "0"),
            class_(),
            ONE,
        ],
        [pod("p", "one", refused=FULL)],
    ),
    Story(
        "counters-huge",
        [
            node(),
            *_partitions("11E", "6E", "6E"),
            class_(),
            ONE,
            TWO,
        ],
        [pod("p", "one", at="a"), pod("q", "two", refused=FULL)],
        {"one": ["gpu=gpu-0"], "two": []},
    ),
    Story(
        "counters-more-than-64-bits",
        [
            node(),
            *_partitions("11e30", "6e30", "6e30"),
            class_(),
            ONE,
            TWO,
        ],
        [pod("p", "one", at="a"), pod("q", "two", refused=FULL)],
    ),
    Story(
        "counters-fractions",
        [
            node(),
            *_partitions("0.3", "0.1", "200m", "1m"),
            class_(),
            claim("one", exactly(count=2)),
            TWO,
        ],
        [pod("p", "one", at="a"), pod("q", "two", refused=FULL)],
        {"one": ["gpu=gpu-0", "gpu=gpu-1"], "two": []},
    ),
    Story(
        "counters-shrink",
        [
            node(),
            *_partitions("3", "1", "1", "1"),
            class_(),
            claim("one", exactly(count=2)),
            TWO,
        ],
        [
            pod("p", "one", at="a"),
            Changed("ResourceSlice", "@counters", {"spec": {"sharedCounters": counters(memory="1")}}),
            pod("q", "two", refused=FULL),
            Changed("ResourceSlice", "@counters", {"spec": {"sharedCounters": counters(memory="3")}}),
            Decided("@q", at="a"),
        ],
        {"one": ["gpu=gpu-0", "gpu=gpu-1"], "two": ["gpu=gpu-2"]},
    ),
    Story(
        "counters-of-another-generation",
        [
            node(),
            offer([device("gpu-0", consumesCounters=consumes(memory="1"))], name="parts", slices=2, generation=2),
            offer(name="counters", slices=2, sharedCounters=counters(memory="1")),
            class_(),
            ONE,
        ],
        [
            pod("p", "one", refused=FULL),
            Created(offer(name="more", slices=2, generation=2, pool="@a", sharedCounters=counters(memory="1"))),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "counters-of-nobody",
        [
            node(),
            offer([device("gpu-0", consumesCounters=consumes(memory="1"))]),
            offer(devices("gpu-1"), at="b"),
            node("b"),
            class_(),
            ONE,
            TWO,
        ],
        [pod("q", "two", at="b"), pod("p", "one", refused=INVALID)],
        {"one": [], "two": ["gpu=gpu-1"]},
    ),
    Story(
        "one-name-twice",
        [
            node(),
            offer(devices("gpu-0"), name="one", slices=2),
            offer(devices("gpu-0"), name="two", slices=2),
            class_(),
            ONE,
        ],
        [
            pod("p", "one", refused=INVALID),
            Changed("ResourceSlice", "@two", {"spec": {"devices": devices("gpu-1")}}),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "half-published",
        [node(), offer(devices("gpu-0"), name="one", slices=2), class_(), ONE],
        [
            pod("p", "one", refused=FULL),
            Created(offer(devices("gpu-1"), name="two", pool="@a", slices=2)),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "more-slices-than-said",
        [node(), offer(devices("gpu-0"), name="one"), offer(devices("gpu-1"), name="two"), class_(), ONE],
        [pod("p", "one", refused=FULL)],
    ),
    Story(
        "generation-goes-back",
        [node(), offer(devices("gpu-5"), generation=5), class_(), ONE, TWO],
        [
            pod("p", "one", at="a"),
            Deleted("ResourceSlice", "@a"),
            Created(offer(devices("gpu-5", "gpu-1"), name="old", pool="@a", generation=1)),
            pod("q", "two", at="a"),
        ],
        {"one": ["gpu=gpu-5"], "two": ["gpu=gpu-1"]},
    ),
    Story(
        "generation-is-set-back",
        [node(), offer(devices("gpu-5"), generation=5), class_(), ONE],
        [
            Changed("ResourceSlice", "@a", {"spec": {"pool": {"generation": 1}, "devices": devices("gpu-1")}}),
            pod("p", "one", at="a"),
        ],
        {"one": ["gpu=gpu-1"]},
    ),
    Story(
        "device-becomes-another",
        [
            node(),
            offer([device("gpu-0", {"size": 1}), device("gpu-1", {"size": 1})]),
            class_(),
            ONE,
            claim("two", exactly("gpu", 'device.attributes["DRIVER"].size == 2')),
        ],
        [
            pod("p", "one", at="a"),
            pod("q", "two", refused=FULL),
            Changed("ResourceSlice", "@a", {"spec": {"devices": [device("gpu-0", {"size": 2})]}}),
            pod("r", "two", refused=FULL),
            Deleted("Pod", "@p"),
            Decided("@r", at="a"),
        ],
        {"one": [], "two": ["gpu=gpu-0"]},
    ),
    Story(
        "names",
        [
            node(),
            offer(
                [device("0-9", {"A_b9": "x", "vendor.example.com/Z__": "Ä 😀 \\ \" '"})],
                pool="x.y/0/z-z.9",
                name="odd",
                driver="0.DRIVER",
            ),
            class_("gpu", 'device.driver == "0.DRIVER"'),
            claim(
                "one",
                exactly(
                    "gpu",
                    'device.attributes["vendor.example.com"].Z__ == "Ä 😀 \\\\ \\" \'"',
                    'device.attributes["0.DRIVER"].A_b9 == "x"',
                ),
            ),
        ],
        [pod("p", "one", at="a")],
        {"one": ["gpu=0-9"]},
    ),
    Story(
        "more-than-a-claim-may-have",
        [node(), offer(devices(*(f"gpu-{at}" for at in range(33)))), class_(), claim("one", exactly(count=33))],
        [pod("p", "one", refused="one: number of requested devices 33 exceeds the claim limit of 32")],
        {"one": []},
    ),
    Story(
        "many-and-long",
        [
            node(),
            offer(
                [
                    device(
                        f"gpu-{at:03}-" + "x" * 55, {f"a{n:02}" + "b" * 29: "v" * 60 + f"{at:04}" for n in range(32)}
                    )
                    for at in range(128)
                ]
            ),
            class_(),
            claim("one", exactly("gpu", f'device.attributes["DRIVER"].a31{"b" * 29} == "{"v" * 60}0127"')),
        ],
        [pod("p", "one", at="a")],
        {"one": [f"gpu=gpu-127-{'x' * 55}"]},
    ),
)

ALONE = (
    Story(
        "node-goes",
        [node(), offer(devices("gpu-0")), class_(), ONE],
        [
            pod("p", "one", at="a"),
            Deleted("Node", "@a"),
            pod("q", "one", refused="node"),
            Created(node()),
            Decided("@q", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "node-is-not-there",
        [node(), offer(devices("gpu-0"), at="z"), class_(), ONE],
        [pod("p", "one", refused=FULL), Created(node("z")), Decided("@p", at="z")],
        {"one": ["gpu=gpu-0"]},
    ),
)
"""Stories that change the number of nodes, which messages name: they are told after all others, one by one."""
