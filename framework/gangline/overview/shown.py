"""Which pods an overview shows: those of a namespace, and those with certain labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gangline.overview.claim_use import ClaimUse
from gangline.state.pods import PodInfo
from gangline.state.selectors import EVERYTHING, Selector


@dataclass(frozen=True, slots=True)
class Shown:
    """The pods to show; by default all."""

    namespace: str = ""
    """"" for all namespaces."""
    labels: Selector = EVERYTHING

    def has(self, pod: PodInfo) -> bool:
        """Whether a pod is shown."""
        return self.namespace in ("", pod.namespace) and (self.labels is EVERYTHING or self.labels.matches(pod.labels))

    def claims(self, claims: Sequence[ClaimUse], pods: Iterable[PodInfo]) -> list[ClaimUse]:
        """The claims of the pods that are shown. Without labels, also the claims of the namespace that no pod uses."""
        if self == ALL:
            return list(claims)
        keys = {pod.key for pod in pods if self.has(pod)}
        unused = self.labels is EVERYTHING
        return [each for each in claims if keys.intersection(each.pods) or (unused and self._is_unused(each))]

    def _is_unused(self, claim: ClaimUse) -> bool:
        return not claim.pods and self.namespace in ("", claim.claim.partition("/")[0])


ALL = Shown()
"""The whole cluster."""
