"""What is written when a preemption is carried out."""

from __future__ import annotations

import asyncio

import pytest

from gangline import ApiError, Conflict, NotFound, Unavailable
from gangline.testing import PodAtPermit
from gangline_plugins.preemption.evicting import Evictor, Preemptor

from ..default_preemption_cases import Cluster, cluster, node, pod

DELETED = {"deletionTimestamp": "2024-01-01T00:00:00Z"}
GONE = NotFound(404, "NotFound", "gone")
DOWN = Unavailable(503, "ServiceUnavailable", "try later")
FORBIDDEN = ApiError(403, "Forbidden", "no")


def full_node() -> Cluster:
    """One node with the victims "high" and "low"."""
    return cluster([node("a")], [pod("high", 2, 2, "a"), pod("low", 2, 1, "a")])


def deletions(found: Cluster) -> list[str]:
    return [name for verb, name, _ in found.client.calls if verb == "delete"]


async def test_a_victim_is_marked_and_then_deleted() -> None:
    found = cluster([node("a")], [pod("v", 4, 1, "a")])

    assert found.preempt(pod("p", 4, 10)) == "a"
    await found.carry_out()

    (_, _, patch), deletion = found.client.calls
    (condition,) = patch["status"]["conditions"]
    assert condition.pop("lastTransitionTime").endswith("Z")
    assert condition == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
    }
    assert deletion == ("delete", "v", "v")
    assert found.events == [("v", "Preempted", "Preempted by pod p on node a")]


async def test_nothing_is_written_before_the_work_is_run() -> None:
    found = full_node()

    found.preempt(pod("p", 4, 10))

    assert found.client.calls == []
    await found.carry_out()
    assert sorted(deletions(found)) == ["high", "low"]


async def test_a_victim_that_is_being_deleted_is_left_alone() -> None:
    found = cluster([node("a")], [pod("v", 4, 1, "a", metadata=DELETED)])

    assert found.preempt(pod("p", 4, 10)) == "a"
    await found.carry_out()

    assert found.client.calls == []


async def test_a_victim_that_is_marked_already_is_only_deleted() -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
    }
    found = cluster([node("a")], [pod("v", 4, 1, "a", status={"conditions": [condition]})])

    found.preempt(pod("p", 4, 10))
    await found.carry_out()

    assert found.client.calls == [("delete", "v", "v")]


async def test_a_victim_held_at_permit_is_rejected_there() -> None:
    found = cluster([node("a")], [pod("v", 4, 1, "a")])
    held = PodAtPermit(found.cache.pods["v"], "a", {"Gang"})
    found.fakes.waiting.add(held)

    found.preempt(pod("p", 4, 10))
    await found.carry_out()

    assert held.verdict is not None and held.verdict.plugin == "DefaultPreemption"
    assert found.client.calls == []
    assert found.events == [("v", "Preempted", "Preempted by pod p on node a (in scheduler memory).")]


@pytest.mark.parametrize("verb", ["patch", "delete"])
async def test_a_victim_that_is_gone_is_fine(verb: str) -> None:
    found = full_node()
    found.client.failures[(verb, "high")] = [GONE]

    found.preempt(pod("p", 4, 10))
    await found.carry_out()

    assert "low" in deletions(found)
    assert [event[0] for event in found.events] == ["low"]


async def test_another_pod_with_the_name_of_a_victim_is_left_alone() -> None:
    found = full_node()
    found.client.failures[("delete", "high")] = [Conflict(409, "Conflict", "uid")]

    found.preempt(pod("p", 4, 10))
    await found.carry_out()

    assert [event[0] for event in found.events] == ["low"]


@pytest.mark.parametrize("verb", ["patch", "delete"])
async def test_a_victim_that_somebody_else_writes_at_the_same_moment_is_evicted_all_the_same(verb: str) -> None:
    found = full_node()
    found.client.there = {"high", "low"}
    found.client.failures[(verb, "high")] = [Conflict(409, "Conflict", "the object has been modified")]

    found.preempt(pod("p", 4, 10))
    await found.carry_out()

    assert sorted(set(deletions(found))) == ["high", "low"]
    assert sorted(event[0] for event in found.events) == ["high", "low"]


async def test_a_victim_whose_removal_always_conflicts_is_a_failure_so_that_it_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = cluster([node("a")], [pod("v", 4, 1, "a")])
    found.client.there = {"v"}
    found.client.failures[("delete", "v")] = [Conflict(409, "Conflict", "the object has been modified")] * 9
    evictor = Evictor(found.handle, "DefaultPreemption")

    await evictor.evict(Preemptor.of(found.pod(pod("p", 4, 10)), "a"), [found.cache.pods["v"]])

    assert not evictor.is_running("p") and "the object has been modified" in caplog.text


async def test_after_a_failure_the_last_victim_stays(caplog: pytest.LogCaptureFixture) -> None:
    found = full_node()
    found.client.failures[("delete", "high")] = [FORBIDDEN]

    found.preempt(pod("p", 4, 10))
    await found.carry_out()

    assert deletions(found) == ["high"]
    assert "pod d/p: preemption on node a: 403 Forbidden: no" in caplog.text


async def test_the_condition_is_written_again_after_a_failure_that_may_pass() -> None:
    found = cluster([node("a")], [pod("v", 4, 1, "a")])
    found.client.failures[("patch", "v")] = [DOWN, DOWN]
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    evictor = Evictor(found.handle, "DefaultPreemption", pause)
    await evictor.evict(Preemptor.of(found.pod(pod("p", 4, 10)), "a"), [found.cache.pods["v"]])

    assert deletions(found) == ["v"]
    assert pauses == [0.01, 0.05]


async def test_nominations_of_less_important_pods_are_taken_back() -> None:
    found = full_node()
    others = {name: found.pod(pod(name, 1, priority)) for name, priority in (("less", 5), ("equal", 10))}
    found.fakes.fake_pending.nominations = {"a": others}

    found.preempt(pod("p", 1, 10))
    await found.carry_out()

    assert found.client.calls[0] == (
        "patch",
        "less",
        {"metadata": {"uid": "less"}, "status": {"nominatedNodeName": None}},
    )
    assert not any(name == "equal" for _, name, _ in found.client.calls)


async def test_no_second_preemption_starts_while_one_is_carried_out() -> None:
    found = full_node()
    waiting = found.pod(pod("p", 4, 10))
    held, release = asyncio.Event(), asyncio.Event()
    found.client.failures[("patch", "low")] = [DOWN]

    async def hold(seconds: float) -> None:
        held.set()
        await release.wait()

    evictor = Evictor(found.handle, "DefaultPreemption", hold)
    work = asyncio.create_task(evictor.evict(Preemptor.of(waiting, "a"), list(found.cache.pods.values())))
    await held.wait()
    during = evictor.is_running("p")
    found.cache.remove_pod("high")
    found.cache.remove_pod("low")
    after_the_last_is_gone = evictor.is_running("p")
    release.set()
    await work

    assert (during, after_the_last_is_gone, evictor.is_running("p")) == (True, False, False)


async def test_a_preemption_goes_on_until_its_victims_are_known_to_leave() -> None:
    found = cluster([node("a")], [pod("v", 4, 1, "a")])
    evictor = Evictor(found.handle, "DefaultPreemption")
    preemptor = Preemptor.of(found.pod(pod("p", 4, 10)), "a")

    await evictor.evict(preemptor, [found.cache.pods["v"]])

    assert evictor.is_running("p")
    found.cache.upsert_pod(found.pod(pod("v", 4, 1, "a", metadata=DELETED)))
    assert not evictor.is_running("p")


async def test_a_preemption_that_failed_is_over(caplog: pytest.LogCaptureFixture) -> None:
    found = cluster([node("a")], [pod("v", 4, 1, "a")])
    found.client.failures[("delete", "v")] = [FORBIDDEN]
    evictor = Evictor(found.handle, "DefaultPreemption")

    await evictor.evict(Preemptor.of(found.pod(pod("p", 4, 10)), "a"), [found.cache.pods["v"]])

    assert not evictor.is_running("p") and "403 Forbidden" in caplog.text
