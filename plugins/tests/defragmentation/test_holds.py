"""While pods are moved, what they leave and where they go is kept, for as long as it takes."""

from __future__ import annotations

import msgspec
import pytest

from gangline import SKIP, InvalidObject, PodInfo, model, resources
from gangline.testing import make_pod, make_runtime
from gangline.testing.gangs import GROUP, Gangs
from gangline_plugins.defragmentation import Defragmentation, DefragmentationArgs
from gangline_plugins.defragmentation.holds import Holds
from gangline_plugins.defragmentation.record import HeldRoom, Record, read, written

from .moving_cases import Fragmented

GPU = "nvidia.com/gpu"


class Kept(Fragmented):
    """Room for a pod of four GPUs of "moved" is kept on l1-n0, and leaf 0 for the group "big"."""

    def __init__(self, group: str = "big", known: list[str] | None = None) -> None:
        super().__init__()
        self.holds = Holds()
        self.cache.track(self.holds)
        self.nodes = [f"s0-l0-n{n}" for n in range(4)]
        hold = HeldRoom("default/uid-moved", "s0-l1-n0", {GPU: 4, "cpu": 1000}, known or [])
        self.record = Record("r", self.handle.clock.now() + 60.0, "default-scheduler", "", group, self.nodes, [hold])
        self.holds.take(self.record, self.handle.nodes)

    def pod(self, gpus: int, owner: str = "other") -> PodInfo:
        """A pod that looks for a node."""
        made = self.occupy("new", "s0-l1-n3", gpus, owner=owner)
        self.cache.remove_pod(made.uid)
        return made

    def open_to(self, pod: PodInfo, group: str = "") -> set[str]:
        """The nodes that are neither kept for others nor elsewhere than the pod should go."""
        nodes = self.handle.nodes
        refused = self.holds.kept(pod, group, nodes) | self.holds.elsewhere(pod, nodes)
        return {name for name, no in zip(nodes.names, refused.tolist(), strict=True) if not no}


def test_what_is_freed_is_kept_for_the_group_alone() -> None:
    cluster = Kept()

    assert cluster.open_to(cluster.pod(1)) == {f"s0-l1-n{n}" for n in range(4)}
    assert cluster.open_to(cluster.pod(1), "big") == set(cluster.handle.nodes.names)


def test_what_is_freed_for_nobody_yet_is_kept_from_all() -> None:
    cluster = Kept(group="")

    assert not cluster.open_to(cluster.pod(1), "big") & set(cluster.nodes)


def test_others_get_what_is_left_beside_the_room_for_a_moved_pod() -> None:
    cluster = Kept()

    assert "s0-l1-n0" in cluster.open_to(cluster.pod(4))
    assert "s0-l1-n0" not in cluster.open_to(cluster.pod(5))


def test_the_pod_in_place_of_a_moved_one_goes_where_room_is_kept_for_it() -> None:
    cluster = Kept()

    assert cluster.open_to(cluster.pod(4, owner="moved")) == {"s0-l1-n0"}


def test_the_room_is_used_up_by_the_pod_that_comes_and_is_there_again_when_it_goes() -> None:
    cluster = Kept()
    came = cluster.occupy("came", "s0-l1-n0", 4, owner="moved")

    assert "s0-l1-n1" in cluster.open_to(cluster.pod(4, owner="moved"))
    cluster.cache.remove_pod(came.uid)
    assert cluster.open_to(cluster.pod(4, owner="moved")) == {"s0-l1-n0"}


def test_a_pod_that_was_on_the_node_before_does_not_use_up_the_room() -> None:
    cluster = Kept(known=["pod-default-before"])
    cluster.occupy("before", "s0-l1-n0", 1, owner="moved")

    assert cluster.open_to(cluster.pod(4, owner="moved")) == {"s0-l1-n0"}


def test_room_kept_on_a_node_that_is_gone_binds_nobody() -> None:
    cluster = Kept()
    cluster.holds.drop()
    gone = msgspec.structs.replace(cluster.record, holds=[HeldRoom("default/uid-moved", "gone", {GPU: 4}, [])])

    cluster.holds.take(gone, cluster.handle.nodes)

    assert cluster.open_to(cluster.pod(4, owner="moved")) == {f"s0-l1-n{n}" for n in range(4)}


def test_a_record_is_read_as_it_was_written() -> None:
    record = Kept().record

    assert read(model.ConfigMap(model.ObjectMeta(name="gangline-moves"), written(record))) == record


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param({}, "data.record: is missing", id="missing"),
        pytest.param({"record": "{"}, "data.record: '{': Input data was truncated", id="no-json"),
        pytest.param({"record": "{}"}, "data.record: '{}': Object missing required field `id`", id="no-record"),
    ],
)
def test_a_record_that_cannot_be_read_names_the_config_map(data: dict[str, str], said: str) -> None:
    config_map = model.ConfigMap(model.ObjectMeta(name="gangline-moves", namespace="kube-system"), data)

    with pytest.raises(InvalidObject) as raised:
        read(config_map)

    assert str(raised.value).startswith(f"ConfigMap kube-system/gangline-moves: {said}")


def plugin_with(until: float, name: str = "gangline-moves") -> tuple[Defragmentation, Fragmented]:
    """The plugin, told of a record that ends in so many seconds."""
    cluster = Fragmented()
    plugin = Defragmentation(DefragmentationArgs(), cluster.handle)
    record = Record("r", cluster.handle.clock.now() + until, "default-scheduler", "", "", ["s0-l0-n0"], [])
    meta = model.ObjectMeta(name=name, namespace="kube-system")
    cluster.cache.store(resources.CONFIG_MAPS).upsert(model.ConfigMap(meta, written(record)))
    return plugin, cluster


def test_the_plugin_keeps_what_a_record_says_until_it_is_removed() -> None:
    plugin, cluster = plugin_with(60.0)
    pod = cluster.occupy("some", "s0-l1-n0")

    assert plugin.pre_filter(pod) is None
    assert plugin.filter(pod, cluster.handle.nodes).tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    cluster.cache.store(resources.CONFIG_MAPS).remove("kube-system", "gangline-moves")
    assert plugin.pre_filter(pod) is SKIP


def test_pods_for_which_other_room_is_kept_are_not_alike() -> None:
    cluster = Kept()
    meta = model.ObjectMeta(name="gangline-moves", namespace="kube-system")
    cluster.cache.store(resources.CONFIG_MAPS).upsert(model.ConfigMap(meta, written(cluster.record)))
    evaluator = make_runtime(cluster.cache, Defragmentation, handle=cluster.handle).evaluator
    pods = [cluster.pod(4, owner=owner) for owner in ("moved", "one", "other")]

    moved, one, other = evaluator.likenesses(pods, [{}, {}, {}])
    cluster.cache.store(resources.CONFIG_MAPS).remove("kube-system", "gangline-moves")
    afterwards = evaluator.likenesses(pods, [{}, {}, {}])

    assert moved != one == other
    assert len(set(afterwards)) == 1


def test_members_of_one_gang_go_where_room_is_kept_for_the_pods_of_their_own_controllers() -> None:
    cluster = Kept(group="")
    meta = model.ObjectMeta(name="gangline-moves", namespace="kube-system")
    cluster.cache.store(resources.CONFIG_MAPS).upsert(model.ConfigMap(meta, written(cluster.record)))
    gangs = Gangs(cluster.cache, Defragmentation)
    gangs.handle.fake_clock.seconds = cluster.handle.clock.now()
    gangs.define("set", 2)
    members = []
    for owner in ("moved", "one"):
        pod = make_pod(f"set-{owner}", gpus=5, cpu=1, labels={GROUP: "set"})
        pod.metadata.owner_references = [
            model.OwnerReference("Job", owner, f"uid-{owner}", "batch/v1", controller=True)
        ]
        members.append(cluster.cache.record(pod))

    placed = gangs.place(members)

    assert placed["set-moved"] == "s0-l1-n0" != placed["set-one"]


def test_what_has_expired_keeps_nothing() -> None:
    plugin, cluster = plugin_with(60.0)
    pod = cluster.occupy("some", "s0-l1-n0")
    assert plugin.pre_filter(pod) is None and plugin.identity(pod) is not None and plugin.identity_all([pod])
    cluster.handle.fake_clock.advance(61.0)

    assert plugin.pre_filter(pod) is SKIP
    assert plugin.identity(pod) is None and plugin.identity_all([pod]) is None


def test_another_config_map_keeps_nothing() -> None:
    plugin, cluster = plugin_with(60.0, name="other")

    assert plugin.pre_filter(cluster.occupy("some", "s0-l1-n0")) is SKIP


def test_the_room_is_used_up_by_pods_that_come_at_once_and_is_there_again_when_they_go() -> None:
    cluster = Kept()
    row = cluster.handle.nodes.row_of("s0-l1-n0")
    assert row is not None
    came = [cluster.pod(4, owner="moved"), cluster.pod(4)]
    came[1] = msgspec.structs.replace(came[1], cls=came[0].cls, uid="another", slot=type(came[1].slot)())

    with cluster.cache.transaction() as tx:
        tx.place_all(came, [row, row + 1])
        assert "s0-l1-n1" in cluster.open_to(cluster.pod(4, owner="moved"))

    assert cluster.open_to(cluster.pod(4, owner="moved")) == {"s0-l1-n0"}
