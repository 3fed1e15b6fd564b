"""Stories of attributes that are lists, which need the feature gate DRAListTypeAttributes."""

from __future__ import annotations

from gangline_e2e.claims.building import (
    Attribute,
    Changed,
    Decided,
    Story,
    Version,
    claim,
    class_,
    device,
    exactly,
    node,
    offer,
    pod,
)
from gangline_e2e.workloads import Manifest

NONE_LEFT = "cannot allocate all claims"
OWN = 'device.attributes["DRIVER"]'


def _there(request: Manifest, *roots: list[Attribute] | Attribute, **spec: object) -> list[Manifest]:
    """One node with a device for each value of the attribute root, and a claim."""
    given = [device(f"gpu-{number}", {"root": each}) for number, each in enumerate(roots)]
    return [node(), offer(given), class_(), claim("one", request, **spec)]


def _two(**constraint: str) -> list[Manifest]:
    """The constraints of a claim."""
    return [{**constraint, "requests": ["gpu"]}]


STORIES = (
    Story(
        "list-includes",
        _there(exactly("gpu", f'{OWN}.root.includes("pci1")'), ["pci0"], ["pci1", "pci2"]),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-1"]},
    ),
    Story(
        "list-includes-scalar",
        _there(exactly("gpu", f'{OWN}.root.includes("pci1")'), ["pci0"], "pci1"),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-1"]},
    ),
    Story(
        "list-exists",
        _there(exactly("gpu", f"{OWN}.root.exists(each, each > 2)"), [1, 2], [2, 3]),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-1"]},
    ),
    Story(
        "list-versions",
        _there(
            exactly("gpu", f'{OWN}.root.exists(each, each.isGreaterThan(semver("2.0.0")))'),
            [Version("1.2.3")],
            [Version("1.2.3"), Version("2.1.0")],
        ),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-1"]},
    ),
    Story(
        "list-size",
        _there(exactly("gpu", f"size({OWN}.root) == 2 && {OWN}.root[1]"), [True], [False, True]),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-1"]},
    ),
    Story(
        "list-lacking",
        _there(exactly("gpu", f'{OWN}.root.includes("pci7")'), ["pci0"], ["pci1"]),
        [pod("p", "one", refused=NONE_LEFT)],
    ),
    Story(
        "list-fails",
        _there(exactly("gpu", f"{OWN}.root[5] == 1"), [1, 2]),
        [pod("p", "one", refused="index out of bounds: 5")],
    ),
    Story(
        "list-changes",
        _there(exactly("gpu", f"{OWN}.root.includes(7)"), [1, 2], [3]),
        [
            pod("p", "one", refused=NONE_LEFT),
            Changed("ResourceSlice", "@a", {"spec": {"devices": [device("gpu-0", {"root": [1, 7]})]}}),
            Decided("@p", at="a"),
        ],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "list-match-one",
        _there(exactly(count=1), ["pci0", "pci1"], constraints=_two(matchAttribute="DRIVER/root")),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-0"]},
    ),
    Story(
        "list-match-equal",
        _there(exactly(count=2), ["pci0"], ["pci0"], constraints=_two(matchAttribute="DRIVER/root")),
        [pod("p", "one", refused=NONE_LEFT)],
    ),
    Story(
        "list-match-scalars",
        _there(exactly(count=2), ["pci0"], "pci0", "pci0", constraints=_two(matchAttribute="DRIVER/root")),
        [pod("p", "one", at="a")],
        {"one": ["gpu=gpu-1", "gpu=gpu-2"]},
    ),
    Story(
        "list-distinct",
        _there(exactly(count=2), ["pci0"], ["pci1"], constraints=_two(distinctAttribute="DRIVER/root")),
        [pod("p", "one", refused=NONE_LEFT)],
    ),
)
