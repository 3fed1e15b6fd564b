"""Whether the devices of a claim are ready to be used: their drivers say so with binding conditions, in a given time.

The time starts when the devices were allocated, by the clock on the wall: it does not start anew with the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangline import Handle, model, moments

_LONGEST = 512
"""Characters of a driver's message that are repeated."""


class Readiness:
    """Judges the newest known states of claims with devices."""

    def __init__(self, handle: Handle, timeout: float) -> None:
        self.timeout = timeout
        """Seconds from the allocation in which all devices have to become ready."""
        self._clock = handle.clock

    def problem(self, claim: model.ResourceClaim) -> str:
        """Why the devices of a claim will not become ready; "" if they are ready, or may become so."""
        for condition in _failures(claim):
            message = f": {condition.message[:_LONGEST]}" if condition.message else ""
            return f"claim {claim.metadata.name} binding failed{message}"
        return self.late(claim) if self._has_timed_out(claim) and not is_ready(claim) else ""

    def late(self, claim: model.ResourceClaim) -> str:
        """The message for a claim whose devices did not become ready in time."""
        return f"claim {claim.metadata.name} binding timeout"

    def _has_timed_out(self, claim: model.ResourceClaim) -> bool:
        allocation = claim.status.allocation
        if allocation is None or allocation.allocation_timestamp is None:
            return False
        try:
            return self._clock.now() >= moments.moment(allocation.allocation_timestamp) + self.timeout
        except ValueError:
            return False  # no readable time: never late here, but a binding waits no longer than the timeout


def is_ready(claim: model.ResourceClaim) -> bool:
    """Whether all devices of a claim with devices meet their binding conditions."""
    return all(
        {each.type for each in conditions if each.status == "True"}.issuperset(result.binding_conditions)
        for result, conditions in _conditions(claim)
    )


def _failures(claim: model.ResourceClaim) -> Iterator[model.PodCondition]:
    for result, conditions in _conditions(claim):
        for each in conditions:
            if each.status == "True" and each.type in result.binding_failure_conditions:
                yield each


def _conditions(claim: model.ResourceClaim) -> Iterator[tuple[model.AllocatedDevice, list[model.PodCondition]]]:
    """Each device with binding conditions, and the conditions that its driver has written."""
    results = [each for each in claim.status.results if each.binding_conditions or each.binding_failure_conditions]
    if not results:
        return
    said = {(each.driver, each.pool, each.device, each.share_id): each.conditions for each in claim.status.devices}
    for result in results:
        yield result, said.get((result.driver, result.pool, result.device, result.share_id)) or []
