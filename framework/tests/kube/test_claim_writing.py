"""Writes to ResourceClaims change what they mean to and nothing else, and refuse what was read too long ago."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from gangline import model
from gangline.errors import Conflict, Invalid, NotFound
from gangline.kube.claim_writing import FINALIZER, ClaimWriter
from gangline.kube.resources import RESOURCE_CLAIMS, Resource
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run

ALLOCATION = model.ResourceClaimAllocation(
    model.AllocatedDevices(
        [model.AllocatedDevice("gpu.example.com", "a", "gpu-0", request="gpu", tolerations=[])],
        [
            model.AllocatedConfiguration(
                "FromClaim", ["gpu"], model.OpaqueDeviceConfiguration("gpu.example.com", {"a": 1})
            )
        ],
    ),
    model.NodeSelector([model.NodeSelectorTerm(match_fields=[model.Requirement("metadata.name", "In", ["a"])])]),
)
POD = model.ResourceClaimConsumerReference(resource="pods", name="p", uid="uid-p")
OTHER = model.ResourceClaimConsumerReference(resource="pods", name="q", uid="uid-q")


class Case:
    """A server with one claim that names things which Gangline does not read."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.server = InMemoryServer(self.clock)
        self.client = SimulatedClient(self.server)
        self.writer = ClaimWriter(self.client)
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "unknown": [1]}}]}}
        self.server.create(
            RESOURCE_CLAIMS, {"metadata": {"name": "c", "finalizers": ["example.com/own"]}, "spec": spec}
        )

    @property
    def data(self) -> Mapping[str, Any]:
        return self.server.get(RESOURCE_CLAIMS, "c", namespace="default").data

    async def read(self) -> model.ResourceClaim:
        return await self.client.get(RESOURCE_CLAIMS, "c", namespace="default")

    def play(self, story: Callable[[Case], Awaitable[None]]) -> None:
        async def whole() -> None:
            await story(self)

        run(whole(), self.clock)


@pytest.fixture
def case() -> Case:
    return Case()


def test_a_claim_gets_its_finalizer_its_devices_and_its_consumers_and_gives_them_back(case: Case) -> None:
    async def story(case: Case) -> None:
        claim = await case.writer.protect(await case.read())
        assert case.data["metadata"]["finalizers"] == ["example.com/own", FINALIZER]
        claim = await case.writer.allocate(claim, ALLOCATION, POD)
        assert claim.status.allocation == ALLOCATION and claim.status.reserved_for == [POD]
        claim = await case.writer.reserve(claim, OTHER)
        assert claim.status.reserved_for == [POD, OTHER]
        claim = await case.writer.release(claim, POD.uid)
        assert claim.status.reserved_for == [OTHER] and claim.status.allocation == ALLOCATION
        claim = await case.writer.deallocate(claim, OTHER.uid)
        assert claim.status.allocation is None and not claim.status.reserved_for
        claim = await case.writer.reserve(await case.writer.allocate(claim, ALLOCATION, POD), OTHER)
        claim = await case.writer.deallocate(claim, POD.uid, OTHER.uid)
        assert claim.status.allocation is None and not claim.status.reserved_for
        await case.writer.unprotect(claim)
        assert case.data["metadata"]["finalizers"] == ["example.com/own"]

    case.play(story)


def test_what_a_driver_writes_beside_stays(case: Case) -> None:
    devices = [{"driver": "gpu.example.com", "pool": "a", "device": "gpu-0", "data": {"own": [1, {"deep": True}]}}]

    async def story(case: Case) -> None:
        claim = await case.writer.allocate(await case.read(), ALLOCATION, POD)
        case.server.patch(
            RESOURCE_CLAIMS,
            "c",
            {"status": {"devices": devices, "unknown": 1}},
            namespace="default",
            subresource="status",
        )
        claim = await case.writer.reserve(await case.read(), OTHER)
        assert claim.status.devices[0].device == "gpu-0"
        await case.writer.release(claim, POD.uid)
        await case.writer.protect(await case.read())

    case.play(story)
    assert case.data["status"]["devices"] == devices and case.data["status"]["unknown"] == 1
    assert case.data["spec"]["devices"]["requests"][0]["exactly"]["unknown"] == [1]


@pytest.mark.parametrize(
    "write",
    [
        lambda writer, claim: writer.protect(claim),
        lambda writer, claim: writer.unprotect(claim),
        lambda writer, claim: writer.allocate(claim, ALLOCATION, POD),
        lambda writer, claim: writer.reserve(claim, POD),
        lambda writer, claim: writer.deallocate(claim, POD.uid),
    ],
    ids=["protect", "unprotect", "allocate", "reserve", "deallocate"],
)
def test_a_write_that_depends_on_a_claim_that_has_changed_is_a_conflict(case: Case, write: Any) -> None:
    async def story(case: Case) -> None:
        claim = await case.read()
        case.server.patch(RESOURCE_CLAIMS, "c", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
        before = case.data
        with pytest.raises(Conflict):
            await write(case.writer, claim)
        assert case.data == before

    case.play(story)


def test_a_release_does_not_mind_other_changes_but_never_touches_another_claim_of_that_name(case: Case) -> None:
    async def story(case: Case) -> None:
        claim = await case.writer.allocate(await case.read(), ALLOCATION, POD)
        case.server.patch(RESOURCE_CLAIMS, "c", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
        released = await case.writer.release(claim, POD.uid)
        assert not released.status.reserved_for
        assert not (await case.writer.release(claim, POD.uid)).status.reserved_for
        claim.metadata.uid = "another"
        with pytest.raises(Conflict):
            await case.writer.release(claim, POD.uid)

    case.play(story)


def test_the_server_refuses_what_a_real_one_refuses(case: Case) -> None:
    async def story(case: Case) -> None:
        claim = await case.read()
        with pytest.raises(Invalid, match="may not be specified when `allocated` is not set"):
            await case.writer.reserve(claim, POD)
        claim = await case.writer.allocate(claim, ALLOCATION, POD)
        elsewhere = model.ResourceClaimAllocation(model.AllocatedDevices([model.AllocatedDevice("d", "b", "gpu-0")]))
        with pytest.raises(Invalid, match="field is immutable"):
            await case.writer.allocate(claim, elsewhere, POD)
        with pytest.raises(Invalid, match="may not be specified when `allocated` is not set"):
            await case.writer.deallocate(claim)
        for number in range(255):
            claim = await case.writer.reserve(claim, model.ResourceClaimConsumerReference(uid=str(number)))
        with pytest.raises(Invalid, match="Too many: 257"):
            await case.writer.reserve(claim, OTHER)
        case.server.delete(RESOURCE_CLAIMS, "c", namespace="default")
        claim = await case.read()
        with pytest.raises(Invalid, match="new finalizers"):
            await case.writer.protect(claim)
        claim = await case.writer.release(claim, "0")
        with pytest.raises(Invalid, match="new entries may not be added"):
            await case.writer.reserve(claim, OTHER)

    case.play(story)


def test_a_deleted_claim_goes_with_its_last_finalizer(case: Case) -> None:
    async def story(case: Case) -> None:
        claim = await case.writer.protect(await case.read())
        case.server.delete(RESOURCE_CLAIMS, "c", namespace="default")
        claim = await case.writer.unprotect(await case.writer.read(claim))
        assert claim.metadata.deletion_timestamp and case.data["metadata"]["finalizers"] == ["example.com/own"]
        case.server.patch(RESOURCE_CLAIMS, "c", {"metadata": {"finalizers": []}}, namespace="default")
        with pytest.raises(NotFound):
            await case.writer.read(claim)

    case.play(story)


class OldServer(SimulatedClient):
    """A client of a server that has only some versions of the group, and keeps account of what is asked."""

    def __init__(self, server: InMemoryServer, versions: set[str]) -> None:
        super().__init__(server, faults=self._note)
        self.versions = versions
        self.used: list[str] = []

    def _note(self, verb: str, resource: Resource[Any], name: str) -> Exception | None:
        self.used.append(resource.version)
        return None if resource.version in self.versions else NotFound(404, "NotFound", "no such path")

    async def served(self, group: str, version: str) -> set[str]:
        return {RESOURCE_CLAIMS.plural} if version in self.versions else set()


def test_the_writer_uses_the_version_that_the_server_has_and_looks_again_when_it_goes(case: Case) -> None:
    client = OldServer(case.server, {"v1beta1", "v1beta2"})
    writer = ClaimWriter(client)

    async def story(case: Case) -> None:
        claim = await writer.protect(await case.read())
        client.versions = {"v1"}
        with pytest.raises(NotFound):
            await writer.read(claim)
        claim = await writer.read(claim)
        assert claim.spec.devices.requests[0].exactly is not None

    case.play(story)
    assert client.used == ["v1beta2", "v1beta2", "v1"]
