"""The claims of a pod: those that it names, and those that were made for it from templates."""

from __future__ import annotations

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

Claims = list[model.ResourceClaim]


class ClaimProblem(Exception):
    """A claim of a pod cannot be used; the text says why."""


def uses_claims(cls: PodClass) -> bool:
    """Whether pods of this class have claims."""
    return bool(cls.spec.resource_claims)


def names_of(pod: PodInfo) -> list[str]:
    """The names of the claims of a pod, each once. Raises ClaimProblem: one is not made yet, or nothing says which."""
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


def claims_of(pod: PodInfo, store: Any) -> Claims:
    """The claims of a pod in the store of claims. Raises ClaimProblem: one of them cannot be used."""
    found = []
    for name in names_of(pod):
        claim: model.ResourceClaim | None = store.get(name, pod.namespace)
        if claim is None:
            raise ClaimProblem(f'resourceclaim "{name}" not found')
        check(pod, claim)
        found.append(_to_come(claim) if pod.is_anew and _is_made_for(pod, claim) else claim)
    return found


def _to_come(claim: model.ResourceClaim) -> model.ResourceClaim:
    """The claim that will be made for a pod that is yet to be created: as that of the pod before, without devices."""
    metadata = msgspec.structs.replace(claim.metadata, uid=f"{claim.metadata.uid}/anew")
    return msgspec.structs.replace(claim, metadata=metadata, status=type(claim.status)())


class PodClaims:
    """`claims_of`, read once for a pod as long as no claim changes: a decision asks for the claims several times."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._version = -1
        self._known: dict[str, tuple[PodInfo, Claims]] = {}

    def of(self, pod: PodInfo) -> Claims:
        """The claims of a pod. Raises ClaimProblem: one of them cannot be used."""
        if self._version != self._store.version or len(self._known) > _MOST_KNOWN:
            self._known.clear()
            self._version = self._store.version
        known = self._known.get(pod.uid)
        if known is None or known[0] is not pod:
            known = self._known[pod.uid] = pod, claims_of(pod, self._store)
        return list(known[1])


def check(pod: PodInfo, claim: model.ResourceClaim) -> None:
    """Raise ClaimProblem if the pod cannot use the claim."""
    name = claim.metadata.name
    is_owned = _is_made_for(pod, claim)
    if claim.metadata.deletion_timestamp is not None and not (is_owned and pod.is_anew):
        raise ClaimProblem(f'resourceclaim "{name}" is being deleted')
    if not is_owned and all(each.resource_claim_name != name for each in pod.cls.spec.resource_claims):
        raise ClaimProblem(f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.key} (Pod is not owner)")


def _is_made_for(pod: PodInfo, claim: model.ResourceClaim) -> bool:
    return any([each.uid == pod.origin for each in claim.metadata.owner_references])


def lacks_admin_access(claim: model.ResourceClaim, namespace: Any) -> bool:
    """Whether the claim asks to observe devices, and its namespace does not allow that."""
    asks = any(each.exactly is not None and each.exactly.admin_access for each in claim.spec.devices.requests)
    labels = namespace.metadata.labels if namespace is not None else None
    return asks and (labels or {}).get(ADMIN_LABEL) != "true"


def is_reserved_for(claim: model.ResourceClaim, uid: str) -> bool:
    """Whether the pod is among the consumers of the claim."""
    return any(each.uid == uid for each in claim.status.reserved_for)
