"""VolumeZone: the labels of bound volumes against those of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import Code, model
from gangline_plugins.volumes.volume_zone import VolumeZone, topologies_of

from ..volume_cases import VolumeCluster, claim, node, pod, storage_class, volume

ZONE = "topology.kubernetes.io/zone"
BETA = "failure-domain.beta.kubernetes.io/zone"
NO_ZONE = ("node(s) had no available volume zone",)


def cluster(labels: dict[str, str], **objects: Any) -> VolumeCluster:
    labelled = volume("v")
    labelled["metadata"]["labels"] = labels
    nodes = [node("a", **{ZONE: "a"}), node("b", **{ZONE: "b"}), node("beta", **{BETA: "a"}), node("none")]
    return VolumeCluster(VolumeZone, nodes=nodes, pvs=[labelled], pvcs=[claim("c", volume="v")], **objects)


@pytest.mark.parametrize(
    ("labels", "rejected"),
    [
        pytest.param({ZONE: "a"}, {"b", "beta"}, id="a stable label does not match a beta one"),
        pytest.param({BETA: "a"}, {"b"}, id="a beta label matches a stable one"),
        pytest.param({ZONE: "a__b"}, {"beta"}, id="one of several zones is enough"),
        pytest.param({ZONE: "a__"}, set(), id="a list with an empty part says nothing"),
        pytest.param({}, set(), id="a volume without labels goes anywhere"),
    ],
)
def test_nodes_of_another_zone_are_rejected(labels: dict[str, str], rejected: set[str]) -> None:
    assert cluster(labels).rejected(pod("p", "c")) == dict.fromkeys(rejected, NO_ZONE)


def test_zones_are_trimmed() -> None:
    labelled = model.PersistentVolume(model.ObjectMeta(labels={ZONE: " a __ b"}))

    assert topologies_of(labelled) == [(ZONE, frozenset({"a", "b"}))]


@pytest.mark.parametrize(
    ("claims", "classes", "message"),
    [
        pytest.param([], [], 'persistentvolumeclaim "c" not found', id="no claim"),
        pytest.param([claim("c", volume="w")], [], 'persistentvolume "w" not found', id="no volume"),
        pytest.param([claim("c")], [], 'storageclass.storage.k8s.io "local" not found', id="no class"),
        pytest.param(
            [claim("c", "")], [], "PersistentVolumeClaim had no pv name and storageClass name", id="no class name"
        ),
        pytest.param(
            [claim("c")],
            [storage_class(volumeBindingMode="Immediate")],
            "PersistentVolume had no name",
            id="immediate binding",
        ),
    ],
)
def test_a_claim_whose_zone_cannot_be_known_rejects_the_pod(claims: Any, classes: Any, message: str) -> None:
    found = VolumeCluster(VolumeZone, nodes=[node("a")], pvcs=claims, storageclasses=classes).status(pod("p", "c"))

    assert found is not None
    assert (found.code, found.message) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, message)


def test_a_claim_that_waits_for_its_consumer_restricts_nothing() -> None:
    waiting = VolumeCluster(
        VolumeZone, nodes=[node("a", **{ZONE: "a"})], pvcs=[claim("c")], storageclasses=[storage_class()]
    )

    assert waiting.rejected(pod("p", "c")) == {}


def test_only_a_change_of_the_zone_labels_of_a_volume_wakes_pods() -> None:
    (hint,) = [e.hint for e in cluster({}).plugin.events_to_register() if e.event.resource == "persistentvolumes"]
    before = model.PersistentVolume(model.ObjectMeta(name="v", labels={ZONE: "a"}))
    moved = model.PersistentVolume(model.ObjectMeta(name="v", labels={ZONE: "b"}))
    other = model.PersistentVolume(model.ObjectMeta(name="v", labels={ZONE: "a", "x": "y"}))

    assert (hint(None, None, before), hint(None, before, moved), hint(None, before, other)) == (True, True, False)
