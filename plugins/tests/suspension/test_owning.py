"""Which owners may be suspended so that pods go."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import PodInfo, model, resources
from gangline_plugins.suspension.owning import OwnerSearch, whole_owners

from ..default_preemption_cases import Cluster, cluster, node, pod

JOB_SET = "jobset.x-k8s.io/v1alpha2"
SUSPEND = {"gangline.dev/eviction": "suspend"}


def reference(kind: str, name: str, api_version: str = "batch/v1") -> dict[str, Any]:
    return {"kind": kind, "name": name, "uid": name, "apiVersion": api_version, "controller": True}


def owner(*owners: dict[str, Any], labels: dict[str, str] | None = None) -> model.ObjectMeta:
    references = [model.OwnerReference(**{"api_version": each.pop("apiVersion"), **each}) for each in owners]
    return model.ObjectMeta(namespace="d", labels=labels, owner_references=references)


def job(found: Cluster, name: str, meta: model.ObjectMeta | None = None) -> None:
    meta = meta or owner()
    meta.name = meta.uid = name
    found.cache.store(resources.JOBS).upsert(model.Job(meta))


def of_job(name: str, number: int, **metadata: Any) -> dict[str, Any]:
    meta = {"ownerReferences": [reference("Job", name)], "annotations": SUSPEND, **metadata}
    return pod(f"{name}-{number}", 1, 1, "a", metadata=meta)


def names(found: Cluster, *pods: str) -> list[str]:
    return [each.owner.key for each in whole_owners(found.handle, [found.cache.pods[name] for name in pods])]


def one(found: Cluster, name: str) -> str:
    whole: PodInfo = found.cache.pods[name]
    owner = OwnerSearch(found.cache).of(whole)
    return "" if owner is None else owner.key


def test_a_job_is_suspended_only_if_all_of_its_pods_go() -> None:
    found = cluster([node("a")], [of_job("j", 0), of_job("j", 1), of_job("k", 0)])
    job(found, "j")
    job(found, "k")

    assert names(found, "j-0", "j-1") == ["Job d/j"]
    assert names(found, "j-0") == []
    assert names(found, "j-0", "k-0") == ["Job d/k"]


def test_pods_that_are_being_deleted_need_not_go() -> None:
    leaving = of_job("j", 1, deletionTimestamp="2024-01-01T00:00:00Z")
    found = cluster([node("a")], [of_job("j", 0), leaving])
    job(found, "j")

    assert names(found, "j-0") == ["Job d/j"]


def test_a_job_that_does_not_ask_for_it_is_not_suspended() -> None:
    found = cluster([node("a")], [of_job("j", 0, annotations={})])
    job(found, "j")

    assert names(found, "j-0") == []


@pytest.mark.parametrize(
    ("kind", "api_version", "is_there", "expected"),
    [
        ("CronJob", "batch/v1", False, "Job d/j"),
        ("JobSet", JOB_SET, True, "JobSet d/top"),
        ("JobSet", JOB_SET, False, ""),
        ("Workflow", "argoproj.io/v1alpha1", False, ""),
    ],
)
def test_who_is_suspended_depends_on_who_has_made_the_job(
    kind: str, api_version: str, is_there: bool, expected: str
) -> None:
    found = cluster([node("a")], [of_job("j", 0)])
    job(found, "j", owner(reference(kind, "top", api_version)))
    if is_there:
        found.cache.store(resources.JOB_SETS).upsert(model.JobSet(model.ObjectMeta("top", "d", uid="top")))

    assert one(found, "j-0") == expected


def test_a_job_set_of_a_train_job_is_not_suspended() -> None:
    found = cluster([node("a")], [of_job("j", 0)])
    job(found, "j", owner(reference("JobSet", "top", JOB_SET)))
    meta = owner(reference("TrainJob", "train", "trainer.kubeflow.org/v1alpha1"))
    meta.name = meta.uid = "top"
    found.cache.store(resources.JOB_SETS).upsert(model.JobSet(meta))

    assert one(found, "j-0") == ""


@pytest.mark.parametrize("label", ["kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed"])
def test_what_kueue_admits_is_not_suspended(label: str) -> None:
    found = cluster([node("a")], [of_job("j", 0), of_job("k", 0, labels={label: "x"})])
    job(found, "j", owner(labels={label: "x"}))
    job(found, "k")

    assert one(found, "j-0") == one(found, "k-0") == ""


def workload(found: Cluster, name: str, owner: str, *conditions: str, active: bool = True, **labels: str) -> None:
    references = [model.OwnerReference("Job", owner, owner, controller=True)]
    meta = model.ObjectMeta(name, "d", uid=name, labels=labels, owner_references=references)
    status = model.KueueWorkloadStatus([model.PodCondition(kind, "True") for kind in conditions])
    made = model.KueueWorkload(meta, model.KueueWorkloadSpec(active), status)
    found.cache.store(resources.KUEUE_WORKLOADS).upsert(made)


@pytest.mark.parametrize(
    ("conditions", "more", "expected"),
    [
        (["QuotaReserved", "Admitted"], {}, "Workload d/w"),
        (["QuotaReserved", "Evicted"], {}, ""),
        ([], {}, ""),
        (["QuotaReserved"], {"active": False}, ""),
        (["QuotaReserved"], {"kueue.x-k8s.io/multikueue-origin": "m"}, ""),
    ],
    ids=["admitted", "evicted-already", "without-quota", "inactive", "of-multikueue"],
)
def test_of_what_kueue_admits_the_workload_is_the_owner(
    conditions: list[str], more: dict[str, Any], expected: str
) -> None:
    found = cluster([node("a")], [of_job("j", 0)])
    job(found, "j", owner(labels={"kueue.x-k8s.io/queue-name": "x"}))
    workload(found, "w", "j", *conditions, **more)

    assert one(found, "j-0") == expected


@pytest.mark.parametrize("top", ["j", "set", "train"])
def test_the_workload_may_be_of_any_owner_above(top: str) -> None:
    found = cluster([node("a")], [of_job("j", 0), of_job("j", 1)])
    job(found, "j", owner(reference("JobSet", "set", JOB_SET)))
    meta = owner(reference("TrainJob", "train", "trainer.kubeflow.org/v1alpha1"))
    meta.name = meta.uid = "set"
    found.cache.store(resources.JOB_SETS).upsert(model.JobSet(meta))
    workload(found, "w", top, "QuotaReserved")

    assert names(found, "j-0", "j-1") == ["Workload d/w"] and names(found, "j-0") == []


def test_a_finished_workload_does_not_count_and_of_two_others_none_is_chosen() -> None:
    found = cluster([node("a")], [of_job("j", 0), of_job("k", 0)])
    job(found, "j")
    job(found, "k")
    workload(found, "old", "j", "QuotaReserved", "Finished")
    workload(found, "new", "j", "QuotaReserved")
    workload(found, "k1", "k", "QuotaReserved")
    workload(found, "k2", "k", "QuotaReserved")

    assert (one(found, "j-0"), one(found, "k-0")) == ("Workload d/new", "")


def test_another_job_of_the_name_is_not_the_owner() -> None:
    found = cluster([node("a")], [of_job("j", 0)])
    meta = owner()
    meta.name, meta.uid = "j", "another"
    found.cache.store(resources.JOBS).upsert(model.Job(meta))

    assert one(found, "j-0") == ""
