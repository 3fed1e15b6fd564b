"""Pods that are alike share one class; labels are interned on their own."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from gangline import bounds, model
from gangline.errors import InvalidObject
from gangline.state.cache import Cache
from gangline.state.resource_axis import ResourceAxis
from gangline.testing import cluster, make_node, make_pod
from gangline.wire.custom_resources import ALLOCATED


def test_pods_that_are_alike_share_a_class_whatever_their_names_nodes_gates_and_labels() -> None:
    cache = Cache()
    one = cache.record(make_pod("a", cpu=1, labels={"app": "x"}))
    other = cache.record(make_pod("b", cpu=1, node="n", scheduling_gates=[model.LocalName("wait")]))

    assert one.cls is other.cls
    assert one.labels is not other.labels


def test_the_volume_of_its_token_makes_no_class_of_its_own() -> None:
    cache = Cache()
    claim = model.Volume("data", persistent_volume_claim=model.ClaimVolume("data"))
    one, other = (
        cache.record(make_pod(name, volumes=[claim, model.Volume(f"kube-api-access-{name}")])) for name in ("a", "b")
    )

    assert one.cls is other.cls
    assert one.spec.volumes == [claim]


@pytest.mark.parametrize(
    "change",
    [{"cpu": 2}, {"namespace": "other"}, {"priority": 5}, {"node_selector": {"a": "b"}}],
    ids=["requests", "namespace", "priority", "selector"],
)
def test_pods_that_differ_in_what_a_plugin_reads_have_classes_of_their_own(change: dict[str, object]) -> None:
    cache = Cache()
    one = cache.record(make_pod("a", cpu=1))
    other = cache.record(make_pod("a", **{"cpu": 1, **change}))  # type: ignore[arg-type]  # one field at a time

    assert one.cls is not other.cls and one.cls.id != other.cls.id


def test_equal_labels_are_one_object_in_any_order() -> None:
    cache = Cache()
    one = cache.record(make_pod("a", labels={"x": "1", "y": "2"}))
    other = cache.record(make_pod("b", labels={"y": "2", "x": "1"}))

    assert one.labels is other.labels
    assert one.labels == {"x": "1", "y": "2"} and one.labels.get("z") is None


def test_a_class_ends_with_its_last_pod_and_its_number_is_never_used_again() -> None:
    cache = Cache()
    pod = cache.record(make_pod("a", cpu=1))
    number = pod.cls.id

    del pod
    gc.collect()

    assert cache.record(make_pod("a", cpu=1)).cls.id != number


def test_a_resize_gives_a_running_pod_another_class_but_not_a_waiting_one() -> None:
    cache = Cache()
    resized = model.PodStatus(
        container_statuses=[
            model.ContainerStatus("main", None, model.ResourceRequirements(requests={"cpu": "4"})),
        ]
    )
    running, waiting = make_pod("a", cpu=1, node="n"), make_pod("b", cpu=1)
    running.status = waiting.status = resized

    assert cache.record(running).cls.requests.real == {"cpu": 4000}
    assert cache.record(waiting).cls.requests.real == {"cpu": 1000}


def test_a_record_holds_what_differs_from_pod_to_pod() -> None:
    pod = make_pod("a", annotations={"k": "v", "kubectl.kubernetes.io/last-applied-configuration": "long"})
    owners = [
        model.OwnerReference(kind="Job", name="j"),
        model.OwnerReference(kind="ReplicaSet", name="r", controller=True),
    ]
    pod.metadata.owner_references = owners
    pod.status.phase = "Failed"

    record = Cache().record(pod)

    assert record.key == "default/a" and record.annotations == {"k": "v"}
    assert record.is_terminal and not record.terminating and record.row == -1
    assert record.controller is owners[1]


def test_a_pod_without_uid_goes_by_its_name() -> None:
    pod = make_pod("a")
    pod.metadata.uid = ""

    assert Cache().record(pod).uid == "default/a"


def test_a_pod_whose_requests_cannot_be_read_has_no_record() -> None:
    with pytest.raises(InvalidObject, match=r"spec\.containers\[0\]\.resources\.requests\[cpu\]: 'lots'"):
        Cache().record(make_pod("a", cpu="lots"))


def test_resources_keep_their_rows_and_growth_is_told() -> None:
    axis, told = ResourceAxis(), []
    axis.on_growth(lambda: told.append(len(axis)))

    for _ in range(2):
        axis.offer("nvidia.com/gpu")
        axis.give_row("nvidia.com/gpu")

    assert [axis.row(name) for name in ("cpu", "memory", "nvidia.com/gpu")] == [0, 1, 5]
    assert told == [6]
    assert axis.rows(("cpu", "memory")) == slice(0, 2)
    assert np.arange(9)[axis.rows(("memory", "nvidia.com/gpu"))].tolist() == [1, 5]


def test_a_record_never_changes_and_its_place_is_written_by_the_cache_alone() -> None:
    cache = cluster([make_node("a")])
    pod = cache.record(make_pod("p"))

    for field in ("row", "node_name", "nominated_node_name", "uid", "labels", "slot"):
        with pytest.raises(AttributeError):
            setattr(pod, field, 1)
    with pytest.raises(AttributeError):
        pod.slot.row = 1  # type: ignore[misc]  # what nobody may do
    cache.assume(pod, 0)

    assert (pod.row, pod.node_name) == (0, "a")


def test_a_pod_made_anew_is_another_one_without_a_place() -> None:
    cache = cluster([make_node("a")])
    pod = cache.record(make_pod("p", node="a", annotations={ALLOCATED: "0,1", "note": "x"}))
    cache.upsert_pod(pod)

    anew = pod.anew()

    assert (anew.row, anew.node_name, anew.annotations) == (-1, "", {"note": "x"})
    assert anew.uid != pod.uid and anew.cls is pod.cls and (pod.row, pod.node_name) == (0, "a")


def test_claims_made_from_a_template_are_the_pods_and_the_entries_of_its_spec_are_its_class() -> None:
    cache = Cache()
    entries = [model.PodResourceClaim("gpu", resource_claim_template_name="one-gpu")]
    one, other = (make_pod(name, resource_claims=entries) for name in ("a", "b"))
    one.status.resource_claim_statuses = [
        model.PodResourceClaimStatus("gpu", "a-gpu-x7k2p"),
        model.PodResourceClaimStatus("unneeded"),
    ]
    one.status.extended_resource_claim_status = model.PodExtendedResourceClaimStatus([], "a-extended-resources-1")
    first, second = cache.record(one), cache.record(other)

    assert first.cls is second.cls and first.spec.resource_claims == entries
    assert first.claims == {"gpu": "a-gpu-x7k2p", "unneeded": None}
    assert first.extended_claim == "a-extended-resources-1"
    assert second.claims == {} and second.extended_claim == ""


def test_pods_that_name_their_claims_differ_in_class_by_the_name() -> None:
    cache = Cache()
    one, other = (
        cache.record(make_pod("a", resource_claims=[model.PodResourceClaim("gpu", resource_claim_name=name)]))
        for name in ("first", "second")
    )

    assert one.cls is not other.cls


def test_pods_without_claims_share_what_says_so() -> None:
    cache = Cache()

    assert cache.record(make_pod("a")).claims is cache.record(make_pod("b")).claims


def test_more_claim_statuses_than_are_read_set_the_pod_aside() -> None:
    pod = make_pod("a")
    pod.status.resource_claim_statuses = [model.PodResourceClaimStatus(str(number)) for number in range(257)]

    with pytest.raises(InvalidObject, match="resourceClaimStatuses"):
        Cache().record(pod)


@pytest.mark.parametrize(
    ("field", "most"),
    [("labels", bounds.MOST_LABELS), ("annotations", bounds.MOST_LABELS), ("owner_references", bounds.MOST_IN_SPEC)],
)
def test_a_pod_may_have_so_many_labels_and_no_more(field: str, most: int) -> None:
    def pod(number: int) -> model.Pod:
        names = [f"k{each}" for each in range(number)]
        made = make_pod("p")
        owners = [model.OwnerReference(kind="Job", name=each, uid=each) for each in names]
        setattr(made.metadata, field, owners if field == "owner_references" else dict.fromkeys(names, "v"))
        return made

    cache = Cache()
    assert cache.record(pod(most)).name == "p"

    with pytest.raises(InvalidObject, match=f"{most + 1} entries"):
        cache.record(pod(most + 1))


def test_a_plugin_cannot_write_to_the_amounts_that_all_pods_of_a_class_share() -> None:
    pod = cluster([make_node("a")]).record(make_pod("p", gpus=4))

    for shared in (pod.cls.amounts, pod.cls.resources):
        before = shared.tolist()
        with pytest.raises(ValueError, match="read-only"):
            np.floor_divide(shared, 2, out=shared)
        assert before == shared.tolist() and before
