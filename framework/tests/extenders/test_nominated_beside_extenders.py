"""Pods that extenders have a say about, beside pods that are nominated."""

from __future__ import annotations

import asyncio

import pytest

from gangline.groups.keys import KOORDINATOR_GROUP, KOORDINATOR_MIN_AVAILABLE
from gangline.simulate import InMemoryServer, VirtualClock

from ..simulate.stories import in_virtual_time
from .test_scheduling_with_extenders import extender, extenders, node, only, place, pod, scheduling


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@in_virtual_time
async def test_a_gang_that_lacks_members_keeps_no_room_from_them(clock: VirtualClock) -> None:
    cluster = InMemoryServer(clock)
    cluster.apply_manifest(node("a"))
    member = pod("member", cpu="6")
    member["metadata"]["annotations"] = {KOORDINATOR_GROUP: "gang", KOORDINATOR_MIN_AVAILABLE: "2"}
    member["status"] = {"nominatedNodeName": "a"}
    cluster.apply_manifest(member)
    asker = extenders({"filter": only("a")})
    async with scheduling(cluster, clock, asker, extender(filterVerb="filter"), plugins=["GangPermit"]):
        await asyncio.sleep(1)
        cluster.apply_manifest(pod("p", cpu="6"))
        await asyncio.sleep(5)

    assert place(cluster) == "a"
