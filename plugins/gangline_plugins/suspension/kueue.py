"""Says which Workload of Kueue pods belong to, whether the scheduler may take it off, and when Kueue has done so.

Kueue itself suspends and starts what it admits. So the scheduler leaves the field `suspend` of such owners alone, and
asks Kueue, as `kueuectl stop workload` and `kueuectl resume workload` do:

1. The scheduler sets `spec.active: false`. Kueue evicts the Workload (condition Evicted), resets its admission checks,
   and suspends the owner.
2. When no pod of the owner is active any more, Kueue takes the quota back (condition QuotaReserved). Until then a
   change back could come before Kueue has seen the first one, and evict nothing.
3. The scheduler sets `spec.active: true`, and Kueue puts the Workload into its queue again (condition Requeued).

The condition Evicted is not for others to write: Kueue resets checks, counts and nominated clusters in the same write.
The state Retry of an admission check does the same as steps 1 to 3, but belongs to the check's own controller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from gangline import State, model, resources

_LABELS = frozenset(("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed", "kueue.x-k8s.io/podset"))
_WORKLOAD = "kueue.x-k8s.io/workload"
_OF_A_MANAGER = "kueue.x-k8s.io/multikueue-origin"
_NONE: Mapping[str, str] = {}


class KueueWorkloads:
    """The Workloads that are not finished, by the objects that they admit; for one decision."""

    def __init__(self, state: State) -> None:
        self._state = state

    def of(self, namespace: str, owners: Iterable[str]) -> list[model.KueueWorkload]:
        """The Workloads that admit one of these objects of a namespace, which are named by UID."""
        if not len(self._state.store(resources.KUEUE_WORKLOADS)):
            return []
        return [each for uid in owners for each in self._by_owner.get((namespace, uid), ())]

    @cached_property
    def _by_owner(self) -> Mapping[tuple[str, str], list[model.KueueWorkload]]:
        found: defaultdict[tuple[str, str], list[model.KueueWorkload]] = defaultdict(list)
        for each in self._state.store(resources.KUEUE_WORKLOADS):
            if not _is_true(each, "Finished"):
                for owner in each.metadata.owner_references:
                    if owner.controller:
                        found[each.metadata.namespace, owner.uid].append(each)
        return found


def may_be_stopped(workload: model.KueueWorkload) -> bool:
    """Whether the scheduler may have Kueue take a Workload off: it runs, and no manager of MultiKueue has sent it.

    Such a manager deletes a Workload that differs from its own.
    """
    meta = workload.metadata
    if meta.deletion_timestamp is not None or _OF_A_MANAGER in (meta.labels or _NONE) or workload.spec.suspend:
        return False
    return has_quota(workload) and not _is_true(workload, "Finished") and not _is_true(workload, "Evicted")


def has_quota(workload: model.KueueWorkload) -> bool:
    """Whether Kueue still keeps quota for a Workload."""
    return _is_true(workload, "QuotaReserved")


def is_of_kueue(labels: Mapping[str, str] | None, annotations: Mapping[str, str] = _NONE) -> bool:
    """Whether Kueue says when an object with these labels and annotations runs."""
    return not _LABELS.isdisjoint(labels or _NONE) or _WORKLOAD in annotations


def _is_true(workload: model.KueueWorkload, kind: str) -> bool:
    return any(each.type == kind and each.status == "True" for each in workload.status.conditions)
