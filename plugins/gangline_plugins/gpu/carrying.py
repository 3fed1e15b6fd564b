"""GpuClaims that ResourceClaims carry out: what is wrong with the ResourceClaim of a pod, and which devices it has."""

from __future__ import annotations

from gangline import Handle, PodInfo, claim_templates, custom_resources, model, resources
from gangline_plugins.claim_profiles import ClaimProfiles
from gangline_plugins.gpu.wants import DISAGREES, NOT_CARRIED, Carried, WantProblem, entry_of, excess

_LONGEST = 1024
"""Characters of `status.allocated`; the CRD allows no more."""


class Carrying:
    """The ResourceClaims of pods of one profile."""

    def __init__(self, handle: Handle) -> None:
        self._profile = handle.profile
        self._profiles = handle.state.shared(ClaimProfiles)
        self._last: tuple[model.ResourceClaim | None, str, str] = None, "", ""
        """The claim that was looked at last, the name of its GpuClaim, and the name of its template."""
        self._claims = handle.state.store(resources.RESOURCE_CLAIMS)

    def of(self, pod: PodInfo) -> model.ResourceClaim | None:
        """The ResourceClaim that was made for the pod's GpuClaim; None if it is not there."""
        name = pod.claims.get(claim_templates.ENTRY)
        found: model.ResourceClaim | None = self._claims.get(name, pod.namespace) if name else None
        return found

    def judge(self, pod: PodInfo, carried: Carried) -> WantProblem | None:
        """Why the pod's ResourceClaim must not or cannot give the pod its devices; None if it can."""
        if wrong := excess(pod, carried):
            return WantProblem(wrong, DISAGREES)
        if not self._profiles.of(self._profile):
            why = f"profile {self._profile} has no plugin DynamicResources"
            return WantProblem(f'GpuClaim "{carried.claim}" needs ResourceClaims, and {why}', NOT_CARRIED)
        claim, entry = self.of(pod), entry_of(pod)
        if claim is None or entry is None:
            return None
        if self._template(pod, claim) != entry.resource_claim_template_name:
            why = f'ResourceClaim "{claim.metadata.name}" of the pod asks for something else'
            return WantProblem(f'{why} than GpuClaim "{carried.claim}" did', NOT_CARRIED)
        return None

    def _template(self, pod: PodInfo, claim: model.ResourceClaim) -> str:
        """The name that the template of this ResourceClaim has if the ResourceClaim was made for the pod's GpuClaim."""
        name = pod.annotations.get(custom_resources.CLAIM, "")
        if self._last[0] is not claim or self._last[1] != name:  # one decision asks several times
            self._last = claim, name, claim_templates.name_of(name, claim.spec)
        return self._last[2]


def allocated(claim: model.ResourceClaim, node: str) -> str:
    """NODE:DEVICE,DEVICE, as the status of a GpuClaim has it."""
    return f"{node}:{','.join(each.device for each in claim.status.results)}"[:_LONGEST]
