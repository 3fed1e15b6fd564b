"""What stands behind a pod: annotations and the topmost owner along the chain of controllers."""

from __future__ import annotations

import pytest

from gangline import model
from gangline.groups import Owners
from gangline.kube.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    JOB_SETS,
    JOBS,
    LEADER_WORKER_SETS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)

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
    stateful = world.cache.store("statefulsets").get("l-0", "default")
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
