"""The groups that GpuClaims name: all pods of a namespace whose claims have the same gangRef."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangline.api.pod_group import Membership, PodGroup, Problem
from gangline.errors import InvalidObject
from gangline.groups import kai, scheduler_plugins, upstream, volcano
from gangline.groups.constraints import constraints_of
from gangline.groups.forming import attempt, member, reference_to, slices_of
from gangline.groups.owners import annotations_of, annotations_with, sizes_of
from gangline.groups.reading import Lookup
from gangline.kube.resources import (
    GPU_CLAIMS,
    KAI_POD_GROUPS,
    POD_GROUPS_V1ALPHA2,
    POD_GROUPS_V1BETA1,
    SCHEDULER_PLUGINS_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    Resource,
)
from gangline.state.pods import PodInfo
from gangline.wire.custom_resources import CLAIM, GpuClaim

_KINDS: tuple[tuple[Resource[Any], Callable[[Any], int]], ...] = (
    (POD_GROUPS_V1BETA1, upstream.min_count),
    (POD_GROUPS_V1ALPHA2, upstream.min_count),
    (SCHEDULER_PLUGINS_POD_GROUPS, scheduler_plugins.min_member),
    (VOLCANO_POD_GROUPS, volcano.min_member),
    (KAI_POD_GROUPS, kai.min_member),
)
"""Kinds of PodGroup that may have the name, and how the least number of members is read from each."""


class GangRefReader:
    """Reads a pod's GpuClaim with a gangRef.

    The number of pods comes from a PodGroup of that name, or from the pod's owner.
    """

    dialect = "gang-ref"
    watches: tuple[Resource[Any], ...] = (GPU_CLAIMS, *(resource for resource, _ in _KINDS))

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        claim = pod.annotations.get(CLAIM)
        if not claim:
            return None
        found: GpuClaim | None = lookup.store(GPU_CLAIMS).get(claim, pod.namespace)
        if found is None or not found.spec.gang_ref:
            return None
        name = found.spec.gang_ref
        return attempt(self.dialect, pod, name, lambda: self._read(pod, name, lookup))

    def _read(self, pod: PodInfo, name: str, lookup: Lookup) -> Membership:
        for resource, least_of in _KINDS:
            obj = lookup.store(resource).get(name, pod.namespace)
            if obj is not None:
                return self._member(pod, lookup, name, least_of(obj), 0, (resource, obj))
        sizes = sizes_of(pod, lookup)
        if sizes is None:
            where = f"GpuClaim {pod.namespace}/{pod.annotations[CLAIM]}: spec.gangRef"
            why = "no PodGroup has this name, and the pod has no owner that tells how many pods there are"
            raise InvalidObject(where, name, why)
        return self._member(pod, lookup, name, *sizes, None)

    def _member(
        self, pod: PodInfo, lookup: Lookup, name: str, least: int, size: int, by: tuple[Resource[Any], Any] | None
    ) -> Membership:
        annotations = annotations_of(pod, lookup) if by is None else annotations_with(pod, by[1], lookup)
        constraints = constraints_of(annotations)
        group = PodGroup(
            pod.namespace,
            name,
            self.dialect,
            least,
            size=size,
            topology=constraints.topology,
            subgroups=slices_of(least, size, constraints),
            object=reference_to(*by) if by is not None else None,
        )
        return member(pod, group, constraints)
