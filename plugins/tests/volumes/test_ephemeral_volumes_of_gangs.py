"""Members of a gang have claims of their own for ephemeral volumes, so members of one class may need other nodes."""

from __future__ import annotations

import msgspec
import pytest

from gangline import PodInfo, model, resources
from gangline.testing import cluster, make_node, make_pod
from gangline.testing.gangs import GROUP, Gangs
from gangline_plugins.volumes.volume_binding import VolumeBinding

from ..volume_cases import claim, storage_class, volume

SCRATCH = [model.Volume("scratch", ephemeral=model.EphemeralVolume())]


class Zones(Gangs):
    """Two nodes for one member each, with a volume that only the first can reach, and one that only the other can."""

    def __init__(self) -> None:
        super().__init__(cluster([make_node(name, gpus=8, labels={"host": name}) for name in "ab"]), VolumeBinding)
        self.define("train", 2)
        for each in (volume("of-a", "a"), volume("also-of-a", "a"), volume("of-b", "b")):
            self.cache.store(resources.PVS).upsert(msgspec.convert(each, model.PersistentVolume))
        self.cache.store(resources.STORAGE_CLASSES).upsert(msgspec.convert(storage_class(), model.StorageClass))

    def member(self, name: str, volume: str, size: str = "1Gi", owner: str = "") -> PodInfo:
        """A member with a claim for its ephemeral volume, which is bound if a volume is named."""
        pod = make_pod(name, gpus=8, labels={GROUP: "train"}, volumes=SCRATCH)
        made = claim(f"{name}-scratch", size=size, volume=volume)
        made["metadata"]["ownerReferences"] = [
            {"kind": "Pod", "name": name, "uid": owner or pod.metadata.uid, "controller": True}
        ]
        self.cache.store(resources.PVCS).upsert(msgspec.convert(made, model.PersistentVolumeClaim))
        return self.cache.record(pod)


@pytest.mark.parametrize("order", [("of-a", "of-b"), ("of-b", "of-a")])
def test_each_member_goes_where_its_own_volume_is(order: tuple[str, str]) -> None:
    zones = Zones()
    members = [zones.member(f"train-{number}", name) for number, name in enumerate(order)]

    placed = zones.place(members)

    assert placed == {f"train-{number}": name.removeprefix("of-") for number, name in enumerate(order)}


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        pytest.param({"volume": "of-a"}, {"volume": "also-of-a"}, True, id="the same nodes"),
        pytest.param({"volume": "of-a"}, {"volume": "of-b"}, False, id="other nodes"),
        pytest.param({"volume": ""}, {"volume": ""}, True, id="none is bound"),
        pytest.param({"volume": ""}, {"volume": "of-a"}, False, id="one is bound"),
        pytest.param({"volume": ""}, {"volume": "", "size": "2Gi"}, False, id="another size"),
        pytest.param({"volume": ""}, {"volume": "", "owner": "another"}, False, id="made for another pod"),
    ],
)
def test_members_are_alike_where_their_claims_say_the_same(
    one: dict[str, str], other: dict[str, str], are_alike: bool
) -> None:
    zones = Zones()
    members = [zones.member("train-0", **one), zones.member("train-1", **other)]

    first, second = zones.runtime.evaluator.likenesses(members, [{}, {}])

    assert members[0].cls is members[1].cls and (first == second) == are_alike
