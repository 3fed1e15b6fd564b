"""The readers of all dialects, in the order in which they are asked.

Groups that a user has named come before groups that follow from a pod's owner.
"""

from __future__ import annotations

from typing import Any

from gangline.groups.gang_ref import GangRefReader
from gangline.groups.gpu_count import GpuCountReader
from gangline.groups.job import JobReader
from gangline.groups.job_set import JobSetReader
from gangline.groups.kai import KaiReader
from gangline.groups.koordinator import KoordinatorReader
from gangline.groups.kueue import KueueReader
from gangline.groups.leader_worker_set import LeaderWorkerSetReader
from gangline.groups.owners import CONTROLLERS
from gangline.groups.reading import Reader
from gangline.groups.scheduler_plugins import SchedulerPluginsReader
from gangline.groups.upstream import UpstreamReader
from gangline.groups.volcano import VolcanoReader
from gangline.kube.resources import Resource

READERS: tuple[Reader, ...] = (
    UpstreamReader(),
    SchedulerPluginsReader(),
    KaiReader(),
    VolcanoReader(),
    KoordinatorReader(),
    KueueReader(),
    GangRefReader(),
    LeaderWorkerSetReader(),
    JobSetReader(),
    GpuCountReader(),
    JobReader(),
)
"""All dialects; if a pod uses several, the first counts."""


def watched_by(readers: tuple[Reader, ...]) -> tuple[Resource[Any], ...]:
    """The kinds that readers look up, each once; all readers look along the controllers of a pod."""
    return tuple(dict.fromkeys((*(kind for reader in readers for kind in reader.watches), *CONTROLLERS)))


WATCHES = watched_by(READERS)
"""The kinds that must be watched for `READERS`."""
