"""Whatever people write into labels and annotations, reading gives an answer, and the same one again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import model
from gangline.api.pod_group import Membership, Problem
from gangline.groups import Groups, keys
from gangline.kube.resources import (
    GPU_CLAIMS,
    JOB_SETS,
    KAI_POD_GROUPS,
    LEADER_WORKER_SETS,
    POD_GROUPS_V1BETA1,
    SCHEDULER_PLUGINS_POD_GROUPS,
    VOLCANO_POD_GROUPS,
)
from gangline.wire.custom_resources import CLAIM, COMPLETION_INDEX

from .stories import World, owner_reference

KEYS = sorted({value for name, value in vars(keys).items() if name.isupper()} | {CLAIM, COMPLETION_INDEX})
WORDS = ["", "g", "0", "1", "2", "-1", "9" * 5000, "99999999999", "rack", "rack,1m;any", "true", "false", "hard", "{}"]
TEXTS = st.sampled_from(WORDS) | st.text(max_size=20) | st.from_regex(r"[a-z0-9,;:.\-/]{0,12}", fullmatch=True)
SAID = st.dictionaries(st.sampled_from(KEYS), TEXTS, max_size=6)
NUMBERS = st.none() | st.integers(-2, 4) | st.just(2**31 - 1)


def read(
    labels: dict[str, str], annotations: dict[str, str], above: dict[str, str], size: int | None, owner: str, group: str
) -> tuple[Any, Any]:
    """What two readings of one pod say, each on a world of its own."""
    answers = []
    for _ in range(2):
        world = World()
        spec = {"minMember": size, "minTaskMember": {"g": size or 0}}
        for resource in (SCHEDULER_PLUGINS_POD_GROUPS, KAI_POD_GROUPS, VOLCANO_POD_GROUPS):
            world.put(resource, "g", spec, above)
        world.put(POD_GROUPS_V1BETA1, "g", {"schedulingPolicy": {"gang": {"minCount": size or 0}}}, above)
        world.put(GPU_CLAIMS, "g", {"gangRef": "g", "devices": {"count": size or 1}})
        job = {"parallelism": size, "completions": size, "template": {"metadata": {"annotations": above}}}
        parts = [{"name": "g", "replicas": size or 0, "template": {"spec": job}}]
        world.put(JOB_SETS, "g", {"replicatedJobs": parts}, above)
        world.put(LEADER_WORKER_SETS, "g", {"leaderWorkerTemplate": {"size": size or 0}}, above)
        owners = {
            "": None,
            "Job": world.job(annotations=above, parallelism=size, completions=size),
            "ReplicaSet": world.deployment(annotations=above, replicas=size or 0),
            "JobSet": owner_reference(JOB_SETS, "g"),
        }
        named = model.SchedulingGroup(group) if group else None
        pod = world.pod(
            owner=owners[owner], labels=labels, annotations=annotations, gpus=max(size or 0, 0), scheduling_group=named
        )
        answers.append(Groups(world.cache).of(pod))
    return answers[0], answers[1]


@pytest.mark.timeout(120)
@given(SAID, SAID, SAID, NUMBERS, st.sampled_from(["", "Job", "ReplicaSet", "JobSet"]), st.sampled_from(["", "g"]))
def test_reading_always_gives_an_answer_and_always_the_same(
    labels: dict[str, str], annotations: dict[str, str], above: dict[str, str], size: int | None, owner: str, group: str
) -> None:
    one, other = read(labels, annotations, above, size, owner, group)

    assert one == other and isinstance(one, Membership | Problem | None)
    if isinstance(one, Membership):
        assert one.group.min_member >= 1 and (not one.group.size or one.group.min_member <= one.group.size)
        assert sum(part.min_member for part in one.group.subgroups) <= one.group.min_member
