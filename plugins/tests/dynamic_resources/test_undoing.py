"""Undoing steps of a transaction gives each claim exactly the devices that it had before the steps."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gangline import PodInfo, model, resources
from gangline.testing import Cache, cluster, make_node, make_pod
from gangline_plugins.dynamic_resources.ledger import Ledger

from .claim_cases import DRIVER, exactly, spec

ROWS = 2
DEVICES = 3
PODS = {
    "any": ("own-any",),
    "first": ("own-first",),
    "two": ("own-two",),
    "sharing": ("shared",),
    "also-sharing": ("shared", "own-any-2"),
    "bound": ("settled",),
    "sharing-settled": ("settled", "own-first-2"),
}
"""The claims of each pod; one pod is bound, and its claim has the first device of the first node."""
Step = tuple[str, str, int]


class World:
    """Nodes with a few devices, and pods with claims of every kind."""

    def __init__(self) -> None:
        self.cache: Cache = cluster([make_node(f"n{row}") for row in range(ROWS)])
        self.cache.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu")))
        for row in range(ROWS):
            devices = [
                model.Device(f"d{number}", attributes={"number": model.DeviceAttribute(string=str(number))})
                for number in range(DEVICES)
            ]
            made = model.ResourceSliceSpec(DRIVER, model.ResourcePool(f"n{row}", 1, 1), f"n{row}", devices=devices)
            self.cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(f"s{row}"), made))
        self.claims = sorted({claim for claims in PODS.values() for claim in claims})
        for claim in self.claims:
            self._claim(claim)
        self.ledger = self.cache.tracker(Ledger, self.cache)
        self.pods = {name: self._pod(name) for name in PODS}
        self.cache.upsert_pod(self.pods["bound"])

    def _claim(self, name: str) -> None:
        first = model.DeviceSelector(model.CelDeviceSelector(f'device.attributes["{DRIVER}"].number == "0"'))
        request = exactly(2 if "two" in name else 1, selectors=[first] if "first" in name else [])
        made = model.ResourceClaim(model.ObjectMeta(name, "default", f"uid-{name}"), spec(request))
        if name == "settled":
            only = model.Requirement("metadata.name", "In", ["n0"])
            made.status.allocation = model.ResourceClaimAllocation(
                model.AllocatedDevices([model.AllocatedDevice(DRIVER, "n0", "d0", request="gpu")]),
                model.NodeSelector([model.NodeSelectorTerm(match_fields=[only])]),
            )
            made.status.reserved_for = [model.ResourceClaimConsumerReference("", "pods", "bound", "pod-default-bound")]
        self.cache.store(resources.RESOURCE_CLAIMS).upsert(made)

    def _pod(self, name: str) -> PodInfo:
        entries = [model.PodResourceClaim(claim, claim) for claim in PODS[name]]
        return self.cache.record(make_pod(name, resource_claims=entries, node="n0" if name == "bound" else ""))

    def known(self) -> list[Any]:
        """The devices of each claim, and how many devices are given on each node."""
        given = [self.ledger.allocation(f"uid-{claim}") for claim in self.claims]
        stock = self.ledger.devices.stock("gpu", self.cache.nodes.view())
        return [*[None if each is None else each.devices for each in given], stock.given.tolist()]


steps = st.lists(
    st.tuples(
        st.sampled_from(["place", "unplace", "unplace", "begin", "end", "commit"]),
        st.sampled_from(list(PODS)),
        st.integers(0, ROWS - 1),
    ),
    max_size=25,
)


@given(steps)
@example(
    [
        ("place", "first", 1),
        ("place", "any", 1),
        ("begin", "", 0),
        ("unplace", "first", 0),
        ("unplace", "any", 0),
    ]
)  # put back first, `any` took the device that `first` needs
@example(
    [
        ("place", "two", 0),
        ("place", "sharing", 0),
        ("begin", "", 0),
        ("place", "also-sharing", 1),
    ]
)  # `sharing` kept the devices that the other pod had got for the claim of both
@example(
    [
        ("unplace", "bound", 0),
        ("place", "sharing-settled", 0),
        ("begin", "", 0),
        ("place", "bound", 0),
    ]
)  # `sharing-settled` had other devices for the claim while `bound` was away
def test_what_steps_have_changed_is_as_before_when_they_are_undone(history: list[Step]) -> None:
    world = World()
    blocks: list[tuple[Any, Any]] = []

    def begin() -> None:
        blocks.append((world.cache.transaction(), world.known()))
        blocks[-1][0].__enter__()

    def end() -> None:
        block, before = blocks.pop()
        block.__exit__(None, None, None)
        assert world.known() == before

    begin()
    for kind, name, row in history:
        pod = world.pods.get(name)
        if kind == "begin":
            begin()
        elif kind == "end" and len(blocks) > 1:
            end()
        elif kind == "commit" and len(blocks) > 1:
            block, _ = blocks.pop()
            block.commit()
            block.__exit__(None, None, None)
        elif kind == "place" and pod is not None and pod.row < 0:
            blocks[-1][0].place(pod, row)
        elif kind == "unplace" and pod is not None and pod.row >= 0:
            blocks[-1][0].unplace(pod)
    while blocks:
        end()
    assert not any(pod.row >= 0 for name, pod in world.pods.items() if name != "bound")


def test_devices_of_an_ending_claim_stay_taken_while_a_look_ahead_tries_the_free_devices_first() -> None:
    world = World()
    ending = make_pod("bound", resource_claims=[model.PodResourceClaim("settled", "settled")], node="n0")
    ending.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    world.cache.upsert_pod(world.cache.record(ending))

    with world.cache.foreseen(), world.cache.transaction() as tx:
        tx.place(world.pods["sharing-settled"], 0)
        given = world.ledger.allocation("uid-settled")
        tx.place(world.pods["any"], 0)

        assert given is not None and world.ledger.allocation("uid-settled") is given
        other = world.ledger.allocation("uid-own-any")
        assert other is not None and other.devices.results[0].device != given.devices.results[0].device
