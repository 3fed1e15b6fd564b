"""Leader election in virtual time: who leads, from when, and until when."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from random import Random

import pytest

from gangline.api.term import Term
from gangline.clock import rfc3339
from gangline.config import LeaderElection
from gangline.errors import LeadershipLost
from gangline.kube.handing_over import ANNOTATION
from gangline.kube.outbox import LANDING
from gangline.model import LeaseSpec
from gangline.process.leading import JITTER, UNSETTLED, Elector, LeaseStep, claim, decide
from gangline.process.tenure import Tenure
from gangline.simulate.time import EPOCH, VirtualClock, run

from ..fake_leases import LeaseClient, LeaseStore

SETTINGS = LeaderElection()
LEASE = (SETTINGS.resource_namespace, SETTINGS.resource_name)
LONGEST_WAIT = SETTINGS.retry_period * (1 + JITTER) + 0.1
"""Seconds between two tries of a candidate at most, with the requests."""


class Skewed:
    """A clock whose time of day is off by some seconds."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._seconds

    def now(self) -> float:
        return self._clock.now() + self._seconds


class Replica:
    """One process: its elector, its connection, and work that takes ``winds_down`` seconds to stop."""

    def __init__(self, world: World, name: str, skew: float, winds_down: float) -> None:
        self.client = LeaseClient(world.store)
        self.told: list[bool] = []
        self.spans: list[tuple[float, float]] = []
        clock = Skewed(world.clock, skew)
        self.tenure = Tenure(clock)
        self.hangs: str | None = None
        self.elector = Elector(
            self.client.as_client(),
            clock,
            SETTINGS,
            name,
            Random(name),
            on_leading=self.told.append,
            tenure=self.tenure,
            complaint=lambda: self.hangs,
        )
        self._world = world
        self._led = asyncio.Event()
        self._winds_down = winds_down
        self.running = asyncio.create_task(self.elector.run(self.lead))

    async def lead(self) -> None:
        began = self._world.now
        self._led.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self._winds_down)
            self.spans.append((began, self._world.now))

    async def leads(self) -> float:
        """When it has become the leader."""
        await self._led.wait()
        return self._world.now

    async def stop(self, is_clean: bool = True) -> None:
        """What SIGTERM does."""
        self.tenure.is_clean = is_clean
        self.running.cancel()
        with suppress(asyncio.CancelledError, LeadershipLost):
            await self.running


class World:
    """The leases, the time, and the replicas that a test starts."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = LeaseStore()
        self.replicas: list[Replica] = []

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    @property
    def record(self) -> LeaseSpec:
        return self.store.leases[LEASE].spec

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let a tenth of a second pass again and again until something holds."""
        while True:
            if holds():
                return
            await asyncio.sleep(0.1)

    def start(self, name: str, skew: float = 0.0, winds_down: float = 0.0) -> Replica:
        self.replicas.append(Replica(self, name, skew, winds_down))
        return self.replicas[-1]

    async def play(self, story: Callable[[World], Awaitable[None]]) -> None:
        async with asyncio.timeout(100_000):
            await story(self)
        for replica in self.replicas:
            await replica.stop()


def in_virtual_time(story: Callable[[World], Coroutine[None, None, None]]) -> None:
    world = World()
    run(world.play(story), world.clock)


# Deciding

HELD = LeaseSpec(
    holder_identity="other", lease_duration_seconds=15, acquire_time="A", renew_time="R", lease_transitions=3
)
FREE = LeaseSpec(holder_identity="", lease_duration_seconds=1, lease_transitions=3)


@pytest.mark.parametrize(
    ("record", "now", "identity", "action"),
    [
        pytest.param(None, 100.0, "me", LeaseStep.CREATE, id="there is no lease"),
        pytest.param(HELD, 114.9, "me", LeaseStep.WAIT, id="another holds it"),
        pytest.param(HELD, 115.0, "me", LeaseStep.TAKE, id="another's has run out"),
        pytest.param(HELD, 100.0, "other", LeaseStep.RENEW, id="it is ours"),
        pytest.param(HELD, 999.0, "other", LeaseStep.RENEW, id="ours has run out and nobody took it"),
        pytest.param(FREE, 100.0, "me", LeaseStep.TAKE, id="it was released"),
        pytest.param(LeaseSpec(), 100.0, "me", LeaseStep.TAKE, id="the record is empty"),
    ],
)
def test_what_a_replica_does_follows_from_the_record(
    record: LeaseSpec | None, now: float, identity: str, action: LeaseStep
) -> None:
    assert decide(record, 100.0, now, identity) is action


@pytest.mark.parametrize(
    ("record", "action", "acquired", "transitions"),
    [
        pytest.param(None, LeaseStep.CREATE, rfc3339(EPOCH, micros=True), 0, id="a new lease"),
        pytest.param(HELD, LeaseStep.TAKE, rfc3339(EPOCH, micros=True), 4, id="a change of leaders"),
        pytest.param(HELD, LeaseStep.RENEW, "A", 3, id="a renewal"),
    ],
)
def test_a_claim_counts_changes_of_the_leader(
    record: LeaseSpec | None, action: LeaseStep, acquired: str, transitions: int
) -> None:
    written = claim(record, action, "me", 14.2, EPOCH)

    assert written == LeaseSpec("me", 15, acquired, "2026-01-01T00:00:00.000000Z", transitions)


# Racing


def test_of_two_racing_replicas_exactly_one_leads() -> None:
    async def story(world: World) -> None:
        a, b = world.start("a"), world.start("b")
        await asyncio.sleep(600)

        leading = [replica for replica in (a, b) if replica.elector.is_leading]
        assert len(leading) == 1
        assert {a.elector.leader, b.elector.leader} == {world.record.holder_identity}
        assert (a.client.asked[:2], b.client.asked[:2]) == (["get", "create"], ["get", "create"])
        assert world.record.lease_transitions == 0

    in_virtual_time(story)


def test_of_two_that_take_the_same_free_lease_one_gets_a_conflict_and_waits() -> None:
    async def story(world: World) -> None:
        world.store.put(*LEASE, FREE)
        a, b = world.start("a"), world.start("b")
        await asyncio.sleep(1)

        assert (a.client.asked[:2], b.client.asked[:2]) == (["get", "replace"], ["get", "replace"])
        assert [a.elector.is_leading, b.elector.is_leading].count(True) == 1
        assert world.record.lease_transitions == 4

    in_virtual_time(story)


def test_the_leader_renews_every_retry_period_without_reading() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await asyncio.sleep(3600)

        assert a.elector.is_leading
        assert set(a.client.asked[2:]) == {"replace"}
        assert 1750 < len(a.client.asked) <= 1802
        assert world.record.acquire_time != world.record.renew_time

    in_virtual_time(story)


@pytest.mark.parametrize("seed", range(8))
def test_with_failing_networks_and_restarts_two_never_lead_at_once(seed: int) -> None:
    async def story(world: World) -> None:
        rng = Random(seed)
        alive = [world.start(f"r{i}", skew=rng.uniform(-500, 500)) for i in range(3)]
        names = (f"r{i}" for i in itertools.count(3))
        for _ in range(300):
            await asyncio.sleep(rng.expovariate(1 / 5))
            at = rng.randrange(3)
            if alive[at].running.done():
                alive[at] = world.start(next(names), skew=rng.uniform(-500, 500))
            rng.choice([alive[at].client.cut, alive[at].client.mend, alive[at].client.mend])()
            alive[at].client.hangs = rng.random() < 0.2
            if rng.random() < 0.05:
                await alive[at].stop()
        for replica in alive:
            await replica.stop()

        spans = sorted(span for replica in world.replicas for span in replica.spans)
        assert len(spans) > 5
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))

    in_virtual_time(story)


# Taking over


@pytest.mark.parametrize("skew", [0.0, -3600.0, 3600.0], ids=["same clocks", "an hour behind", "an hour ahead"])
def test_a_standby_takes_over_when_a_dead_leaders_lease_has_run_out(skew: float) -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        b = world.start("b", skew=skew)
        await asyncio.sleep(60)
        a.client.cut()
        died = world.now
        took = await b.leads() - died

        low, high = SETTINGS.lease_duration - SETTINGS.retry_period, SETTINGS.lease_duration + 2 * LONGEST_WAIT
        assert low <= took <= high
        assert b.elector.leader == "b"
        assert world.record.lease_transitions == 1

    in_virtual_time(story)


@pytest.mark.parametrize("skew", [-3600.0, 3600.0], ids=["an hour behind", "an hour ahead"])
def test_a_renewed_lease_is_respected_whatever_its_times_say(skew: float) -> None:
    async def story(world: World) -> None:
        a = world.start("a", skew=skew)
        await a.leads()
        b = world.start("b")
        await asyncio.sleep(600)

        assert a.elector.is_leading
        assert b.told == [False]
        assert b.elector.leader == "a"

    in_virtual_time(story)


def test_a_lease_found_at_the_start_is_respected_for_its_whole_duration() -> None:
    async def story(world: World) -> None:
        long_ago = rfc3339(EPOCH - 86400, micros=True)
        world.store.put(*LEASE, LeaseSpec("gone", 30, long_ago, long_ago, 0))
        a = world.start("a")

        assert 30 <= await a.leads() <= 30 + LONGEST_WAIT

    in_virtual_time(story)


def test_a_standby_takes_over_at_its_next_try_when_the_leader_is_stopped() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        b = world.start("b")
        await asyncio.sleep(60)
        await a.stop()
        stopped = world.now
        released = copy.deepcopy(world.record)
        took = await b.leads() - stopped

        assert (released.holder_identity, released.lease_duration_seconds) == ("", 1)
        assert a.elector.leader == ""
        assert took <= LONGEST_WAIT
        assert world.record.lease_transitions == 1

    in_virtual_time(story)


@pytest.mark.parametrize(
    ("refused", "within"), [(set(), 0.2), ({"watch"}, LONGEST_WAIT)], ids=["watched", "not watched"]
)
def test_a_lease_that_is_given_up_is_taken_at_once_where_it_is_watched(refused: set[str], within: float) -> None:
    async def story(world: World) -> None:
        leader, took = world.start("0"), []
        await leader.leads()
        for turn in range(1, 9):
            standby = world.start(str(turn))
            standby.client.refused = refused
            await asyncio.sleep(60 + turn / 3)
            await leader.stop()
            began = world.now
            took.append(await standby.leads() - began)
            leader = standby

        assert max(took) <= within
        assert (max(took) <= 0.2) == (not refused)

    in_virtual_time(story)


@pytest.mark.parametrize(("refused", "late"), [(set(), 0.2), ({"watch"}, LONGEST_WAIT)], ids=["watched", "not watched"])
def test_the_lease_of_a_dead_leader_is_taken_as_soon_as_it_has_run_out(refused: set[str], late: float) -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        standbys = [world.start("b"), world.start("c")]
        for each in standbys:
            each.client.refused = refused
        await asyncio.sleep(61.0)
        a.client.cut()
        cut = world.now
        await world.until(lambda: any(each.elector.is_leading for each in standbys))

        low = SETTINGS.lease_duration - SETTINGS.retry_period
        assert low <= world.now - cut <= SETTINGS.lease_duration + late
        assert sum(each.elector.is_leading for each in standbys) == 1

    in_virtual_time(story)


def test_a_lease_that_is_given_up_again_and_again_but_cannot_be_taken_is_tried_once_each_time() -> None:
    async def story(world: World) -> None:
        world.store.put(*LEASE, LeaseSpec(holder_identity="x", lease_duration_seconds=15))
        b = world.start("b")
        b.client.refused = {"replace"}
        await asyncio.sleep(60)
        b.client.asked.clear()
        for number in range(20):
            world.store.put(*LEASE, LeaseSpec(holder_identity="", lease_transitions=number))
            await asyncio.sleep(0.5)

        assert 20 <= b.client.asked.count("replace") <= 20 + 10 / SETTINGS.retry_period

    in_virtual_time(story)


def test_what_a_leader_hands_over_reaches_the_next_one_and_nobody_else() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        b, c = world.start("b"), world.start("c")
        a.tenure.hands_over = lambda: "pods=7"
        await asyncio.sleep(60)
        await a.stop()
        await world.until(lambda: b.elector.is_leading or c.elector.is_leading)
        second, third = (b, c) if b.elector.is_leading else (c, b)
        assert (a.tenure.handed_over, second.tenure.handed_over) == ("", "pods=7")
        assert ANNOTATION not in (world.store.leases[LEASE].metadata.annotations or {})
        second.client.cut()
        await third.leads()

        assert third.tenure.handed_over == ""

    in_virtual_time(story)


def test_the_lease_is_kept_while_stopped_work_winds_down_and_released_then() -> None:
    async def story(world: World) -> None:
        a = world.start("a", winds_down=40.0)
        await a.leads()
        b = world.start("b")
        await asyncio.sleep(20)
        stopped = world.now
        await a.stop()
        await b.leads()
        (span,) = a.spans

        assert span[1] == pytest.approx(stopped + 40)
        assert world.record.lease_transitions == 1
        assert span[1] < world.now <= span[1] + LONGEST_WAIT

    in_virtual_time(story)


def test_a_replica_stopped_while_it_waits_leaves_the_lease_alone() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        b = world.start("b")
        await asyncio.sleep(20)
        await b.stop()

        assert b.running.cancelled()
        assert set(b.client.asked) == {"get", "watch"}
        assert a.elector.is_leading

    in_virtual_time(story)


def test_a_release_that_fails_does_not_hide_the_cancellation() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        a.client.cut()
        await a.stop()

        assert a.running.cancelled()
        assert world.record.holder_identity == "a"

    in_virtual_time(story)


# Renewing


@pytest.mark.parametrize("how", ["refused", "not answered"])
def test_failures_shorter_than_the_deadline_keep_leadership(how: str) -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        b = world.start("b")
        for _ in range(20):
            await asyncio.sleep(20)
            if how == "refused":
                a.client.cut()
            else:
                a.client.hangs = True
            await asyncio.sleep(SETTINGS.renew_deadline / 2 - 1)
            a.client.mend()

        assert a.elector.is_leading
        assert (a.told, b.told) == ([False, True], [False])

    in_virtual_time(story)


def test_leadership_ends_when_renewals_fail_for_the_deadline() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        await asyncio.sleep(60)
        a.client.cut()
        cut = world.now
        with pytest.raises(LeadershipLost, match=r"lost the lease kube-system/gangline: not renewed.*refused"):
            await a.running
        (span,) = a.spans

        deadline = SETTINGS.renew_deadline
        assert deadline <= span[1] - cut <= deadline + SETTINGS.retry_period < SETTINGS.lease_duration
        assert world.record.holder_identity == "a"
        assert a.told == [False, True, False]

    in_virtual_time(story)


def test_a_leader_that_gets_no_answers_ends_with_its_work_and_asks_for_nothing_more() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        a.client.hangs = True
        with pytest.raises(LeadershipLost, match="no answer in time"):
            await a.running

        assert world.now == a.spans[0][1] <= SETTINGS.lease_duration

    in_virtual_time(story)


def test_a_renewal_that_comes_too_late_does_not_bring_leadership_back() -> None:
    async def story(world: World) -> None:
        a = world.start("a", winds_down=10.0)
        await a.leads()
        a.client.cut()
        await asyncio.sleep(9)
        a.client.mend()
        a.client.latency = 1.0
        with pytest.raises(LeadershipLost):
            await a.running

        assert world.record.renew_time != world.record.acquire_time
        assert a.told == [False, True, False]

    in_virtual_time(story)


def test_leadership_once_lost_is_not_renewed_while_the_work_winds_down() -> None:
    async def story(world: World) -> None:
        a = world.start("a", winds_down=10.0)
        await a.leads()
        a.client.cut()
        await asyncio.sleep(SETTINGS.renew_deadline + SETTINGS.retry_period + 0.01)
        a.client.mend()
        asked, before = len(a.client.asked), copy.deepcopy(world.record)
        with pytest.raises(LeadershipLost):
            await a.running

        assert len(a.client.asked) == asked
        assert world.record == before

    in_virtual_time(story)


def test_a_leader_stops_at_once_when_another_holds_the_lease() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        world.store.put(*LEASE, HELD)
        with pytest.raises(LeadershipLost, match="other holds it now"):
            await a.running

        assert world.now <= LONGEST_WAIT
        assert world.record == HELD

    in_virtual_time(story)


def test_a_lease_changed_from_outside_is_renewed_in_the_same_try() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        lease = world.store.leases[LEASE]
        lease.metadata.annotations = {"seen": "yes"}
        world.store.write(lease)
        await asyncio.sleep(SETTINGS.retry_period + 0.5)

        assert a.client.asked == ["get", "create", "replace", "get", "replace"]
        assert world.store.leases[LEASE].metadata.annotations == {"seen": "yes"}
        assert world.record.lease_transitions == 0
        assert a.elector.is_leading

    in_virtual_time(story)


def test_a_lease_deleted_under_its_leader_is_made_again() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        world.store.leases.clear()
        await asyncio.sleep(60)

        assert a.elector.is_leading
        assert world.record.holder_identity == "a"

    in_virtual_time(story)


def test_a_lease_deleted_under_its_leader_is_not_taken_by_another_before_it_would_have_run_out() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        b = world.start("b")
        await asyncio.sleep(30)
        for _ in range(20):
            world.store.delete(*LEASE)
            await asyncio.sleep(SETTINGS.retry_period * 1.3)

        assert a.elector.is_leading and True not in b.told
        world.store.delete(*LEASE)
        a.client.cut()
        cut, led = world.now, await b.leads()
        assert a.spans[0][1] <= led <= cut + SETTINGS.lease_duration + LONGEST_WAIT

    in_virtual_time(story)


def test_a_lease_that_is_made_again_for_its_leader_has_the_same_number_and_a_larger_one_for_the_next() -> None:
    async def story(world: World) -> None:
        a, b = world.start("a"), world.start("b")
        await a.leads()
        await a.stop()
        await b.leads()
        before = world.record
        world.store.leases.clear()
        await asyncio.sleep(60)
        c = world.start("c")
        await asyncio.sleep(60)

        assert before.lease_transitions and world.record.holder_identity == "b"
        assert world.record.lease_transitions == before.lease_transitions
        assert world.record.acquire_time == before.acquire_time

        b.client.cut()
        world.store.leases.clear()
        await c.leads()

        assert int(c.tenure.term.name.rpartition("/")[2]) > before.lease_transitions

    in_virtual_time(story)


# The work


@pytest.mark.parametrize("error", [ValueError("broken"), TimeoutError("its own")], ids=repr)
def test_an_error_of_the_work_comes_out_as_it_is_and_the_lease_runs_out(error: Exception) -> None:
    """Bindings that the error has cancelled may still arrive: the next leader must not take them for settled."""

    async def story(world: World) -> None:
        async def fail() -> None:
            raise error

        elector = Elector(LeaseClient(world.store).as_client(), world.clock, SETTINGS, "a", Random(1))
        with pytest.raises(type(error)) as raised:
            await elector.run(fail)

        assert raised.value is error
        assert world.record.holder_identity == "a"
        assert not elector.is_leading

        b = world.start("b")
        assert await b.leads() >= SETTINGS.lease_duration
        assert b.tenure.term.settled >= world.now + LANDING - 1

    in_virtual_time(story)


def test_run_returns_and_releases_when_the_work_is_done() -> None:
    async def story(world: World) -> None:
        tenure = Tenure(world.clock)

        async def work() -> None:
            await asyncio.sleep(100)
            tenure.is_clean = True

        client = LeaseClient(world.store).as_client()
        elector = Elector(client, world.clock, SETTINGS, "a", Random(1), tenure=tenure)
        await elector.run(work)

        assert 100 <= world.now < 101
        assert world.record.holder_identity == ""

    in_virtual_time(story)


# What the loop that decides is told, and what is told of it


@pytest.mark.parametrize("skew", [0.0, 3600.0], ids=["same clocks", "an hour ahead"])
def test_what_is_written_in_another_thread_may_be_written_until_the_deadline_and_no_longer(skew: float) -> None:
    async def story(world: World) -> None:
        a = world.start("a", skew=skew, winds_down=60.0)  # its loop is held: the cancellation has no effect for long
        before = a.tenure.holds()
        await a.leads()
        held = a.tenure.holds()
        await asyncio.sleep(60)
        a.client.cut()
        cut = world.now
        await world.until(lambda: not a.tenure.holds())

        assert (before, held) == (False, True)
        assert world.now - cut <= SETTINGS.renew_deadline + SETTINGS.retry_period + 0.1 < SETTINGS.lease_duration
        assert not a.running.done()

    in_virtual_time(story)


def test_nothing_may_be_written_any_more_once_another_holds_the_lease_or_the_work_has_ended() -> None:
    async def story(world: World) -> None:
        a, b = world.start("a", winds_down=5.0), world.start("b")
        await a.leads()
        world.store.put(*LEASE, HELD)
        await world.until(lambda: not a.tenure.holds())
        assert world.now <= LONGEST_WAIT
        await a.stop()
        await b.leads()
        await b.stop()

        assert not b.tenure.holds()

    in_virtual_time(story)


def test_each_leader_of_an_election_has_a_larger_number_than_the_one_before() -> None:
    async def story(world: World) -> None:
        replicas = [world.start(name) for name in "abc"]
        assert {replica.tenure.term for replica in replicas} == {Term()}
        terms = []
        for _ in replicas:
            await world.until(lambda: any(replica.elector.is_leading for replica in replicas))
            leader = next(replica for replica in replicas if replica.elector.is_leading)
            terms.append(leader.tenure.term)
            await asyncio.sleep(60)
            assert leader.tenure.term == terms[-1]
            await leader.stop()

        names = [term.name.rpartition("/") for term in terms]
        assert {name for name, _, _ in names} == {"/".join(LEASE)}
        numbers = [int(number) for _, _, number in names]
        assert numbers == sorted(set(numbers)) and len(numbers) == 3

    in_virtual_time(story)


@pytest.mark.parametrize("end", ["stopped", "stopped with bindings under way", "killed"])
def test_only_after_a_leader_that_was_done_with_its_writes_nothing_has_to_be_waited_for(end: str) -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        b = world.start("b")
        await asyncio.sleep(60)
        if end == "killed":
            a.client.cut()
        stopped = world.now
        await a.stop(is_clean=end == "stopped")
        began = await b.leads()

        settled = b.tenure.term.settled - b.elector._clock.monotonic() + world.now  # clocks of replicas differ
        assert (began - stopped < LONGEST_WAIT) == (end == "stopped")
        assert settled <= began if end == "stopped" else settled >= began + LANDING - 1

    in_virtual_time(story)


@pytest.mark.parametrize("said", ["as written", "60 s", "61", "-1", "٣"])
def test_a_clean_stop_settles_nothing_that_a_leader_cut_off_before_has_under_way(said: str) -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        await a.leads()
        b = world.start("b")
        a.client.cut()
        await b.leads()
        c = world.start("c")
        settled = b.tenure.term.settled - b.elector._clock.monotonic() + world.now  # clocks of replicas differ
        await asyncio.sleep(5)
        await b.stop()
        if said != "as written":
            annotations = world.store.leases[LEASE].metadata.annotations or {}
            assert UNSETTLED in annotations
            annotations[UNSETTLED] = said
        began = await c.leads()

        after = c.tenure.term.settled - c.elector._clock.monotonic() + world.now
        assert settled <= after <= (settled + 3 if said == "as written" else began + LANDING)
        assert UNSETTLED not in (world.store.leases[LEASE].metadata.annotations or {})

        d = world.start("d")
        await asyncio.sleep(LANDING)
        await c.stop()
        began = await d.leads()
        assert d.tenure.term.settled - d.elector._clock.monotonic() + world.now <= began

    in_virtual_time(story)


def test_a_process_that_hangs_loses_the_lease_and_another_takes_over() -> None:
    async def story(world: World) -> None:
        a = world.start("a", winds_down=1000.0)
        await a.leads()
        b = world.start("b")
        await asyncio.sleep(60)
        a.hangs, hung = "the event loop has not turned for 61 s", world.now
        took = await b.leads() - hung

        assert took <= SETTINGS.lease_duration + LONGEST_WAIT
        assert not a.tenure.holds()
        with pytest.raises(LeadershipLost, match=r"the event loop has not turned for 61 s|b holds it now"):
            await a.running

    in_virtual_time(story)


def test_a_process_that_hangs_does_not_become_the_leader() -> None:
    async def story(world: World) -> None:
        a = world.start("a")
        a.hangs = "the event loop has not turned for 61 s"
        await asyncio.sleep(60)
        asked = list(a.client.asked)
        a.hangs = None
        await a.leads()

        assert asked == []

    in_virtual_time(story)
