"""Claims of gangs, and claims that a scheduler leaves behind: all members have devices, or no claim keeps any."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import Conflict, Forbidden, Unavailable, model, resources
from gangline.simulate import SimulatedClient
from gangline.testing import make_pod

from .claim_cases import Cluster

GANG = {"gang.scheduling.koordinator.sh/name": "a", "gang.scheduling.koordinator.sh/min-available": "8"}


def gang(cluster: Cluster, size: int = 8, request: model.DeviceRequest | None = None) -> None:
    cluster.template("one", *([request] if request is not None else []))
    for number in range(size):
        cluster.pod(f"g{number}", "one", annotations=GANG)


@pytest.mark.parametrize("devices", [{"a": 8}, {"a": 5, "b": 3}])
def test_a_gang_gets_all_of_its_devices(devices: dict[str, int]) -> None:
    cluster = Cluster(**devices)

    async def story() -> None:
        gang(cluster)
        await cluster.bound(*(f"g{number}" for number in range(8)))

    cluster.play(story)
    assert len(cluster.given()) == 8
    cluster.check()


def two_or_one() -> model.DeviceRequest:
    alternatives = [
        model.DeviceSubRequest(name, "gpu", count=count, allocation_mode="ExactCount")
        for name, count in (("two", 2), ("one", 1))
    ]
    return model.DeviceRequest("gpu", first_available=alternatives)


@pytest.mark.parametrize(
    ("devices", "numbers"),
    [({"a": 8, "b": 8}, [2] * 8), ({"a": 6, "b": 5}, [1] * 6 + [2] * 2), ({"a": 5, "b": 3}, [1] * 8)],
    ids=["room for all", "room for some", "no room"],
)
def test_members_of_a_gang_take_the_later_alternatives_where_all_of_them_need_devices(
    devices: dict[str, int], numbers: list[int]
) -> None:
    cluster = Cluster(**devices)

    async def story() -> None:
        gang(cluster, request=two_or_one())
        await cluster.bound(*(f"g{number}" for number in range(8)))

    cluster.play(story)
    cluster.check()
    assert sorted(len(claim.status.results) for claim in cluster.claims().values()) == numbers


def test_a_gang_that_lacks_a_device_for_the_last_alternatives_too_gets_none() -> None:
    cluster = Cluster(a=4, b=3)

    async def story() -> None:
        gang(cluster, request=two_or_one())
        await cluster.simulated.until(lambda: bool(cluster.simulated.message("g0")))
        cluster.template("two-or-one", two_or_one())
        cluster.pod("alone", "two-or-one")
        await cluster.bound("alone")
        await cluster.settle()

    cluster.play(story)
    assert list(cluster.simulated.bound()) == ["alone"] and len(cluster.given()) == 2


def test_a_gang_for_which_a_device_is_missing_gets_none() -> None:
    cluster = Cluster(a=4, b=3)

    async def story() -> None:
        gang(cluster)
        await cluster.simulated.until(lambda: bool(cluster.simulated.message("g0")))
        await cluster.settle()

    cluster.play(story)
    assert not cluster.simulated.bound()
    assert not cluster.given()


class Refuses:
    """Refuses writes to the claim of one member, for a number of times."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error = error
        self.left = times

    def __call__(self, verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if (
            verb == "patch"
            and resource.plural == resources.RESOURCE_CLAIMS.plural
            and name.startswith("g3-")
            and self.left
        ):
            self.left -= 1
            return self.error
        return None


@pytest.mark.parametrize(
    ("error", "times"), [(Conflict(409, "Conflict", "changed"), 20), (Unavailable(0, "", "no answer"), 2)]
)
def test_a_claim_that_cannot_be_written_gives_the_devices_of_the_whole_gang_back(error: Exception, times: int) -> None:
    cluster = Cluster(a=8)
    faults = Refuses(error, times)

    async def story() -> None:
        gang(cluster)
        await cluster.simulated.until(lambda: bool(cluster.given()))
        await cluster.simulated.until(lambda: faults.left < times and not cluster.given())
        assert not cluster.simulated.bound()
        await cluster.simulated.until(lambda: len(cluster.simulated.bound()) == 8, seconds=600.0)

    slow = {"patch": 0.2, "get": 0.2, "bind": 0.2}
    cluster.play(story, SimulatedClient(cluster.simulated.server, faults=faults, latency=slow))
    assert not faults.left
    assert len(cluster.given()) == 8
    cluster.check()


def test_writes_that_the_api_server_refuses_cost_no_minute_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(a=1)
    refused: list[float] = []

    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        is_of_claim = verb == "patch" and resource.plural == resources.RESOURCE_CLAIMS.plural
        if is_of_claim if refused else verb == "bind":
            refused.append(cluster.simulated.clock.monotonic())
        else:
            return None
        return Forbidden(403, "Forbidden", 'admission webhook "w" denied the request')

    async def story() -> None:
        cluster.template("one")
        cluster.pod("p", "one")
        await cluster.bound("p")

    cluster.play(story, SimulatedClient(cluster.simulated.server, faults=refuse))
    assert cluster.simulated.clock.monotonic() - refused[0] < 15.0 and len(refused) == 2
    said = [each.message for each in caplog.records if "not taken back" in each.message]
    text = 'what was written for its claims is not taken back: 403 Forbidden: admission webhook "w" denied the request'
    assert said == [f"pod default/p: {text}"]


@pytest.mark.parametrize("verb", ["status", "bind"])
def test_the_next_scheduler_goes_on_where_one_was_killed(verb: str) -> None:
    """`status`: between the finalizer and the devices; `bind`: between the devices and the bind."""
    cluster = Cluster(a=1, b=1)
    calls: list[str] = []

    def stop(called: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        if called == "patch" and resource.plural == resources.RESOURCE_CLAIMS.plural:
            calls.append(called)
            if verb == "status" and len(calls) > 1:
                return Unavailable(0, "", "no answer")
        if called == "bind" and verb == "bind":
            calls.append(called)
            return Unavailable(0, "", "no answer")
        return None

    async def story() -> None:
        cluster.template("one")
        async with cluster.scheduling(faults=stop):
            cluster.pod("p", "one")
            await cluster.simulated.until(lambda: len(calls) > 1)
        (claim,) = cluster.claims().values()
        assert claim.metadata.finalizers
        assert not cluster.simulated.bound()
        async with cluster.scheduling():
            await cluster.bound("p")

    cluster.play(story, schedules=False)
    assert len(cluster.given()) == 1
    cluster.check()


def test_a_claim_that_is_deleted_and_made_again_gets_devices_again() -> None:
    cluster = Cluster(a=1)

    async def story() -> None:
        cluster.claim("c")
        cluster.pod("p", claim="c")
        await cluster.bound("p")
        server = cluster.simulated.server
        server.delete(resources.PODS, "p", namespace="default")
        server.delete(resources.RESOURCE_CLAIMS, "c", namespace="default")
        await cluster.simulated.until(lambda: not cluster.claims())
        cluster.pod("q", claim="c")
        await cluster.settle()
        cluster.claim("c")
        await cluster.bound("q")

    cluster.play(story)
    cluster.check()


def test_a_gang_whose_claim_is_not_there_is_held_until_it_comes() -> None:
    cluster = Cluster(a=1)

    async def story() -> None:
        for number in range(8):
            cluster.pod(f"g{number}", claim="late", annotations=GANG)
        await cluster.settle()
        assert not cluster.simulated.bound()
        cluster.claim("late")
        await cluster.bound(*(f"g{number}" for number in range(8)))

    cluster.play(story)
    assert cluster.given() == [("a", "gpu-0")]
    cluster.check()


def test_a_member_that_waits_for_its_claim_beside_a_running_gang_says_so() -> None:
    cluster = Cluster(a=2)
    enough = {**GANG, "gang.scheduling.koordinator.sh/min-available": "2"}

    async def story() -> None:
        cluster.template("one")
        for number, template in enumerate(("one", "one", "missing")):
            cluster.pod(f"g{number}", template, annotations=enough)
        await cluster.bound("g0", "g1")
        await cluster.told("g2", "ResourceClaim not created yet")

    cluster.play(story)


def test_nobody_is_evicted_for_the_devices_of_a_gang_without_a_plugin_for_that() -> None:
    cluster = Cluster(a=2)

    async def story() -> None:
        cluster.template("one")
        for name in ("low-0", "low-1"):
            cluster.pod(name, "one")
        await cluster.bound("low-0", "low-1")
        for number in range(2):
            wanted = {**GANG, "gang.scheduling.koordinator.sh/min-available": "2"}
            cluster.pod(f"high-{number}", "one", priority=1000, annotations=wanted)
        await cluster.told("high-0", "cannot allocate all claims")
        await cluster.settle()

    cluster.play(story)
    assert set(cluster.simulated.bound()) == {"low-0", "low-1"}
    cluster.check()


def test_a_gang_whose_claims_have_devices_where_there_is_no_room_gets_others() -> None:
    """As a scheduler that was killed has left them behind, when other pods have taken the room there since."""
    cluster = Cluster(a=8, b=8)
    cluster.simulated.create(resources.PODS, make_pod("others", node="a", cpu=128))
    for number in range(2):
        cluster.claim(f"c{number}", allocated_on="a" if number == 0 else "")
        notes = {**GANG, "gang.scheduling.koordinator.sh/min-available": "2"}
        cluster.pod(f"g{number}", claim=f"c{number}", annotations=notes, cpu=1)

    cluster.play(lambda: cluster.bound("g0", "g1"))

    assert {pool for pool, _ in cluster.given()} == {"b"}
    cluster.check()


def test_a_shared_claim_that_is_reserved_for_members_which_were_not_bound_gets_devices_where_there_is_room() -> None:
    """As a scheduler that was killed after the reservations has left it behind."""
    cluster = Cluster(a=8, b=8)
    cluster.simulated.create(resources.PODS, make_pod("others", node="a", cpu=128))
    cluster.claim("shared", allocated_on="a")
    for number in range(3):
        notes = {**GANG, "gang.scheduling.koordinator.sh/min-available": "3"}
        cluster.pod(f"g{number}", claim="shared", annotations=notes, cpu=1)
    uids = {each.metadata.name: each.metadata.uid for each in cluster.simulated.list(resources.PODS)}
    reserved = [{"resource": "pods", "name": name, "uid": uids[name]} for name in ("g0", "g1", "g2")]
    status = {"status": {"reservedFor": reserved}}
    cluster.simulated.server.patch(
        resources.RESOURCE_CLAIMS, "shared", status, namespace="default", subresource="status"
    )

    cluster.play(lambda: cluster.bound("g0", "g1", "g2"))

    assert {pool for pool, _ in cluster.given()} == {"b"}
    cluster.check()
