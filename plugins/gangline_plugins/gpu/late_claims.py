"""Bound pods that became known before their claims, as after a start: their devices are counted when the claims
arrive.
"""

from __future__ import annotations

from collections.abc import Callable

from gangline import PodInfo, custom_resources


class LateClaims:
    """Pods by the claim that they wait for; `count` is called for each pod when its claim arrives or changes."""

    def __init__(self, count: Callable[[PodInfo], None]) -> None:
        self._count = count
        self._pods: dict[tuple[str, str], dict[str, PodInfo]] = {}

    def wait(self, pod: PodInfo) -> None:
        """The claim of this pod cannot be read yet."""
        self._pods.setdefault(claim_key(pod), {})[pod.uid] = pod

    def forget(self, pod: PodInfo) -> None:
        """The pod has left, or its devices are counted."""
        if not self._pods:
            return
        pods = self._pods.get(claim_key(pod))
        if pods is not None and pods.pop(pod.uid, None) is not None and not pods:
            del self._pods[claim_key(pod)]

    def on_upsert(self, claim: custom_resources.GpuClaim) -> None:
        """A claim was added or has changed."""
        for pod in list(self._pods.get((claim.metadata.namespace, claim.metadata.name), {}).values()):
            self._count(pod)

    def on_remove(self, claim: custom_resources.GpuClaim) -> None:
        """A claim was deleted; its pods keep their devices."""


def claim_key(pod: PodInfo) -> tuple[str, str]:
    """Namespace and name of the GpuClaim that a pod names; the name is "" if the pod names none."""
    return pod.namespace, pod.annotations.get(custom_resources.CLAIM, "")
