"""What a request asks for: kinds of pods with their numbers, owners, and a name that follows from the gang."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangline import PodGroup, PodInfo, model
from gangline.testing import cluster, make_node, make_pod
from gangline_plugins.provisioning import ProvisioningArgs
from gangline_plugins.provisioning.asking import (
    MOST_KINDS,
    base_name,
    fault_of,
    kinds_of,
    owners_of,
    request_of,
    templates_of,
)

CACHE = cluster([make_node("a")])
GROUP = PodGroup("default", "Train_1", "test", 2)


def pod(name: str, gpus: int = 1, owner: str = "", **fields: Any) -> PodInfo:
    made = make_pod(name, gpus=gpus, **fields)
    if owner:
        made.metadata.owner_references = [model.OwnerReference("Job", owner, f"uid-{owner}", "batch/v1", True)]
    return CACHE.record(made)


def names_of(pods: Sequence[PodInfo], group: PodGroup = GROUP, profile: str = "p") -> str:
    return base_name(profile, group, kinds_of(pods))


def test_like_pods_are_counted_together() -> None:
    kinds = kinds_of([pod("a"), pod("b", gpus=2), pod("c"), pod("d")])

    assert sorted((len(kind.pods), kind.pods[0].cls.requests.real["nvidia.com/gpu"]) for kind in kinds) == [
        (1, 2),
        (3, 1),
    ]


def test_templates_have_the_labels_that_all_pods_share_and_belong_to_the_request() -> None:
    kinds = kinds_of([pod("a", labels={"app": "x", "rank": "0"}), pod("b", labels={"app": "x", "rank": "1"})])
    request = request_of("p", GROUP, kinds, 3, ProvisioningArgs(parameters={"ValidUntilSeconds": "600"}))
    request.metadata.uid = "uid-request"

    (template,) = templates_of(request, kinds)

    assert template.template.metadata.labels == {"app": "x"}
    assert template.metadata.name == request.spec.pod_sets[0].pod_template_ref.name == f"{request.metadata.name}-0"
    assert [owner.uid for owner in template.metadata.owner_references] == ["uid-request"]
    assert request.metadata.name.startswith("train-1-") and request.metadata.name.endswith("-3")
    assert request.spec.parameters == {"ValidUntilSeconds": "600"}
    assert not template.template.spec.node_name


def test_the_name_is_the_same_for_the_same_gang_and_another_for_any_other() -> None:
    pods = [pod("a", owner="job"), pod("b", owner="job")]
    others = [
        names_of([*pods, pod("c", owner="job")]),
        names_of([pod("a", owner="again"), pod("b", owner="again")]),
        names_of([pod("a", gpus=2, owner="job"), pod("b", gpus=2, owner="job")]),
        names_of(pods, PodGroup("other", "Train_1", "test", 2)),
        names_of(pods, profile="q"),
    ]

    assert names_of(pods) == names_of(list(reversed(pods)))
    assert len({names_of(pods), *others}) == 6


def test_a_request_goes_with_the_gangs_object_or_the_controllers_or_the_pods() -> None:
    object_ = model.TypedReference("PodGroup", "default", "g", "uid-g", "scheduling.x-k8s.io/v1alpha1")
    with_object = PodGroup("default", "g", "test", 2, object=object_)
    controlled = [pod("a", owner="job"), pod("b", owner="job"), pod("c", owner="other")]

    assert [owner.uid for owner in owners_of(with_object, controlled)] == ["uid-g"]
    assert [owner.uid for owner in owners_of(GROUP, controlled)] == ["uid-job", "uid-other"]
    assert [(owner.kind, owner.name) for owner in owners_of(GROUP, [pod("a"), pod("b")])] == [
        ("Pod", "a"),
        ("Pod", "b"),
    ]


def claimed(name: str) -> PodInfo:
    volume = model.Volume("data", persistent_volume_claim=model.ClaimVolume(name))
    return pod(name, volumes=[volume])


def test_pods_with_volumes_of_their_own_are_one_kind_if_there_are_too_many() -> None:
    few, many = ([claimed(f"p-{number}") for number in range(size)] for size in (MOST_KINDS, MOST_KINDS + 1))

    assert len(kinds_of(few)) == MOST_KINDS
    assert [len(kind.pods) for kind in kinds_of(many)] == [MOST_KINDS + 1]


def test_more_kinds_than_a_request_takes_are_refused_with_a_reason() -> None:
    pods = [pod(f"p-{number}", gpus=number + 1) for number in range(MOST_KINDS + 1)]

    assert fault_of(kinds_of(pods)) == "its pods are of 33 kinds, and a ProvisioningRequest asks for at most 32"
    assert fault_of(kinds_of(pods[:-1])) == ""
