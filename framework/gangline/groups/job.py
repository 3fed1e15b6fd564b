"""Jobs that are gangs: indexed Jobs whose pods all run at once, and Jobs with the annotation for it."""

from __future__ import annotations

from typing import Any

from gangline.api.pod_group import Membership, PodGroup, Problem
from gangline.errors import InvalidObject
from gangline.groups import keys
from gangline.groups.constraints import constraints_of
from gangline.groups.forming import check_size, member, missing, not_more_than, slices_of
from gangline.groups.owners import (
    CONTROLLERS,
    annotations_of,
    controller_of,
    job_pods_to_come,
    job_size,
    workload_of,
)
from gangline.groups.parsing import flag, number
from gangline.groups.reading import Lookup
from gangline.kube.resources import Resource
from gangline.model import Job, JobSpec, OwnerReference
from gangline.state.pods import PodInfo


class JobReader:
    """Reads the Job that a pod belongs to."""

    dialect = "job"
    watches: tuple[Resource[Any], ...] = CONTROLLERS

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        owner = controller_of(pod.owners)
        if owner is None or owner.kind != "Job" or not owner.api_version.startswith("batch/"):
            return None
        try:
            return self._read(pod, owner, lookup)
        except InvalidObject as error:
            return Problem(f"{self.dialect}:{pod.namespace}/{owner.name}", str(error))

    def _read(self, pod: PodInfo, owner: OwnerReference, lookup: Lookup) -> Membership | Problem | None:
        job: Job | None = workload_of(pod, lookup)
        if job is None:
            raise missing("Job", pod.namespace, owner.name)
        annotations = annotations_of(pod, lookup)
        wanted = flag(annotations, keys.GANG)
        least = number(annotations, keys.MIN_MEMBER)
        if least is None:
            least = number(annotations, keys.KAI_MIN_MEMBER)
        if wanted is False or not (wanted or least is not None or _runs_at_once(job.spec)):
            return None
        size = job_size(job.spec.parallelism, job.spec.completions)
        if least is not None:
            not_more_than(f"Job {pod.namespace}/{owner.name}: the least number of members", least, size)
        constraints = constraints_of(annotations)
        to_come = job_pods_to_come(job)
        least = to_come if least is None else min(least, to_come)
        check_size(least, to_come, 0)
        whole = least if to_come == size else 0  # it is not known which slices have succeeded
        group = PodGroup(
            pod.namespace,
            owner.name,
            self.dialect,
            least,
            size=to_come,
            topology=constraints.topology,
            subgroups=slices_of(whole, max(size, job.spec.completions or 0), constraints),
            knows_succeeded=True,
        )
        return member(pod, group, constraints)


def _runs_at_once(spec: JobSpec) -> bool:
    parallelism = spec.parallelism or 1
    return spec.completion_mode == "Indexed" and parallelism > 1 and parallelism == spec.completions
