"""The GPUs that DRA drivers offer, and what claims take of them, as the gradient counts GPUs.

They count on nodes on which no device plugin advertises `nvidia.com/gpu`.
"""

from __future__ import annotations

from gangline import (
    Changes,
    Deadline,
    DeadlineExceeded,
    Handle,
    Int64Column,
    InvalidObject,
    NodeView,
    PodInfo,
    model,
)
from gangline_plugins.dynamic_resources.claims import ClaimProblem, uses_claims
from gangline_plugins.dynamic_resources.ledger import ledger

NOTHING = (0, 0)
_SECONDS = 0.1
"""CPU seconds that the selectors of a pod's claims may take; mostly the filter has evaluated these selectors before."""


class OfferedGpus:
    """The GPUs that drivers offer, and the GPUs that claims ask for, by the ledger of claims."""

    def __init__(self, handle: Handle, seconds: float = _SECONDS) -> None:
        self._ledger = ledger(handle)
        self._seconds = seconds
        self.changes: Changes = self._ledger.devices.changes
        """The rows of nodes for which an answer may have changed."""

    @property
    def is_empty(self) -> bool:
        """Whether no driver offers anything."""
        return self._ledger.devices.is_empty

    def gpus(self, nodes: NodeView) -> tuple[Int64Column, Int64Column]:
        """For each node of the view the thousandths of all GPUs, and the free thousandths of each GPU, nodes x 16."""
        return self._ledger.devices.gpus(nodes)

    def wanted(self, pod: PodInfo) -> tuple[int, int]:
        """How many GPUs the claims of a pod ask for, and the thousandths of each.

        Claims that the pod shares with others count until they have devices. The answer is NOTHING if a claim cannot be
        used, or if its selectors take too long: pods are counted when they are created, before a decision with its
        deadline limits their selectors.
        """
        extended = self._ledger.extended
        if self.is_empty or not (uses_claims(pod.cls) or extended.served.of(pod.cls)):
            return NOTHING
        try:
            claims = [each for each in self._ledger.claims.of(pod) if self._counts(each)]
            of_resources = extended.of(pod, -1)
            asked = [*claims, *([of_resources] if of_resources is not None else [])]
            devices = self._ledger.devices
            return devices.gpus_wanted(devices.asked(asked), Deadline(self._seconds)) if asked else NOTHING
        except (ClaimProblem, InvalidObject, DeadlineExceeded):
            return NOTHING

    def _counts(self, claim: model.ResourceClaim) -> bool:
        return bool(claim.metadata.owner_references) or not self._ledger.has_devices(claim.metadata.uid)
