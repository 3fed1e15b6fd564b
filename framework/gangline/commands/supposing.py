"""A gang that does not exist: its pods wait on the listed cluster, as if they had just been created."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gangline import model
from gangline.api.plugin import Clock
from gangline.commands.judging import Judged
from gangline.errors import ConfigError
from gangline.groups.keys import POD_GROUP, TOPOLOGY_REQUIRED
from gangline.kube.resources import SCHEDULER_PLUGINS_POD_GROUPS
from gangline.plurals import many
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.pods import PodInfo
from gangline.wire.custom_resources import GPU

NAME = "whatif"
"""The name of the gang, and of its namespace, in which there are no other objects."""
MOST_MEMBERS = 10_000
MOST_GPUS = 1024
_SIZE = re.compile(r"([0-9]{1,9})x([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class SupposedGang:
    """A gang of equal pods that all have to start together."""

    members: int
    gpus: int
    """GPUs of each pod."""
    level: str = ""
    """The topology level that the gang requires; "" for none."""

    def __str__(self) -> str:
        size = f"a gang of {many(self.members, 'pod')}"
        return f"{size} with {many(self.gpus, 'GPU')}{'' if self.members == 1 else ' each'}" + (
            f" that requires one {self.level}" if self.level else ""
        )


def parse_gang(text: str, level: str = "") -> SupposedGang:
    """Read MEMBERSxGPUS, as in 32x8. Raises ConfigError."""
    found = _SIZE.fullmatch(text)
    members, gpus = map(int, found.groups()) if found else (0, 0)
    if not 1 <= members <= MOST_MEMBERS or not 1 <= gpus <= MOST_GPUS:
        why = f"expected MEMBERSxGPUS, as in 32x8, with at most {MOST_MEMBERS} members and {MOST_GPUS} GPUs each"
        raise ConfigError("--gang", text[:40], why)
    return SupposedGang(members, gpus, level)


def suppose(gang: SupposedGang, judged: Judged, runtime: Runtime, clock: Clock) -> tuple[Judged, PodInfo]:
    """The listed cluster with a gang that waits, and the gang's first pod."""
    cluster = judged.cluster
    metadata = model.ObjectMeta(name=NAME, namespace=NAME)
    cluster.store(SCHEDULER_PLUGINS_POD_GROUPS).upsert(
        model.PodGroup(metadata, model.PodGroupSpec(min_member=gang.members))
    )
    pods = [cluster.record(_pod(gang, number, runtime.name)) for number in range(gang.members)]
    key = runtime.group_key(pods[0])
    groups = dict(judged.groups)
    if key:  # a profile that groups no pods decides one pod after the other
        groups[key] = Unit(pods, added=clock.monotonic(), group=key)
    return replace(judged, groups=groups, pending=[*judged.pending, *pods]), pods[0]


def _pod(gang: SupposedGang, number: int, profile: str) -> model.Pod:
    amounts: model.Resources = {GPU: gang.gpus}
    wanted = model.ResourceRequirements(requests=amounts, limits=amounts)
    metadata = model.ObjectMeta(
        name=f"{NAME}-{number}",
        namespace=NAME,
        labels={POD_GROUP: NAME},
        annotations={TOPOLOGY_REQUIRED: gang.level} if gang.level else {},
    )
    containers = [model.Container(name="main", resources=wanted)]
    return model.Pod(metadata, model.PodSpec(containers=containers, scheduler_name=profile))
