"""VolumeRestrictions: claims for one pod alone, and disks that are not shared."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import Code
from gangline_plugins.volumes.volume_restrictions import VolumeRestrictions

from ..volume_cases import VolumeCluster, claim, node, pod

DISK = ("node(s) had no available disk",)
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


def cluster(**objects: Any) -> VolumeCluster:
    return VolumeCluster(VolumeRestrictions, nodes=[node("a"), node("b")], **objects)


def gce(read_only: bool = False) -> dict[str, Any]:
    return {"name": "v", "gcePersistentDisk": {"pdName": "disk", "readOnly": read_only}}


def ebs(read_only: bool = False) -> dict[str, Any]:
    return {"name": "v", "awsElasticBlockStore": {"volumeID": "vol", "readOnly": read_only}}


def iscsi(read_only: bool = False, portal: str = "p") -> dict[str, Any]:
    return {"name": "v", "iscsi": {"targetPortal": portal, "iqn": "iqn", "lun": 0, "readOnly": read_only}}


def rbd(*monitors: str, image: str = "image", read_only: bool = False) -> dict[str, Any]:
    return {"name": "v", "rbd": {"monitors": list(monitors), "image": image, "readOnly": read_only}}


@pytest.mark.parametrize(
    ("existing", "wanted", "conflict"),
    [
        pytest.param(gce(), gce(), True, id="gce"),
        pytest.param(gce(True), gce(True), False, id="gce read by both"),
        pytest.param(gce(True), gce(), True, id="gce read by one"),
        pytest.param(ebs(True), ebs(True), True, id="ebs even when read"),
        pytest.param(iscsi(portal="p"), iscsi(portal="q"), True, id="iscsi by iqn alone"),
        pytest.param(iscsi(True), iscsi(True), False, id="iscsi read by both"),
        pytest.param(rbd("m1", "m2"), rbd("m2", "m3"), True, id="rbd with a monitor in common"),
        pytest.param(rbd("m1"), rbd("m2"), False, id="rbd without"),
        pytest.param(rbd("m1"), rbd("m1", image="other"), False, id="another rbd image"),
        pytest.param(rbd("m1", read_only=True), rbd("m1", read_only=True), False, id="rbd read by both"),
    ],
)
def test_a_disk_in_use_rejects_its_node(existing: Any, wanted: Any, conflict: bool) -> None:
    used = cluster()
    used.place(pod("old", namespace="other", volumes=[existing]), "a")

    assert used.rejected(pod("new", volumes=[wanted])) == ({"a": DISK} if conflict else {})


def test_a_disk_is_free_again_when_the_last_pod_that_used_it_is_gone() -> None:
    used = cluster()
    first, second = used.place(pod("1", volumes=[gce(True)]), "a"), used.place(pod("2", volumes=[gce(True)]), "a")
    used.cache.remove_pod(first.uid)
    still = used.rejected(pod("new", volumes=[gce()]))
    used.cache.remove_pod(second.uid)

    assert (still, used.rejected(pod("new", volumes=[gce()]))) == ({"a": DISK}, {})


def test_a_claim_for_one_pod_is_refused_to_a_second_on_every_node_until_the_first_is_gone() -> None:
    used = cluster(pvcs=[claim("c", accessModes=["ReadWriteOncePod"])])
    old = used.place(pod("old", "c"), "a")
    before = used.verdicts(used.pod(pod("new", "c")))
    used.cache.remove_pod(old.uid)

    assert before == dict.fromkeys(("a", "b"), (Code.UNSCHEDULABLE, (IN_USE,)))
    assert used.rejected(pod("new", "c")) == {}


def test_a_claim_of_the_same_name_in_another_namespace_is_another_claim() -> None:
    used = cluster(pvcs=[claim("c", accessModes=["ReadWriteOncePod"])])
    used.place(pod("old", "c", namespace="other"), "a")

    assert used.rejected(pod("new", "c")) == {}


def test_a_claim_that_many_may_use_is_not_refused() -> None:
    used = cluster(pvcs=[claim("c")])
    used.place(pod("old", "c"), "a")

    assert used.rejected(pod("new", "c")) == {}


def test_a_claim_that_does_not_exist_rejects_the_pod() -> None:
    found = cluster().status(pod("new", "nope"))

    assert found is not None
    assert (found.code, found.message) == (
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        'persistentvolumeclaim "nope" not found',
    )


@pytest.mark.parametrize(
    ("gone", "wakes"),
    [
        pytest.param(pod("gone", "c"), True, id="same claim"),
        pytest.param(pod("gone", "c", namespace="other"), False, id="same name elsewhere"),
        pytest.param(pod("gone", namespace="other", volumes=[gce()]), True, id="same disk"),
        pytest.param(pod("gone", "d"), False, id="another claim"),
    ],
)
def test_a_pod_that_goes_wakes_those_that_want_what_it_had(gone: Any, wakes: bool) -> None:
    used = cluster()
    (hint,) = [e.hint for e in used.plugin.events_to_register() if e.event.resource == "pods"]

    assert hint(used.pod(pod("new", "c", volumes=[gce()])), used.pod(gone), None) is wakes
