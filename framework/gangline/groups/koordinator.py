"""The groups of Koordinator that need no object: annotations, or labels, name the gang and its size."""

from __future__ import annotations

from typing import Any

from gangline.api.pod_group import Membership, PodGroup, Problem
from gangline.groups import keys
from gangline.groups.constraints import constraints_of
from gangline.groups.forming import attempt, member, not_more_than, slices_of
from gangline.groups.owners import annotations_of
from gangline.groups.parsing import invalid, number, seconds
from gangline.groups.reading import Lookup
from gangline.kube.resources import Resource
from gangline.state.pods import PodInfo


class KoordinatorReader:
    """Reads gang.scheduling.koordinator.sh/name; the reader of scheduler-plugins reads groups with a PodGroup."""

    dialect = "koordinator"
    watches: tuple[Resource[Any], ...] = ()

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        name = pod.annotations.get(keys.KOORDINATOR_GROUP) or pod.labels.get(keys.KOORDINATOR_GROUP)
        return attempt(self.dialect, pod, name, lambda: self._read(pod, name, lookup)) if name else None

    def _read(self, pod: PodInfo, name: str, lookup: Lookup) -> Membership:
        values = {**pod.labels, **annotations_of(pod, lookup)}
        least = number(values, keys.KOORDINATOR_MIN_AVAILABLE)
        if least is None:
            raise invalid(keys.KOORDINATOR_MIN_AVAILABLE, None, "is not set")
        total = number(values, keys.KOORDINATOR_TOTAL) or least
        not_more_than(f"annotation {keys.KOORDINATOR_MIN_AVAILABLE}", least, total)
        constraints = constraints_of(values)
        group = PodGroup(
            pod.namespace,
            name,
            self.dialect,
            least,
            size=total,
            topology=constraints.topology,
            subgroups=slices_of(least, total, constraints),
            timeout=seconds(values, keys.KOORDINATOR_WAITING_TIME) or None,
        )
        return member(pod, group, constraints)
