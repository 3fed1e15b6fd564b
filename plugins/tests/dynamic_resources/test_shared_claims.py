"""Gangs whose members share a claim: its device decides on which nodes they can be together."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from gangline import model, resources
from gangline.testing import make_node, make_pod

from .claim_cases import DRIVER, Cluster

ORDERS = ["upstream", "best"]
REQUIRED, PREFERRED = "gangline.dev/topology-required", "gangline.dev/topology-preferred"


def profile(order: str, has_levels: bool) -> str:
    levels = [{"name": "rack", "nodeLabel": "rack"}]
    gates = {"DRAWorkloadResourceClaims": True}
    made = {
        "schedulerName": "default-scheduler",
        "plugins": {
            "multiPoint": {
                "enabled": [{"name": "GangPermit"}, *([{"name": "TopologyPlacement"}] if has_levels else [])]
            }
        },
        "pluginConfig": [
            {"name": "DynamicResources", "args": {"allocationOrder": order, "featureGates": gates}},
            {"name": "TopologyPlacement", "args": {"levels": levels}},
        ],
    }
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return json.dumps({**kind, "profiles": [made]})


class Fabric(Cluster):
    """Racks of nodes that have room for one member each, and devices on the network."""

    def __init__(self, order: str, has_levels: bool = False, **racks: int) -> None:
        super().__init__()
        self.profile = profile(order, has_levels)
        for rack, size in racks.items():
            for number in range(size):
                self.simulated.create(resources.NODES, make_node(f"{rack}{number}", cpu=1, labels={"rack": rack}))

    def pool(self, name: str, *nodes: str, devices: int = 1) -> None:
        """Devices that these nodes may use, or all nodes of a rack; the pools are tried in the order of their names."""
        key = "kubernetes.io/hostname" if len(nodes) > 1 else "rack"
        term = model.NodeSelectorTerm([model.Requirement(key, "In", list(nodes))])
        made = model.ResourceSliceSpec(
            driver=DRIVER,
            pool=model.ResourcePool(name, 1, 1),
            node_selector=model.NodeSelector([term]),
            devices=[model.Device(f"channel-{number}") for number in range(devices)],
        )
        self.simulated.create(resources.RESOURCE_SLICES, model.ResourceSlice(model.ObjectMeta(f"{name}-slice"), made))

    def gang(self, size: int, own: str = "", notes: Mapping[str, str] | None = None) -> None:
        """Members that need a node each and share a claim; each may have a claim of its own too."""
        said = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": str(size)}
        entries = [model.PodResourceClaim("channel", "shared")]
        entries += [model.PodResourceClaim("gpu", resource_claim_template_name=own)] if own else []
        for number in range(size):
            made = make_pod(f"g{number}", cpu=1, resource_claims=entries, annotations={**said, **(notes or {})})
            self.simulated.create(resources.PODS, made)

    def play_gang(self, size: int, own: str = "", notes: Mapping[str, str] | None = None) -> set[str]:
        """Where the members of a gang are bound."""

        async def story() -> None:
            self.claim("shared")
            self.gang(size, own, notes)
            await self.bound(*(f"g{number}" for number in range(size)))

        self.play(story)
        self.check()
        return set(self.simulated.bound("g").values())

    @property
    def shared(self) -> list[str]:
        """The pools of the devices that the shared claim has."""
        return [each.pool for each in self.claims()["shared"].status.results]


@pytest.mark.parametrize("order", ORDERS)
def test_a_gang_goes_where_the_device_that_it_shares_reaches_enough_nodes(order: str) -> None:
    cluster = Fabric(order, a=2, b=4)
    cluster.pool("a", "a")
    cluster.pool("b", "b")

    assert cluster.play_gang(4) == {"b0", "b1", "b2", "b3"}
    assert cluster.shared == ["b"]


@pytest.mark.parametrize(("order", "pool"), [("upstream", "a"), ("best", "b")])
def test_of_several_devices_the_first_or_the_one_with_the_least_room_decides(order: str, pool: str) -> None:
    cluster = Fabric(order, a=4, b=2)
    cluster.pool("a", "a")
    cluster.pool("b", "b")

    assert {node[0] for node in cluster.play_gang(2)} == {pool}
    assert cluster.shared == [pool]


@pytest.mark.parametrize("order", ORDERS)
def test_the_claim_gets_a_device_for_all_of_the_nodes_though_others_come_first(order: str) -> None:
    """`a-...` are devices for two nodes each; only `b` is for all four."""
    cluster = Fabric(order, n=4)
    cluster.pool("a-1", "n0", "n2")
    cluster.pool("a-2", "n1", "n3")
    cluster.pool("b", "n0", "n1", "n2", "n3")

    assert len(cluster.play_gang(4)) == 4
    assert cluster.shared == ["b"]


@pytest.mark.parametrize("order", ORDERS)
def test_members_without_a_level_stay_within_the_reach_of_their_device(order: str) -> None:
    cluster = Fabric(order, n=4)
    cluster.pool("a-1", "n0", "n2")
    cluster.pool("a-2", "n1", "n3")

    assert cluster.play_gang(2) in ({"n0", "n2"}, {"n1", "n3"})


@pytest.mark.parametrize("order", ORDERS)
def test_a_gang_with_claims_of_its_own_beside_the_shared_one_goes_where_both_have_devices(order: str) -> None:
    """Rack `a` comes first, and one of its nodes lacks a device for the member's own claim."""
    cluster = Fabric(order, a=3, b=3)
    cluster.pool("a", "a")
    cluster.pool("b", "b")
    own = model.DeviceSelector(model.CelDeviceSelector('has(device.attributes["gpu.example.com"].own)'))
    for node in ("a0", "a1", "b0", "b1", "b2"):
        cluster.offer(node, model.Device("gpu", attributes={"own": model.DeviceAttribute(bool_=True)}))
    wanted = model.ExactDeviceRequest("gpu", [own], "ExactCount", 1)
    cluster.template("own", model.DeviceRequest("gpu", wanted))
    others = model.DeviceSelector(model.CelDeviceSelector('!has(device.attributes["gpu.example.com"].own)'))
    channel = model.DeviceRequest("gpu", model.ExactDeviceRequest("gpu", [others], "ExactCount", 1))

    async def story() -> None:
        cluster.claim("shared", channel)
        cluster.gang(3, "own")
        await cluster.bound("g0", "g1", "g2")

    cluster.play(story)
    cluster.check()
    assert set(cluster.simulated.bound().values()) == {"b0", "b1", "b2"} and cluster.shared == ["b"]


@pytest.mark.parametrize("order", ORDERS)
def test_within_a_required_level_the_pool_may_be_smaller_than_the_level(order: str) -> None:
    cluster = Fabric(order, True, a=4, b=4)
    cluster.pool("a-1", "a0", "a1")
    cluster.pool("b-1", "b0", "b1", "b3")

    assert cluster.play_gang(3, notes={REQUIRED: "rack"}) == {"b0", "b1", "b3"}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("level", "size", "racks"),
    [(REQUIRED, 2, 1), (PREFERRED, 4, 2)],
    ids=["a part within a rack", "all of the pool"],
)
def test_a_pool_may_cross_levels(order: str, level: str, size: int, racks: int) -> None:
    cluster = Fabric(order, True, a=4, b=4)
    cluster.pool("a", "a2", "a3", "b0", "b1")

    nodes = cluster.play_gang(size, notes={level: "rack"})

    assert nodes <= {"a2", "a3", "b0", "b1"} and len({node[0] for node in nodes}) == racks


@pytest.mark.parametrize("order", ORDERS)
def test_a_device_of_one_node_keeps_the_gang_on_the_node(order: str) -> None:
    cluster = Fabric(order, a=2)
    cluster.simulated.create(resources.NODES, make_node("big", cpu=3))
    for node in ("a0", "a1", "big"):
        cluster.offer(node, model.Device("gpu-0"))

    assert cluster.play_gang(3) == {"big"}


@pytest.mark.parametrize("order", ORDERS)
def test_devices_may_select_their_nodes_one_by_one(order: str) -> None:
    cluster = Fabric(order, n=4)
    devices = []
    for name, nodes in (("a", ["n0", "n1"]), ("b", ["n1", "n2", "n3"])):
        term = model.NodeSelectorTerm([model.Requirement("kubernetes.io/hostname", "In", nodes)])
        devices.append(model.Device(name, node_selector=model.NodeSelector([term])))
    pool = model.ResourcePool("net", 1, 1)
    made = model.ResourceSliceSpec(driver=DRIVER, pool=pool, per_device_node_selection=True, devices=devices)
    cluster.simulated.create(resources.RESOURCE_SLICES, model.ResourceSlice(model.ObjectMeta("net"), made))

    assert cluster.play_gang(3) == {"n1", "n2", "n3"}
    assert cluster.given() == [("net", "b")]


@pytest.mark.parametrize("order", ORDERS)
def test_a_claim_of_a_pod_group_decides_as_well(order: str) -> None:
    cluster = Fabric(order, a=2, b=4)
    cluster.pool("a", "a")
    cluster.pool("b", "b")
    policy = model.PodGroupPolicy(gang=model.PodGroupGang(4))
    entry = model.PodResourceClaim("channel", "shared")
    made = model.PodGroupSpec(scheduling_policy=policy, resource_claims=[entry])
    cluster.simulated.create(resources.POD_GROUPS_V1ALPHA2, model.PodGroup(model.ObjectMeta("train", "default"), made))

    async def story() -> None:
        cluster.claim("shared")
        for number in range(4):
            member = make_pod(f"g{number}", cpu=1, resource_claims=[entry])
            member.spec.scheduling_group = model.SchedulingGroup("train")
            cluster.simulated.create(resources.PODS, member)
        await cluster.bound("g0", "g1", "g2", "g3")

    cluster.play(story)
    assert {node[0] for node in cluster.simulated.bound().values()} == {"b"}
    assert [each.name for each in cluster.claims()["shared"].status.reserved_for] == ["train"]


@pytest.mark.parametrize("order", ORDERS)
def test_a_gang_that_no_device_reaches_says_so_and_goes_when_one_does(order: str) -> None:
    cluster = Fabric(order, a=2, b=2)
    cluster.pool("a", "a")

    async def story() -> None:
        cluster.claim("shared")
        cluster.gang(3)
        await cluster.told("g0", "")
        await cluster.settle()
        assert not cluster.simulated.bound() and not cluster.given()
        cluster.pool("b", "a0", "a1", "b0", "b1")
        await cluster.bound("g0", "g1", "g2")

    cluster.play(story)
    assert cluster.shared == ["b"]
