"""Gangs without a place and the autoscaler, in virtual time: one request for each gang, and what becomes of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gangline import NotFound, Unavailable, custom_resources, resources
from gangline_plugins.provisioning.plugin import GRACE, LOOK

from .provisioning_cases import DELAY, AutoscaledCluster

SOON = 2 * LOOK


def test_a_gang_without_a_place_gets_a_request_and_starts_when_its_nodes_have_come() -> None:
    cluster = AutoscaledCluster()
    cluster.add_gang("train", 4)

    async def story() -> None:
        await cluster.passes(DELAY - 1)
        assert not cluster.requests
        request = await cluster.asked()
        assert request.spec.provisioning_class_name == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
        assert [each.count for each in request.spec.pod_sets] == [4]
        (owner,) = request.metadata.owner_references
        assert (owner.kind, owner.name) == ("PodGroup", "train")
        await cluster.until(lambda: cluster.consumed("train") == {request.metadata.name})
        (template,) = cluster.templates(request)
        assert template.metadata.owner_references[0].uid == request.metadata.uid
        (container,) = template.template.spec.containers
        assert container.resources is not None and container.resources.requests == {"nvidia.com/gpu": 8}
        cluster.answer("Accepted")
        await cluster.until(lambda: any("is accepted" in note for note in cluster.notes("train")))
        cluster.grow(0)
        cluster.answer("Accepted", "Provisioned")
        await cluster.until(lambda: len(cluster.bound("train")) == 4)
        await cluster.until(lambda: not cluster.requests, SOON)

    cluster.tell(story)

    assert any("asks for 4 pods" in note for note in cluster.notes("train"))


def test_the_gang_is_tried_at_once_when_its_room_is_provisioned() -> None:
    cluster = AutoscaledCluster()
    cluster.add_gang("train", 4)

    async def story() -> None:
        async with cluster.schedules() as scheduler:
            request = await cluster.asked()
            await cluster.passes(60.0)
            (unit,) = scheduler.queue
            before = unit.attempts
            cluster.answer("Accepted")
            await cluster.passes(5.0)
            assert unit.attempts == before
            cluster.answer("Accepted", "Provisioned")
            await cluster.until(lambda: unit.attempts == before + 1, 2.0)
            said = f"ProvisioningRequest {request.metadata.name} is provisioned"
            assert said in unit.message
            await cluster.until(lambda: said in "".join(cluster.notes("train")))

    cluster.play(story)


def test_a_gang_that_gets_its_place_otherwise_loses_its_request() -> None:
    cluster = AutoscaledCluster()
    cluster.add_gang("train", 4)

    async def story() -> None:
        await cluster.asked()
        cluster.grow(0)
        await cluster.until(lambda: len(cluster.bound("train")) == 4)
        await cluster.until(lambda: not cluster.requests, SOON)

    cluster.tell(story)


def test_a_gang_with_a_place_costs_nothing() -> None:
    cluster = AutoscaledCluster(leaves=1)
    cluster.add_gang("train", 4)

    async def story() -> None:
        await cluster.until(lambda: len(cluster.bound("train")) == 4)
        await cluster.passes(3 * DELAY)

    cluster.tell(story)

    assert not cluster.requests and not cluster.list(resources.POD_TEMPLATES) and cluster.consumed("train") == {""}


def test_when_the_gang_is_gone_its_request_goes() -> None:
    cluster = AutoscaledCluster()
    cluster.add_gang("train", 4)

    async def story() -> None:
        await cluster.asked()
        for number in range(4):
            cluster.server.delete(resources.PODS, f"train-{number}")
        await cluster.passes(GRACE - LOOK)
        assert cluster.requests  # a controller may create its pods anew
        await cluster.until(lambda: not cluster.requests, SOON)

    cluster.tell(story)


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        (("Failed",), "is failed (Failed: no zone has so many nodes); the next one is made in 60 s"),
        (("Accepted", "Provisioned", "BookingExpired"), "is expired"),
        (("Accepted", "Provisioned", "CapacityRevoked"), "is revoked"),
    ],
    ids=["failed", "expired", "revoked"],
)
def test_after_a_failure_there_is_an_event_and_later_another_request(conditions: tuple[str, ...], said: str) -> None:
    cluster = AutoscaledCluster()
    cluster.add_gang("train", 4)

    async def story() -> None:
        first = await cluster.asked(1)
        cluster.answer(*conditions, message="no zone has so many nodes")
        await cluster.until(lambda: any(said in note for note in cluster.notes("train")))
        await cluster.passes(50.0)
        assert [each.metadata.name for each in cluster.requests] == [first.metadata.name]
        second = await cluster.asked(2)
        await cluster.until(lambda: cluster.consumed("train") == {second.metadata.name})
        cluster.answer("Failed")
        failed = cluster.clock.now()
        await cluster.asked(3)
        assert 119.0 <= cluster.clock.now() - failed <= 120.0 + SOON

    cluster.tell(story)


def test_another_process_goes_on_with_the_same_requests() -> None:
    cluster = AutoscaledCluster()
    cluster.add_gang("train", 4)

    async def story() -> None:
        async with cluster.schedules():
            first = await cluster.asked()
        async with cluster.schedules():
            await cluster.passes(3 * DELAY)
            assert [each.metadata.uid for each in cluster.requests] == [first.metadata.uid]
            cluster.answer("Failed")
        await cluster.passes(40.0)
        failed_for = 40.0
        async with cluster.schedules():
            start = cluster.clock.now()
            await cluster.asked(2)
            assert cluster.clock.now() - start <= 60.0 - failed_for + SOON

    cluster.play(story)


def test_two_processes_at_once_make_one_request() -> None:
    cluster = AutoscaledCluster()
    cluster.add_gang("train", 4)

    async def story() -> None:
        async with cluster.schedules(), cluster.schedules():
            await cluster.asked()
            await cluster.passes(DELAY)
            assert len(cluster.requests) == 1

    cluster.play(story)

    assert len(cluster.list(resources.POD_TEMPLATES)) == 1


def test_templates_that_a_process_could_not_make_any_more_are_made_by_the_next() -> None:
    dead = False

    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        nonlocal dead
        dead = dead or (verb, resource) == ("create", resources.POD_TEMPLATES)
        return Unavailable(0, "", "gone") if dead and verb not in ("list", "watch") else None

    cluster = AutoscaledCluster(faults=faults)
    cluster.add_gang("train", 4)

    async def story() -> None:
        async with cluster.schedules():
            await cluster.until(lambda: dead, 120.0)
        assert len(cluster.requests) == 1 and not cluster.list(resources.POD_TEMPLATES)
        async with cluster.scheduling(cluster.profile):
            await cluster.until(lambda: len(cluster.list(resources.POD_TEMPLATES)) == 1)

    cluster.play(story)

    assert len(cluster.requests) == 1


def test_only_so_many_requests_wait_for_the_autoscaler_and_the_highest_priority_comes_first() -> None:
    cluster = AutoscaledCluster(maxInFlight=1)
    for name, priority in (("low", 1), ("high", 5), ("middle", 3)):
        cluster.add_gang(name, 2, priority=priority)

    def is_gone(uid: str) -> bool:
        return uid not in {each.metadata.uid for each in cluster.requests}

    async def story() -> None:
        names: list[str] = []
        for _ in range(3):
            request = await cluster.asked()
            names.append(request.metadata.name.partition("-")[0])
            await cluster.passes(DELAY)
            assert len(cluster.requests) == 1
            for number in range(2):
                cluster.server.delete(resources.PODS, f"{names[-1]}-{number}")
            await cluster.until(partial(is_gone, request.metadata.uid), GRACE + SOON)
        assert names == ["high", "middle", "low"]

    cluster.tell(story)


def test_a_gang_of_another_size_gets_another_request() -> None:
    cluster = AutoscaledCluster()
    cluster.add_gang("train", 2)

    async def story() -> None:
        before = await cluster.asked()
        cluster.add_pods("train", 2)
        await cluster.until(lambda: [each.spec.pod_sets[0].count for each in cluster.requests] == [3], 120.0)
        assert cluster.requests[0].metadata.name != before.metadata.name

    cluster.tell(story)


def test_where_requests_are_not_served_the_gang_is_told_and_nothing_else_happens() -> None:
    def faults(verb: str, resource: resources.Resource[Any], name: str) -> Exception | None:
        return (
            NotFound(404, "", "404 page not found")
            if (verb, resource) == ("create", resources.PROVISIONING_REQUESTS)
            else None
        )

    cluster = AutoscaledCluster(faults=faults)
    cluster.add_gang("train", 2)

    async def story() -> None:
        await cluster.until(lambda: any("does not serve Prov" in note for note in cluster.notes("train")), 120.0)
        cluster.grow(0)
        await cluster.until(lambda: len(cluster.bound("train")) == 2)

    cluster.tell(story)


def test_requests_of_others_are_left_alone() -> None:
    cluster = AutoscaledCluster()
    of_another = {
        "metadata": {
            "name": "theirs",
            "labels": {custom_resources.PROVISIONING: "true"},
            "annotations": {
                custom_resources.PROVISIONING_GANG: "scheduler-plugins:elsewhere/train",
                custom_resources.PROVISIONING_PROFILE: "gangs",
            },
        }
    }
    cluster.server.create(resources.PROVISIONING_REQUESTS, of_another)
    cluster.server.create(resources.PROVISIONING_REQUESTS, {"metadata": {"name": "kueues"}})
    cluster.add_gang("train", 2)

    async def story() -> None:
        await cluster.until(lambda: len(cluster.requests) == 3, 120.0)
        cluster.grow(0)
        await cluster.until(lambda: len(cluster.requests) == 2, 120.0)

    cluster.tell(story)

    assert [each.metadata.name for each in cluster.requests] == ["kueues", "theirs"]
