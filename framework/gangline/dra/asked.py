"""What the claims of a pod ask for, as answers are kept by it: the specs of the claims, whoever asks."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangline.model.resource_claims import ResourceClaimSpec


@dataclass(frozen=True, slots=True)
class Asked:
    """What the claims of a pod ask for; equal for claims of equal specs."""

    key: bytes
    specs: tuple[ResourceClaimSpec, ...] = field(compare=False, repr=False)

    @property
    def least(self) -> int | None:
        """How many devices the claims take at least, each for one claim alone; None if that is not known."""
        wanted = 0
        for spec in self.specs:
            for request in spec.devices.requests:
                exactly = request.exactly
                if exactly is None or exactly.allocation_mode != "ExactCount" or exactly.admin_access:
                    return None
                wanted += exactly.count
        return wanted or None
