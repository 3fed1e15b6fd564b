"""The groups of Kueue that are made of plain pods: a label, and the number of pods in an annotation."""

from __future__ import annotations

from typing import Any

from gangline.api.pod_group import Membership, PodGroup, Problem
from gangline.groups.constraints import constraints_of
from gangline.groups.forming import attempt, member, slices_of
from gangline.groups.keys import KUEUE_GROUP, KUEUE_TOTAL_COUNT
from gangline.groups.owners import annotations_of
from gangline.groups.parsing import invalid, number
from gangline.groups.reading import Lookup
from gangline.kube.resources import Resource
from gangline.state.pods import PodInfo


class KueueReader:
    """Reads the label kueue.x-k8s.io/pod-group-name; the readers of workloads read Kueue's keys on workloads."""

    dialect = "kueue"
    watches: tuple[Resource[Any], ...] = ()

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        name = pod.labels.get(KUEUE_GROUP)
        return attempt(self.dialect, pod, name, lambda: self._read(pod, name, lookup)) if name else None

    def _read(self, pod: PodInfo, name: str, lookup: Lookup) -> Membership:
        annotations = annotations_of(pod, lookup)
        total = number(annotations, KUEUE_TOTAL_COUNT)
        if total is None:
            raise invalid(KUEUE_TOTAL_COUNT, None, "is not set")
        constraints = constraints_of(annotations)
        parts = slices_of(total, total, constraints)
        group = PodGroup(pod.namespace, name, self.dialect, total, total, constraints.topology, parts)
        return member(pod, group, constraints)
