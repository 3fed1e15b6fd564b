"""NodeVolumeLimits: volumes of a driver on a node against the limit in its CSINode."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import Action, Code, model, resources
from gangline_plugins.volumes.node_volume_limits import NodeVolumeLimits

from ..volume_cases import VolumeCluster, claim, csi_node, node, pod, storage_class, volume

FULL = ("node(s) exceed max volume count",)


def csi(name: str, driver: str = "disk") -> dict[str, Any]:
    return volume(name, csi={"driver": driver, "volumeHandle": f"handle-{name}"})


def cluster(limit: int = 2, **objects: list[Any]) -> VolumeCluster:
    """Claims c1 to c4, bound to volumes of the driver `disk`; node `b` has no limit."""
    numbers = range(1, 5)
    pvcs = [claim(f"c{n}", volume=f"v{n}") for n in numbers] + objects.pop("pvcs", [])
    pvs = [csi(f"v{n}") for n in numbers] + objects.pop("pvs", [])
    csinodes = objects.pop("csinodes", [csi_node("a", disk=limit), csi_node("b")])
    return VolumeCluster(
        NodeVolumeLimits, nodes=[node("a"), node("b")], pvcs=pvcs, pvs=pvs, csinodes=csinodes, **objects
    )


def test_a_node_that_is_full_is_rejected_and_preemption_could_help() -> None:
    full = cluster(limit=2)
    full.place(pod("old", "c1", "c2"), "a")

    assert full.verdicts(full.pod(pod("new", "c3"))) == {"a": (Code.UNSCHEDULABLE, FULL)}


def test_the_last_free_place_can_be_taken() -> None:
    nearly = cluster(limit=2)
    nearly.place(pod("old", "c1"), "a")

    assert nearly.rejected(pod("new", "c2")) == {}
    assert nearly.rejected(pod("new", "c2", "c3")) == {"a": FULL}


def test_a_volume_that_is_there_already_needs_no_place() -> None:
    full = cluster(limit=2)
    full.place(pod("old", "c1", "c2"), "a")

    assert full.rejected(pod("new", "c2")) == {}


def test_a_place_is_free_when_no_pod_uses_the_volume_any_more() -> None:
    full = cluster(limit=1)
    first, second = full.place(pod("1", "c1"), "a"), full.place(pod("2", "c1"), "a")
    full.cache.remove_pod(first.uid)
    still = full.rejected(pod("new", "c2"))
    full.cache.remove_pod(second.uid)

    assert (still, full.rejected(pod("new", "c2"))) == ({"a": FULL}, {})


def test_a_limit_of_none_at_all_rejects_an_empty_node() -> None:
    assert cluster(limit=0).rejected(pod("new", "c1")) == {"a": FULL}


def test_other_drivers_do_not_count() -> None:
    mixed = cluster(limit=1, pvcs=[claim("other", volume="w")], pvs=[csi("w", "other")])
    mixed.place(pod("old", "other"), "a")

    assert mixed.rejected(pod("new", "c1")) == {}


def test_a_claim_without_a_volume_counts_for_the_driver_that_will_make_it() -> None:
    waiting = cluster(limit=1, pvcs=[claim("u1", "fast"), claim("u2", "fast")])
    waiting.cache.store(resources.STORAGE_CLASSES).upsert(
        model.StorageClass(model.ObjectMeta(name="fast"), provisioner="disk", volume_binding_mode="Immediate")
    )
    waiting.place(pod("old", "u1"), "a")

    assert waiting.rejected(pod("new", "u2")) == {"a": FULL}
    assert waiting.rejected(pod("again", "u1")) == {}


def test_volumes_that_are_still_attached_count_once() -> None:
    def attachment(volume: str) -> dict[str, Any]:
        source = {"persistentVolumeName": volume}
        return {"metadata": {"name": "x"}, "spec": {"attacher": "disk", "nodeName": "a", "source": source}}

    attached = cluster(limit=2, volumeattachments=[attachment("v1")])
    attached.place(pod("old", "c1"), "a")
    one = attached.rejected(pod("new", "c2"))
    attached.add(resources.VOLUME_ATTACHMENTS, attachment("v3"))

    assert (one, attached.rejected(pod("new", "c2"))) == ({}, {"a": FULL})


def test_a_raised_limit_counts_at_once() -> None:
    full = cluster(limit=1)
    full.place(pod("old", "c1"), "a")
    before = full.rejected(pod("new", "c2"))
    full.add(resources.CSI_NODES, csi_node("a", disk=2))

    assert (before, full.rejected(pod("new", "c2"))) == ({"a": FULL}, {})


@pytest.mark.parametrize(
    ("driver", "source"),
    [
        pytest.param("pd.csi.storage.gke.io", {"gcePersistentDisk": {"pdName": "disk"}}, id="gce"),
        pytest.param("ebs.csi.aws.com", {"awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}, id="ebs"),
        pytest.param("disk.csi.azure.com", {"azureDisk": {"diskName": "d", "diskURI": "uri"}}, id="azure"),
    ],
)
def test_an_in_tree_volume_counts_for_the_driver_that_serves_it(driver: str, source: dict[str, Any]) -> None:
    none = cluster(csinodes=[csi_node("a", **{driver: 0})])

    assert none.rejected(pod("new", volumes=[{"name": "v", **source}])) == {"a": FULL}


def test_both_spellings_of_an_ebs_volume_are_one_volume() -> None:
    full = cluster(csinodes=[csi_node("a", **{"ebs.csi.aws.com": 1})])
    full.place(pod("old", volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}]), "a")

    assert full.rejected(pod("new", volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}}])) == {}


@pytest.mark.parametrize(
    ("provisioner", "rejected"),
    [("kubernetes.io/aws-ebs", {"a": FULL}), ("kubernetes.io/azure-file", {})],
)
def test_an_in_tree_provisioner_counts_for_its_driver(provisioner: str, rejected: dict[str, Any]) -> None:
    none = cluster(
        csinodes=[csi_node("a", **{"ebs.csi.aws.com": 0, "kubernetes.io/azure-file": 0})],
        pvcs=[claim("u", "old")],
        storageclasses=[storage_class("old", provisioner)],
    )

    assert none.rejected(pod("new", "u")) == rejected


def test_a_claim_that_does_not_exist_rejects_every_node_for_good() -> None:
    found = cluster()
    reason = 'looking up PVC default/nope: persistentvolumeclaim "nope" not found'

    verdicts = found.verdicts(found.pod(pod("new", "nope")))
    assert verdicts == dict.fromkeys(("a", "b"), (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,)))


@pytest.mark.parametrize(
    ("before", "after", "wakes"),
    [({"disk": 1}, {"disk": 2}, True), ({"disk": 2}, {"disk": 1}, False), ({"disk": 1}, {}, True)],
    ids=["raised", "lowered", "lifted"],
)
def test_a_changed_limit_wakes_pods_when_it_gives_more_room(before: Any, after: Any, wakes: bool) -> None:
    found = cluster()
    (event,) = [e for e in found.plugin.events_to_register() if e.event.action == Action.UPDATE]
    found.add(resources.CSI_NODES, csi_node("old", **before))
    found.add(resources.CSI_NODES, csi_node("new", **after))
    old, new = (found.cache.store(resources.CSI_NODES).get(name) for name in ("old", "new"))

    assert event.hint(None, old, new) is wakes
