"""Stories of extended resources that classes of devices serve: pods without claims get devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline_e2e.claims.building import (
    Created,
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
from gangline_e2e.workloads import IMAGE, Manifest

NAME, OTHER = "DRIVER/device", "DRIVER/other"
IMPLICIT = "deviceclass.resource.kubernetes.io/@gpu"
FULL = "cannot allocate all claims"
ONE, TWO, THREE = devices("gpu-0"), devices("gpu-0", "gpu-1"), devices("gpu-0", "gpu-1", "gpu-2")


def container(name: str, amounts: Mapping[str, str], **more: Any) -> Manifest:
    """A container with limits."""
    return {"name": name, "image": IMAGE, "resources": {"limits": dict(amounts)}, **more}


def asking(name: str, *containers: Manifest, at: str = "", refused: str = "", **spec: Any) -> Created:
    """A pod with such containers."""
    return pod(name, at=at, refused=refused, containers=list(containers), **spec)


def one(name: str, count: int = 1, resource: str = NAME, at: str = "", refused: str = "") -> Created:
    """A pod with one container that requests so much of one resource."""
    return asking(name, container("main", {resource: str(count)}), at=at, refused=refused)


def advertising(name: str, amounts: Mapping[str, str]) -> Manifest:
    """A node with device plugins."""
    made = node(name)
    for field in ("capacity", "allocatable"):
        made["status"][field] = {**made["status"][field], **amounts}
    return made


def serving(name: str = "gpu", resource: str = NAME) -> Manifest:
    """A class that serves a resource."""
    return class_(name, extendedResourceName=resource)


STORIES = (
    Story(
        "extended-one",
        [node(), offer(TWO), serving()],
        [one("p", at="a")],
        {"p/extended": ["container-0-request-0=gpu-0"]},
    ),
    Story(
        "extended-implicit",
        [node(), offer(TWO), class_()],
        [one("p", 2, IMPLICIT, at="a")],
        {"p/extended": ["container-0-request-0=gpu-0", "container-0-request-0=gpu-1"]},
    ),
    Story("extended-too-many", [node(), offer(TWO), serving()], [one("p", 3, refused=FULL)]),
    Story(
        "extended-node-with-room",
        [node("a"), node("b"), offer(ONE), offer(TWO, at="b"), serving()],
        [one("p", 2, at="b")],
        {"p/extended": ["container-0-request-0=gpu-0", "container-0-request-0=gpu-1"]},
    ),
    Story(
        "extended-come-free",
        [node(), offer(ONE), serving()],
        [one("p", at="a"), one("q", refused=FULL), Deleted("Pod", "@p"), Decided("@q", at="a")],
    ),
    Story("extended-plugin-wins", [advertising("a", {NAME: "2"}), offer(ONE), serving()], [one("p", 2, at="a")]),
    Story(
        "extended-plugin-full",
        [advertising("a", {NAME: "2"}), offer(THREE), serving()],
        [one("p", 3, refused="Insufficient")],
    ),
    Story(
        "extended-each-node-its-own",
        [advertising("a", {NAME: "1"}), offer(TWO), serving(), class_("other", extendedResourceName=OTHER)],
        [asking("p", container("main", {NAME: "1", OTHER: "1", "cpu": "1"}), at="a")],
        {"p/extended": ["container-0-request-2=gpu-0"]},
    ),
    Story(
        "extended-containers",
        [node(), offer(THREE), serving()],
        [asking("p", container("one", {NAME: "1", "cpu": "1"}), container("two", {"cpu": "1", NAME: "2"}), at="a")],
        {
            "p/extended": [
                "container-0-request-1=gpu-0",
                "container-1-request-1=gpu-1",
                "container-1-request-1=gpu-2",
            ]
        },
    ),
    Story(
        "extended-init-containers",
        [node(), offer(devices(*(f"gpu-{number}" for number in range(8)))), serving()],
        [
            asking(
                "p",
                container("main", {NAME: "1"}),
                at="a",
                initContainers=[
                    container("first", {NAME: "3"}),
                    container("sidecar", {NAME: "2"}, restartPolicy="Always"),
                    container("last", {NAME: "4"}),
                ],
            )
        ],
    ),
    Story(
        "extended-beside-a-claim",
        [node(), offer(THREE), serving(), claim("c", exactly(count=2))],
        [pod("p", "c", at="a", containers=[container("main", {NAME: "1"})])],
        {"c": ["gpu=gpu-0", "gpu=gpu-1"], "p/extended": ["container-0-request-0=gpu-2"]},
    ),
    Story(
        "extended-two-names",
        [node(), offer(THREE), serving()],
        [asking("p", container("main", {NAME: "1", IMPLICIT: "2"}), at="a")],
    ),
    Story(
        "extended-two-names-too-many",
        [node(), offer(TWO), serving()],
        [asking("p", container("main", {NAME: "1", IMPLICIT: "2"}), refused=FULL)],
    ),
)
