"""Which pods have devices with taints that end pods, and do not or no longer tolerate these taints.

kube-controller-manager deletes such pods where it runs its controller for device taints. Then their groups lack members
as after any other deletion. Recovery finds the places first, where it is the first to see the taint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from gangline import Handle, PodInfo, model, moments, resources
from gangline.dra.tolerating import endured
from gangline.dra.usage import DeviceId
from gangline_plugins.dynamic_resources.ledger import ledger
from gangline_plugins.recovery.losses import Loss

_MOST_SHOWN = 80
_Seen = tuple[str, DeviceId, str, str, str | None]
"""UID of a claim, device, key and value of a taint, and when it was added."""


class ClaimHealth:
    """Knows the bound pods whose claims have such devices."""

    def __init__(self, handle: Handle, changed: Callable[[], None]) -> None:
        self._handle = handle
        self._ledger = ledger(handle)
        self._tainted = self._ledger.offering.tainted
        self._changed = changed
        self._seen: dict[_Seen, tuple[float, float]] = {}
        """On the monotonic clock: when a taint was first seen, and until when it is tolerated."""
        handle.state.at_end(self._tainted.follow(changed))
        handle.state.store(resources.RESOURCE_CLAIMS).subscribe(self)

    def on_upsert(self, claim: model.ResourceClaim) -> None:
        """A claim was added or has changed: it may have got a device with such a taint."""
        if any(self._tainted.has((each.driver, each.pool, each.device)) for each in claim.status.results):
            self._changed()

    def on_remove(self, claim: model.ResourceClaim) -> None:
        """A claim was deleted, as its pods have."""

    def losses(self, now: float) -> Sequence[tuple[PodInfo, Loss]]:
        """The pods with such devices, each with the loss that is due first."""
        found: dict[str, tuple[PodInfo, Loss]] = {}
        seen: dict[_Seen, tuple[float, float]] = {}
        pods = self._handle.state.pods
        for key, taint, seconds in self._having():
            seen[key] = since, due = self._seen.get(key) or (now, now + self._left(taint, seconds))
            for uid in self._ledger.consumers(key[0]):
                pod = pods.get(uid)
                if pod is not None and pod.node_name and (uid not in found or due < found[uid][1].due):
                    found[uid] = pod, Loss(pod.node_name, _why(key[1], taint), since, due, is_certain=True)
        self._seen = seen
        return list(found.values())

    def _having(self) -> Iterator[tuple[_Seen, model.DeviceTaint, float]]:
        """Each claim with such a device and each such taint of it, with the seconds for which the claim tolerates it.

        A claim that tolerates a taint for ever is left out.
        """
        for device, taints in self._tainted.all():
            for claim in self._ledger.written.having(device):
                shares = [each for each in claim.status.results if (each.driver, each.pool, each.device) == device]
                for taint in taints:
                    seconds = min((endured(taint, each.tolerations) for each in shares), default=math.inf)
                    if not math.isinf(seconds):
                        yield (claim.metadata.uid, device, taint.key, taint.value, taint.time_added), taint, seconds

    def _left(self, taint: model.DeviceTaint, seconds: float) -> float:
        """How many of the seconds for which a taint is tolerated are left."""
        try:
            age = self._handle.clock.now() - moments.moment(taint.time_added) if taint.time_added else 0.0
        except ValueError:
            age = 0.0
        return max(0.0, seconds - max(0.0, age))


def _why(device: DeviceId, taint: model.DeviceTaint) -> str:
    driver, pool, name = device
    text = f"{taint.key}={taint.value}" if taint.value else taint.key
    return f"device {name} of pool {pool} of {driver} has the taint {text[:_MOST_SHOWN]}:{taint.effect}"
