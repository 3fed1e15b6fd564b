"""Gangs whose members are of one class and unlike by their labels: an event that helps one of them wakes the gang."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import model
from gangline.config import load
from gangline.groups.keys import KOORDINATOR_GROUP, KOORDINATOR_MIN_AVAILABLE
from gangline.kube.resources import PVCS, SERVICES, STORAGE_CLASSES
from gangline.loop.watching import StoreHandler
from gangline.queueing.units import Place
from gangline.testing import make_node, make_pod
from gangline.testing.gang_stories import PROFILE

from .test_gangs_alike import NAME, GangWorld

SPREAD_BY_DEFAULT = """  pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
"""


def gang(world: GangWorld, apps: str, **spec: Any) -> None:
    """A gang with one member for each of these labels; all members are of one class."""
    note = {KOORDINATOR_GROUP: "g", KOORDINATOR_MIN_AVAILABLE: str(len(apps))}
    for number, app in enumerate(apps):
        labels = {"app": app, "index": str(number)}
        pod = make_pod(f"g-{number}", labels=labels, annotations=note, scheduler_name=NAME, **spec)
        world.waiting[pod.metadata.name] = pod
        world.handle.upsert(pod)
    world.settle()
    assert not world.bound


@pytest.mark.parametrize("apps", ["ab", "ba"])
def test_a_gang_starts_when_one_of_its_members_can_be_spread_as_its_service_is_by_default(apps: str) -> None:
    world = GangWorld(more="")
    world.scheduler.use(load(PROFILE + SPREAD_BY_DEFAULT, ""))
    services = StoreHandler(world.cluster, SERVICES)
    for app in "ab":
        services.upsert(model.Service(model.ObjectMeta(app, "default"), model.ServiceSpec(selector={"app": app})))
    world.node("n-0", 0)
    world.handle_node.upsert(make_node("n-1", cpu=0, labels={"zone": "y"}))
    world.handle.upsert(make_pod("first", node="n-0", labels={"app": "a"}))
    gang(world, apps, cpu=1)

    world.handle.upsert(make_pod("second", node="n-1", labels={"app": "a"}, cpu=0))
    world.settle()

    assert sorted(world.bound) == ["g-0", "g-1"]


def test_of_many_members_that_are_alike_for_all_plugins_one_is_asked_about() -> None:
    """Though each of them has labels of its own, and its terms follow from other labels."""
    world = GangWorld(more="")
    world.node("n-0", 1)
    server = model.LabelSelector({"role": "server"})
    term = model.PodAffinityTerm("zone", server, match_label_keys=["app"])
    gang(world, "a" * 20, affinity=model.Affinity(pod_affinity=model.PodAffinity([term])))

    (unit,) = [unit for unit in world.scheduler.queue if unit.place is Place.UNSCHEDULABLE]

    assert len(unit.kinds()) == 1


@pytest.mark.parametrize("last", [0, 1, 2])
def test_a_gang_starts_when_the_last_claim_for_an_ephemeral_volume_has_come(last: int) -> None:
    world = GangWorld(more="")
    claims, classes = (StoreHandler(world.cluster, kind) for kind in (PVCS, STORAGE_CLASSES))
    waiting = model.StorageClass(
        model.ObjectMeta("late"), provisioner="p.example.com", volume_binding_mode="WaitForFirstConsumer"
    )
    classes.upsert(waiting)
    world.node("n-0", 1)
    gang(world, "aaa", volumes=[model.Volume("scratch", ephemeral=model.EphemeralVolume())])
    for member in sorted(range(3), key=lambda number: number == last):
        world.settle()
        assert not world.bound
        owner = model.OwnerReference("Pod", f"g-{member}", f"pod-default-g-{member}", "v1", controller=True)
        metadata = model.ObjectMeta(f"g-{member}-scratch", "default", owner_references=[owner])
        claims.upsert(model.PersistentVolumeClaim(metadata, model.PersistentVolumeClaimSpec(storage_class_name="late")))
    world.settle()

    assert sorted(world.bound) == ["g-0", "g-1", "g-2"]
