"""The claims of a pod: those that it names, and those that were made for it from templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gangline import PodClass, PodInfo, model

MOST_CLAIMS = 32
"""Entries of spec.resourceClaims that are read; the API takes no more."""
MOST_CONSUMERS = 256
"""Consumers of one claim; the API takes no more."""
_MOST_KNOWN = 4096
"""Pods whose claims are kept."""
ADMIN_LABEL = "resource.kubernetes.io/admin-access"
"""The label of a namespace whose claims may observe devices that others have."""

GROUP_API = "scheduling.k8s.io"
"""The API group of the PodGroups of Kubernetes."""

Claims = list[model.ResourceClaim]


class ClaimProblem(Exception):
    """A claim of a pod cannot be used; the text says why."""


def uses_claims(cls: PodClass) -> bool:
    """Whether pods of this class have claims."""
    return bool(cls.spec.resource_claims)


def names_of(pod: PodInfo) -> list[str]:
    """The names of the claims of a pod, each once. Raises ClaimProblem if one is not created yet, or has no name."""
    entries = pod.cls.spec.resource_claims
    if len(entries) > MOST_CLAIMS:
        raise ClaimProblem(f"the pod has {len(entries)} claims, and at most {MOST_CLAIMS} are read")
    names: dict[str, None] = {}
    for entry in entries:
        if entry.resource_claim_name:
            names[entry.resource_claim_name] = None
        elif not entry.resource_claim_template_name:
            raise ClaimProblem(f'pod claim "{entry.name}": none of the supported fields are set')
        elif entry.name not in pod.claims:
            raise ClaimProblem(f'pod "{pod.key}": ResourceClaim not created yet')
        elif name := pod.claims[entry.name]:
            names[name] = None
    return list(names)


def claims_of(pod: PodInfo, store: Any, group: str = "") -> Claims:
    """The claims of a pod in the store of claims; `group` as in `check`. Raises ClaimProblem if one cannot be used."""
    found = []
    for name in names_of(pod):
        claim: model.ResourceClaim | None = store.get(name, pod.namespace)
        if claim is None:
            raise ClaimProblem(f'resourceclaim "{name}" not found')
        check(pod, claim, group)
        found.append(_to_come(claim) if pod.is_anew and is_made_for(pod, claim) else claim)
    return found


def _to_come(claim: model.ResourceClaim) -> model.ResourceClaim:
    """The claim of a replacement pod that is yet to be created: the claim of the replaced pod, without devices."""
    metadata = msgspec.structs.replace(claim.metadata, uid=f"{claim.metadata.uid}/anew")
    return msgspec.structs.replace(claim, metadata=metadata, status=type(claim.status)())


class PodClaims:
    """`claims_of`, read once for a pod as long as no claim changes: a decision asks for the claims several times."""

    def __init__(self, store: Any, group_of: Callable[[PodInfo], str] = lambda pod: "") -> None:
        """`group_of` names the PodGroup whose claims a pod may use besides its own."""
        self._store = store
        self._group_of = group_of
        self._version = -1
        self._known: dict[str, tuple[PodInfo, str, Claims]] = {}

    def of(self, pod: PodInfo) -> Claims:
        """The claims of a pod. Raises ClaimProblem if one of them cannot be used."""
        if self._version != self._store.version:
            self._known.clear()
            self._version = self._store.version
        known, group = self._known.get(pod.uid), self._group_of(pod)
        if known is not None and known[0] is pod and known[1] == group:
            return known[2][:]
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        found = claims_of(pod, self._store, group)
        self._known[pod.uid] = pod, group, found
        return found[:]


def check(pod: PodInfo, claim: model.ResourceClaim, group: str = "") -> None:
    """Raise ClaimProblem if the pod cannot use the claim. The pod may use those made for the PodGroup `group`, too."""
    name = claim.metadata.name
    is_owned = is_made_for(pod, claim)
    if claim.metadata.deletion_timestamp is not None and not (is_owned and pod.is_anew):
        raise ClaimProblem(f'resourceclaim "{name}" is being deleted')
    if is_owned or any([each.resource_claim_name == name for each in pod.cls.spec.resource_claims]):
        return
    if not group:
        raise ClaimProblem(f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.key} (Pod is not owner)")
    if not any(_is_group(each, group) for each in claim.metadata.owner_references):
        owners = f"neither Pod nor PodGroup {group} is the owner"
        raise ClaimProblem(f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.key} ({owners})")


def is_made_for(pod: PodInfo, claim: model.ResourceClaim) -> bool:
    """Whether the claim was made for this pod, or for the pod that this one is to replace."""
    return any([each.uid == pod.origin for each in claim.metadata.owner_references])


def _is_group(owner: model.OwnerReference, name: str) -> bool:
    """Whether an owner is the PodGroup of that name. Names are compared, because a pod does not know the UID."""
    is_one = owner.kind == "PodGroup" and owner.api_version.partition("/")[0] == GROUP_API
    return bool(owner.controller) and is_one and owner.name == name


def lacks_admin_access(claim: model.ResourceClaim, namespace: Any) -> bool:
    """Whether the claim asks for admin access, to observe devices of others, and its namespace does not allow it.

    As the API server does, this lets a claim keep the devices that it was given while the namespace allowed it.
    """
    if claim.status.allocation is not None:
        return False
    asks = any([each.exactly is not None and each.exactly.admin_access for each in claim.spec.devices.requests])
    labels = namespace.metadata.labels if namespace is not None else None
    return asks and (labels or {}).get(ADMIN_LABEL) != "true"
