"""What stands behind a pod: annotations and the topmost owner along the chain of controllers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline import model
from gangline.api.pod_group import Problem
from gangline.groups import Owners, keys
from gangline.kube.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    GPU_CLAIMS,
    JOB_SETS,
    JOBS,
    KAI_POD_GROUPS,
    LEADER_WORKER_SETS,
    POD_GROUPS_V1BETA1,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    STATEFUL_SETS,
    VOLCANO_POD_GROUPS,
    Resource,
)
from gangline.state.pods import PodInfo
from gangline.wire.custom_resources import CLAIM

from .stories import World, owner_reference


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def owners(world: World) -> Owners:
    return Owners(world.cache)


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (JOBS, CRON_JOBS),
        (JOBS, JOB_SETS),
        (REPLICA_SETS, DEPLOYMENTS),
        (STATEFUL_SETS, LEADER_WORKER_SETS),
        (REPLICATION_CONTROLLERS, None),
    ],
    ids=lambda resource: getattr(resource, "kind", "nobody"),
)
def test_annotations_come_from_every_controller_and_the_nearest_wins(
    world: World, owners: Owners, below: Resource[model.Job], above: Resource[model.Job] | None
) -> None:
    top = world.put(above, "top", annotations={"a": "top", "b": "top", "c": "top"}) if above else None
    owner = world.put(below, "owner", annotations={"a": "owner", "b": "owner"}, owner=top)
    pod = world.pod(owner=owner, annotations={"a": "pod"})

    annotations = dict(owners.annotations(pod))

    assert annotations == {"a": "pod", "b": "owner", **({"c": "top"} if above else {})}
    assert (owners.top(pod).kind, owners.top(pod).name) == ((above.kind, "top") if above else (below.kind, "owner"))


def test_the_workers_of_a_leader_belong_to_its_leader_worker_set(world: World, owners: Owners) -> None:
    world.put(LEADER_WORKER_SETS, "l", annotations={"a": "set"})
    leader = model.OwnerReference("Pod", "l-0", "pod-l-0", "v1", controller=True)
    owner = world.put(STATEFUL_SETS, "l-0", owner=leader)
    stateful = world.cache.store(STATEFUL_SETS).get("l-0", "default")
    assert isinstance(stateful, model.StatefulSet)
    stateful.metadata.labels = {"leaderworkerset.sigs.k8s.io/name": "l"}

    pod = world.pod(owner=owner)

    assert owners.annotations(pod) == {"a": "set"} and owners.top(pod).kind == "LeaderWorkerSet"


def test_a_pod_that_nobody_owns_stands_for_itself(world: World, owners: Owners) -> None:
    pod = world.pod(annotations={"a": "pod"})

    assert owners.annotations(pod) is pod.annotations
    assert (owners.top(pod).kind, owners.top(pod).name) == ("Pod", "p-0")


def test_a_controller_that_nobody_looks_up_is_the_top(world: World, owners: Owners) -> None:
    job = model.OwnerReference("PyTorchJob", "t", "u", "kubeflow.org/v1", controller=True)

    top = owners.top(world.pod(owner=job))

    assert (top.kind, top.name, top.uid, top.api_version) == ("PyTorchJob", "t", "u", "kubeflow.org/v1")


def test_a_change_anywhere_in_the_chain_is_seen(world: World, owners: Owners) -> None:
    pod = world.pod(owner=owner_reference(REPLICA_SETS, "serve-1"))
    seen = [dict(owners.annotations(pod))]

    for said in ("one", "two"):
        world.deployment(annotations={"a": said})
        seen.append(dict(owners.annotations(pod)))

    assert [each.get("a") for each in seen] == [None, "one", "two"]


def test_a_circle_of_controllers_has_an_end(world: World, owners: Owners) -> None:
    world.put(JOBS, "one", annotations={"a": "one"}, owner=owner_reference(JOBS, "two"))
    world.put(JOBS, "two", owner=owner_reference(JOBS, "one"))

    assert owners.annotations(world.pod(owner=owner_reference(JOBS, "one"))) == {"a": "one"}


def test_what_kubectl_has_applied_last_is_left_out(world: World, owners: Owners) -> None:
    owner = world.job(annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"})

    assert owners.annotations(world.pod(owner=owner)) == {}


def named(pod: PodInfo, namespace: str) -> PodInfo:
    """The same pod in another namespace."""
    return msgspec.structs.replace(pod, namespace=namespace)


def test_a_pod_of_another_namespace_that_names_the_uid_changes_nothing(world: World, owners: Owners) -> None:
    owner = world.job(annotations={"a": "job"})
    stranger = named(world.pod("stranger", owner=owner), "elsewhere")

    assert owners.annotations(stranger) == {}, "it is no pod of that Job"
    assert owners.annotations(world.pod(owner=owner)) == {"a": "job"}


@pytest.mark.parametrize(
    "fields",
    [{"name": "other"}, {"kind": "ReplicaSet", "api_version": "apps/v1"}, {"api_version": "batch.example.com/v1"}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_reference_that_fits_the_uid_alone_is_not_believed(
    world: World, owners: Owners, fields: dict[str, str]
) -> None:
    owner = world.job(annotations={"a": "job"})
    stranger = world.pod("stranger", owner=msgspec.structs.replace(owner, **fields))

    assert owners.annotations(stranger) == {}
    assert owners.annotations(world.pod(owner=owner)) == {"a": "job"}


def test_groups_are_not_poisoned_by_a_stranger_that_names_their_owner(world: World) -> None:
    owner = world.job()
    stranger = named(world.pod("stranger", owner=owner), "elsewhere")

    assert isinstance(world.groups.of(stranger), Problem)
    assert world.member(world.pod(owner=owner)).group.min_member == 4


@pytest.mark.parametrize(
    ("labels", "annotations", "spec"),
    [
        pytest.param({keys.POD_GROUP: "g"}, {}, {}, id="scheduler-plugins"),
        pytest.param({}, {keys.KAI_GROUP: "g"}, {}, id="kai"),
        pytest.param({}, {keys.VOLCANO_GROUP: "g"}, {}, id="volcano"),
        pytest.param({keys.KOORDINATOR_GROUP: "g"}, {}, {}, id="koordinator"),
        pytest.param({keys.KUEUE_GROUP: "g"}, {}, {}, id="kueue"),
        pytest.param({keys.LWS_GROUP: "g", keys.LWS_NAME: "g", keys.LWS_GROUP_INDEX: "0"}, {}, {}, id="lws"),
        pytest.param({keys.JOB_SET: "g", keys.JOB_SET_PART: "p"}, {}, {}, id="job-set"),
        pytest.param({}, {CLAIM: "g"}, {}, id="gang-ref"),
        pytest.param({}, {}, {"scheduling_group": model.SchedulingGroup(pod_group_name="g")}, id="upstream"),
        pytest.param({keys.POD_GROUP: "../default/g"}, {keys.KAI_GROUP: "default/g"}, {}, id="a path"),
    ],
)
def test_a_pod_of_another_namespace_is_in_no_group_of_this_one(
    world: World, labels: dict[str, str], annotations: dict[str, str], spec: dict[str, Any]
) -> None:
    for resource in (SCHEDULER_PLUGINS_POD_GROUPS, KAI_POD_GROUPS, VOLCANO_POD_GROUPS, POD_GROUPS_V1BETA1):
        world.put(resource, "g", {"minMember": 2})
    world.put(GPU_CLAIMS, "g", {"gangRef": "g"})
    world.put(LEADER_WORKER_SETS, "g", {"leaderWorkerTemplate": {"size": 2}})
    world.put(JOB_SETS, "g", {"replicatedJobs": [{"name": "p", "template": {"spec": {}}}]})

    found = world.groups.of(named(world.pod(labels=labels, annotations=annotations, **spec), "elsewhere"))

    key = found.key if isinstance(found, Problem) else found.group.key if found is not None else ":elsewhere/"
    assert key.partition(":")[2].startswith("elsewhere/")
