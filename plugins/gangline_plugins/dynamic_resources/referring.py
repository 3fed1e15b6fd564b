"""The consumer for which a claim is reserved: the pod, or the Kubernetes PodGroup that the pod is in.

PodGroups are consumers only with the feature gate DRAWorkloadResourceClaims.

A claim belongs to a PodGroup if an entry of spec.resourceClaims of the PodGroup equals the pod's entry. Such a claim
keeps its devices until the PodGroup is deleted: kube-controller-manager takes them back then, whatever has become of
the pods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from gangline import Changes, Client, PodInfo, State, model, resources
from gangline_plugins.dynamic_resources.claims import GROUP_API, ClaimProblem

POD_GROUPS = (resources.POD_GROUPS_V1BETA1, resources.POD_GROUPS_V1ALPHA2)
"""The versions of PodGroups; an API server serves one of them, or none."""
_PLURAL = "podgroups"
_MOST_ENTRIES = 4
"""Claims of one PodGroup; the API takes no more."""

log = logging.getLogger(__name__)

Reference = model.ResourceClaimConsumerReference


class References:
    """Finds and makes the entries in status.reservedFor of claims that stand for pods."""

    def __init__(self, state: State, changes: Changes) -> None:
        """All rows are noted in `changes` when PodGroups begin or cease to count."""
        self._state = state
        self._changes = changes
        self.has_groups = False
        """Whether claims may be those of PodGroups."""

    def heed_groups(self) -> None:
        """Claims may be those of PodGroups, until the last configuration ends that has asked for it."""
        self._state.shared(_HeededGroups, self._state, self.set_groups)

    def set_groups(self, is_on: bool) -> None:
        """Claims may be those of PodGroups from now on, or no more."""
        self.has_groups = is_on
        self._changes.note_all()

    def group_of(self, pod: PodInfo) -> str:
        """The name of the PodGroup whose claims the pod may use; "" for none."""
        return pod.group if self.has_groups else ""

    def of(self, pod: PodInfo, claim: model.ResourceClaim) -> Reference:
        """The consumer for which the pod's claim has to be reserved. Raises ClaimProblem if the PodGroup is missing."""
        own = Reference(resource="pods", name=pod.name, uid=pod.uid)
        name = self.group_of(pod)
        if not name:
            return own
        stores = [self._state.store(each) for each in POD_GROUPS]
        group = next((found for store in stores if (found := store.get(name, pod.namespace)) is not None), None)
        if group is None:
            raise ClaimProblem(f'podgroup "{name}" not found')
        entry = _entry_of(pod, claim.metadata.name)
        if entry is None or entry not in group.spec.resource_claims[:_MOST_ENTRIES]:
            return own
        return Reference(GROUP_API, _PLURAL, group.metadata.name, group.metadata.uid)

    def is_reserved(self, pod: PodInfo, claim: model.ResourceClaim) -> bool:
        """Whether a claim is reserved for the pod, or for the PodGroup that has the name now.

        What is reserved for an earlier PodGroup of the name does not count: kube-controller-manager takes it back.
        """
        try:
            consumers = {pod.uid, self.of(pod, claim).uid}
        except ClaimProblem:
            return False
        return any([each.uid in consumers for each in claim.status.reserved_for])

    def reserved_as(self, pod: PodInfo, claim: model.ResourceClaim) -> str:
        """The UID of the consumer as which the pod may use the devices of the claim; "" if it may not.

        A pod does not know the UID of its PodGroup, so the name counts.
        """
        name = self.group_of(pod)
        for each in claim.status.reserved_for:
            if each.uid == pod.uid:
                return pod.uid
            if name and each.name == name and each.resource == _PLURAL and each.api_group == GROUP_API:
                return each.uid
        return ""


async def say_unless_served(client: Client) -> None:
    """Write to the log if the API server has no PodGroups. Raises ApiError."""
    for each in POD_GROUPS:
        if each.plural in await client.served(each.group, each.version):
            return
    log.warning("the API server does not serve PodGroups (feature gate DRAWorkloadResourceClaims); none are read")


class _HeededGroups:
    """Lets claims belong to PodGroups, until the last configuration that wants this ends."""

    def __init__(self, state: State, set_groups: Callable[[bool], None]) -> None:
        state.at_end(lambda: set_groups(False))
        set_groups(True)


def _entry_of(pod: PodInfo, claim: str) -> model.PodResourceClaim | None:
    """The entry in a pod's spec.resourceClaims that stands for the claim of this name; None if there is none."""
    entries = pod.cls.spec.resource_claims
    return next((each for each in entries if claim in (each.resource_claim_name, pod.claims.get(each.name))), None)
