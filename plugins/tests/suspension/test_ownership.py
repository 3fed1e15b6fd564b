"""Who resumes what a profile has suspended that is not there any more, or that belongs to other schedulers."""

from __future__ import annotations

import msgspec
import pytest

from gangline import rfc3339
from gangline_plugins.suspension.record import SuspensionRecord

from .test_story import BY, RECORD, Suspensions

LATER = "  plugins: {multiPoint: {enabled: [{name: Suspension}]}}\n"


class WithOthers(Suspensions):
    """A profile that is renamed, or has others beside it."""

    def rename(self, name: str = "renamed") -> None:
        """The profile has another name, from the next configuration on."""
        self.profile = self.profile.replace("schedulerName: gangs", f"schedulerName: {name}")

    def lose_the_plugin(self) -> None:
        """The profile suspends nothing any more, from the next configuration on; another profile does."""
        self.profile = self.profile.replace(", {name: Suspension}", "").replace(
            "{name: Suspension, args: {resumeSeconds: 3600}}, ", ""
        )
        self.add_profile("others")

    def add_profile(self, name: str) -> None:
        """There is another profile that suspends, from the next configuration on."""
        self.profile += f"- schedulerName: {name}\n{LATER}"

    def say(self, **fields: object) -> None:
        """The record on the Job says something else."""
        record = msgspec.json.decode(self.notes_on_job()[RECORD])
        self.change("train", {}, {RECORD: msgspec.json.encode({**record, **fields}).decode()})

    async def is_resumed(self, seconds: float = 15.0) -> float:
        """Wait until the Job runs again, without a record."""
        return await self.until(lambda: not self.is_suspended() and BY not in self.notes_on_job(), seconds)

    async def stays(self, seconds: float = 120.0) -> None:
        """The Job stays suspended, with its record."""
        with pytest.raises(TimeoutError):
            await self.until(lambda: not self.is_suspended() or BY not in self.notes_on_job(), seconds)


@pytest.mark.parametrize("is_restart", [False, True], ids=["reload", "restart"])
@pytest.mark.parametrize("change", [WithOthers.rename, WithOthers.lose_the_plugin])
def test_what_a_profile_has_suspended_that_does_so_no_more_is_resumed(change: object, is_restart: bool) -> None:
    cluster = WithOthers(resume=3600)

    async def story() -> None:
        await cluster.is_preempted()
        assert callable(change)
        change(cluster)
        if is_restart:
            await cluster.restart()
        else:
            cluster.reload()
        await cluster.is_resumed()

    cluster.play(story)

    assert any("suspends no workloads any more: gangs" in note for note in cluster.notes())


def test_what_another_profile_has_suspended_is_left_to_it() -> None:
    cluster = WithOthers(resume=3600)
    cluster.add_profile("a-first")

    async def story() -> None:
        await cluster.is_preempted()
        await cluster.stays()

    cluster.play(story)


def test_what_the_schedulers_of_another_election_have_suspended_is_left_to_them_until_they_are_late() -> None:
    cluster = WithOthers(resume=200)

    async def story() -> float:
        await cluster.is_preempted()
        cluster.say(election="kube-system/other")
        cluster.rename()
        cluster.reload()
        await cluster.stays(400.0)
        return await cluster.is_resumed(200.0)

    cluster.play(story)


@pytest.mark.parametrize(
    "said", ["", "{", '{"at": "yesterday", "generation": 1, "priority": 0, "why": "", "election": "a/b"}']
)
def test_an_unreadable_record_of_another_profile_is_left_alone(said: str) -> None:
    cluster = WithOthers(resume=3600)

    async def story() -> None:
        await cluster.is_preempted()
        cluster.change("train", {}, {RECORD: said})
        cluster.rename()
        cluster.reload()
        await cluster.stays()

    cluster.play(story)


def test_a_job_that_was_changed_after_its_profile_went_is_left_to_whoever_changed_it() -> None:
    cluster = WithOthers(resume=3600)

    async def story() -> None:
        await cluster.is_preempted()
        cluster.change("train", {"suspend": False})
        cluster.change("train", {"suspend": True})
        cluster.rename()
        await cluster.restart()
        await cluster.until(lambda: BY not in cluster.notes_on_job(), 20.0)

    cluster.play(story)

    assert cluster.is_suspended() and any("left to whoever has changed it" in note for note in cluster.notes())


@pytest.mark.parametrize("priority", [2**31, 2**70, -(2**70)])
def test_a_record_with_a_priority_that_no_pod_has_is_unreadable(priority: int) -> None:
    cluster = WithOthers(resume=3600)

    async def story() -> None:
        await cluster.is_preempted()
        cluster.say(priority=priority)
        await cluster.until(lambda: BY not in cluster.notes_on_job(), 20.0)

    cluster.play(story)

    assert cluster.is_suspended()


def test_what_was_suspended_by_a_clock_that_was_years_ahead_is_resumed() -> None:
    cluster = WithOthers(resume=3600)

    async def story() -> None:
        await cluster.is_preempted()
        cluster.say(at="9990-01-01T00:00:00Z")
        await cluster.is_resumed()

    cluster.play(story)


def test_what_was_suspended_by_a_clock_that_is_a_minute_ahead_stays_suspended() -> None:
    cluster = WithOthers(resume=3600)

    async def story() -> None:
        await cluster.is_preempted()
        cluster.say(at=rfc3339(cluster.clock.now() + 60))
        await cluster.stays()

    cluster.play(story)


def test_a_record_of_an_older_version_is_taken_over_after_an_hour() -> None:
    said = b'{"at":"2026-01-01T00:00:00Z","generation":2,"priority":0,"why":""}'
    record = msgspec.json.decode(said, type=SuspensionRecord)

    assert not record.is_left("kube-system/gangline", record.since + 3600)
    assert record.is_left("kube-system/gangline", record.since + 4000)
