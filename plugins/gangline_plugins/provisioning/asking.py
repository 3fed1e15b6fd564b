"""Makes the ProvisioningRequest of a gang, with its PodTemplates. No I/O.

The name of a request follows from the gang, from how many pods of which kinds wait, and from the number of the attempt:
whoever asks for the same makes an object of the same name, so there is one. A gang of other pods, or of another size,
has another request.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from gangline import PodGroup, PodInfo, custom_resources, model, resources
from gangline_plugins.provisioning.arguments import ProvisioningArgs

MOST_KINDS = 32
"""Entries of spec.podSets, as the CRD allows them."""
MOST_ALIKE = 16_384
"""Pods of one entry, as the CRD allows them."""
_MOST_OWNERS = 16
_MOST_OF_NAME = 40
_OTHER = re.compile("[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class GangPodKind:
    """Pods of a gang that need the same."""

    spec: model.PodSpec
    pods: tuple[PodInfo, ...]

    def labels(self) -> dict[str, str]:
        """The labels that all of the pods have."""
        common = dict(self.pods[0].labels)
        for pod in self.pods[1:]:
            if pod.labels is not self.pods[0].labels:
                common = {key: value for key, value in common.items() if pod.labels.get(key) == value}
        return common


def kinds_of(pods: Iterable[PodInfo]) -> Sequence[GangPodKind]:
    """The kinds of pods, one for each spec; if these are too many, one for each spec without its volumes."""
    by_class: dict[int, list[PodInfo]] = {}
    for pod in pods:
        by_class.setdefault(pod.cls.id, []).append(pod)
    kinds = _merged(by_class.values(), with_volumes=True)
    return kinds if len(kinds) <= MOST_KINDS else _merged(by_class.values(), with_volumes=False)


def _merged(groups: Iterable[list[PodInfo]], with_volumes: bool) -> Sequence[GangPodKind]:
    found: dict[bytes, tuple[model.PodSpec, list[PodInfo]]] = {}
    for pods in groups:
        spec = pods[0].spec if with_volumes else msgspec.structs.replace(pods[0].spec, volumes=[])
        key = msgspec.json.encode(spec, order="deterministic")
        found.setdefault(key, (spec, []))[1].extend(pods)
    return [GangPodKind(spec, tuple(pods)) for _, (spec, pods) in sorted(found.items())]


def fault_of(kinds: Sequence[GangPodKind]) -> str:
    """Why no request can ask for these pods; "" if one can."""
    if len(kinds) > MOST_KINDS:
        return f"its pods are of {len(kinds)} kinds, and a ProvisioningRequest asks for at most {MOST_KINDS}"
    most = max((len(kind.pods) for kind in kinds), default=0)
    if most > MOST_ALIKE:
        return f"it has {most} like pods, and a ProvisioningRequest asks for at most {MOST_ALIKE}"
    return ""


def base_name(profile: str, group: PodGroup, kinds: Sequence[GangPodKind]) -> str:
    """The name of all requests for these pods of a gang, up to the number of the attempt."""
    pods = [pod for kind in kinds for pod in kind.pods]
    shape = sorted((len(kind.pods), sorted(kind.pods[0].cls.requests.real.items())) for kind in kinds)
    identity = [profile, group.key, sorted({owner.uid for owner in owners_of(group, pods)}), shape]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:10]
    words = _OTHER.sub("-", group.name.lower())[:_MOST_OF_NAME].strip("-")
    return f"{words or 'gang'}-{digest}"


def owners_of(group: PodGroup, pods: Sequence[PodInfo]) -> Sequence[model.OwnerReference]:
    """The objects with which a request goes: the gang's own, else the controllers of its pods, else the pods."""
    own = group.object
    if own is not None and own.uid and own.namespace == group.namespace:
        return [model.OwnerReference(own.kind, own.name, own.uid, own.api_version)]
    controllers = {owner.uid: owner for pod in pods if (owner := pod.controller) is not None}
    if controllers:
        return [
            model.OwnerReference(each.kind, each.name, each.uid, each.api_version)
            for each in list(controllers.values())[:_MOST_OWNERS]
        ]
    return [model.OwnerReference("Pod", pod.name, pod.uid, resources.PODS.api_version) for pod in pods[:_MOST_OWNERS]]


def request_of(
    profile: str, group: PodGroup, kinds: Sequence[GangPodKind], attempt: int, args: ProvisioningArgs
) -> model.ProvisioningRequest:
    """The request for these pods of a gang."""
    name = f"{base_name(profile, group, kinds)}-{attempt}"
    pods = [pod for kind in kinds for pod in kind.pods]
    metadata = model.ObjectMeta(
        name,
        group.namespace,
        labels={custom_resources.PROVISIONING: "true"},
        annotations={
            custom_resources.PROVISIONING_GANG: group.key,
            custom_resources.PROVISIONING_PROFILE: profile,
            custom_resources.PROVISIONING_ATTEMPT: str(attempt),
        },
        owner_references=list(owners_of(group, pods)),
    )
    pod_sets = [
        model.ProvisioningPodSet(model.LocalName(f"{name}-{number}"), len(kind.pods))
        for number, kind in enumerate(kinds)
    ]
    spec = model.ProvisioningRequestSpec(args.provisioning_class_name, pod_sets, dict(args.parameters) or None)
    return model.ProvisioningRequest(metadata, spec)


def templates_of(request: model.ProvisioningRequest, kinds: Sequence[GangPodKind]) -> Sequence[model.PodTemplateObject]:
    """The PodTemplates that a request names; they go with it, so it must be stored already."""
    owner = model.OwnerReference(
        request.kind, request.metadata.name, request.metadata.uid, request.api_version, controller=True
    )
    found = []
    for pod_set, kind in zip(request.spec.pod_sets, kinds, strict=False):
        metadata = model.ObjectMeta(
            pod_set.pod_template_ref.name,
            request.metadata.namespace,
            labels={custom_resources.PROVISIONING: "true"},
            owner_references=[owner],
        )
        content = model.PodTemplateContent(model.ObjectMeta(labels=kind.labels() or None), kind.spec)
        found.append(model.PodTemplateObject(metadata, content))
    return found
