"""Gangs that were evicted in part are found while the other work of the loop goes on."""

from __future__ import annotations

import asyncio

import msgspec

from gangline import model
from gangline.testing import make_pod
from gangline.testing.gangs import GROUP, Gangs, fabric
from gangline_plugins.preemption.finishing import AT_ONCE, unfinished

MARK = model.PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")


async def test_on_a_large_cluster_other_work_goes_on_while_a_gang_that_was_evicted_in_part_is_found() -> None:
    gangs, turns = Gangs(fabric()), 0
    for number in range(3 * AT_ONCE):
        gangs.cache.upsert_pod(gangs.cache.record(make_pod(f"p{number}", node="unknown")))
    gangs.define("victims", 2)
    victim = make_pod("v", node="s0-l0-n0", labels={GROUP: "victims"})
    marked = msgspec.structs.replace(victim, status=model.PodStatus(conditions=[MARK]))
    gangs.cache.upsert_pod(gangs.cache.record(marked))

    search = asyncio.create_task(unfinished(gangs.handle, frozenset))
    while not search.done():
        turns += 1
        await asyncio.sleep(0)

    ((_, members),) = search.result().items()
    assert [pod.name for pod in members] == ["v"] and turns > 3
