"""Stories of claims of PodGroups, which need DRAWorkloadResourceClaims and GenericWorkload."""

from __future__ import annotations

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
    template,
)
from gangline_e2e.workloads import Manifest

NONE_LEFT = "cannot allocate all claims"


def group(*claims: str, templates: tuple[str, ...] = (), least: int = 0, name: str = "g") -> Manifest:
    """A PodGroup with claims, and claims made from templates; a gang with `least` members."""
    entries = [
        *({"name": each, "resourceClaimName": f"@{each}"} for each in claims),
        *({"name": each, "resourceClaimTemplateName": f"@{each}"} for each in templates),
    ]
    policy = {"gang": {"minCount": least}} if least else {"basic": {}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": f"@{name}"},
        "spec": {"schedulingPolicy": policy, "resourceClaims": entries},
    }


def member(name: str, *claims: str, **more: Any) -> Created:
    """A step: a pod of the PodGroup comes."""
    return pod(name, *claims, schedulingGroup={"podGroupName": "@g"}, **more)


def _there(*more: Manifest) -> list[Manifest]:
    """Two nodes, and one device on the first."""
    return [node(), node("b"), offer(devices("gpu-0")), class_(), *more]


ONE = claim("one", exactly())
HAS = {"one": ["gpu=gpu-0"]}

STORIES = (
    Story(
        "group-shares",
        _there(ONE, group("one")),
        [member("p", "one", at="a"), member("q", "one", at="a")],
        HAS,
    ),
    Story(
        "group-gang",
        [node(), offer(devices("gpu-0")), class_(), ONE, group("one", least=2)],  # kube-scheduler v1.36 uses any node
        [member("p", "one"), member("q", "one", at="a"), Decided("@p", at="a")],
        HAS,
    ),
    Story(
        "group-template",
        _there(template("one", exactly()), group(templates=("one",))),
        [member("p", templates=["one"], at="a"), member("q", templates=["one"], at="a")],
        {"g/one": ["gpu=gpu-0"]},
    ),
    Story(
        "group-other-claim",
        _there(ONE, claim("two", exactly()), group("two")),
        [member("p", "one", at="a"), member("q", "one", at="a")],
        HAS,
    ),
    Story(
        "group-no-claims",
        _there(ONE, group()),
        [member("p", "one", at="a")],
        HAS,
    ),
    Story(
        "group-and-pod",
        _there(ONE, group("one")),
        [member("p", "one", at="a"), pod("q", "one", at="a")],
        HAS,
    ),
    Story(
        "group-keeps",
        _there(ONE, claim("two", exactly()), group("one")),
        [
            member("p", "one", at="a"),
            Deleted("Pod", "@p"),
            pod("q", "two", refused=NONE_LEFT),
            member("r", "one", at="a"),
        ],
        {"one": ["gpu=gpu-0"], "two": []},
    ),
    Story(
        "group-goes",
        _there(ONE, claim("two", exactly()), group("one")),
        [
            member("p", "one", at="a"),
            pod("q", "two", refused=NONE_LEFT),
            Deleted("Pod", "@p"),
            Deleted("PodGroup", "@g"),
            Decided("@q", at="a"),
        ],
        {"one": [], "two": ["gpu=gpu-0"]},
    ),
    Story(
        "group-too-much",
        _there(ONE, claim("two", exactly(count=2)), group("two")),
        [member("p", "two"), member("q", "two"), pod("r", "one", at="a")],
        {"one": ["gpu=gpu-0"], "two": []},
    ),
)
