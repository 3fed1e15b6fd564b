"""The key by which answers are kept: the specs of the claims that a pod asks devices for, whichever pod asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gangline.model.base import ObjectMeta
from gangline.model.resource_claims import ResourceClaim, ResourceClaimSpec

_NAMELESS = "?"
"""The namespace of the claims in a kept question, whose names are numbers; `named` puts real names into messages."""


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

    def claims(self) -> list[ResourceClaim]:
        """Claims with these specs, without names."""
        return [
            ResourceClaim(ObjectMeta(f"{number}", namespace=_NAMELESS), spec) for number, spec in enumerate(self.specs)
        ]


def named(text: str, claims: Sequence[ResourceClaim]) -> str:
    """The message of a kept question, with the names of these claims."""
    for number, claim in enumerate(claims):
        own = f"{claim.metadata.namespace}/{claim.metadata.name}"
        for end in (":", ","):
            text = text.replace(f"claim {_NAMELESS}/{number}{end}", f"claim {own}{end}")
    return text
