"""Jobs that Kueue admits and that ask to be suspended: the scheduler asks Kueue, which the tests play."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gangline import ApiError, PatchKind, resources
from gangline.testing.gang_stories import ONE_LEAF
from gangline_plugins.suspension.owning import SuspendableOwner
from gangline_plugins.suspension.writing import OwnerWriter

from .test_story import BY, RECORD, SUSPEND, Suspensions

QUEUE = {"kueue.x-k8s.io/queue-name": "team"}


class WithKueue(Suspensions):
    """A Job that Kueue has admitted, with its Workload, and what Kueue does with both."""

    async def runs_admitted(self) -> None:
        """The Job train runs, admitted by Kueue."""
        self.add_job("train", 4, {**ONE_LEAF, **SUSPEND})
        self.server.patch(resources.JOBS, "train", {"metadata": {"labels": QUEUE}}, namespace="default")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
        owner["uid"] = self.job()["metadata"]["uid"]
        made = {"apiVersion": resources.KUEUE_WORKLOADS.api_version, "kind": "Workload", "spec": {"active": True}}
        self.server.apply_manifest({**made, "metadata": {"name": "job-train", "ownerReferences": [owner]}})
        self.say(QuotaReserved=True, Admitted=True)
        await self.runs("train", 4)

    def workload(self) -> Mapping[str, Any]:
        """The Workload as it is stored."""
        data: Mapping[str, Any] = self.server.get(resources.KUEUE_WORKLOADS, "job-train", namespace="default").data
        return data

    def write(self, patch: Mapping[str, Any], **more: Any) -> None:
        """Somebody changes the Workload."""
        self.server.patch(
            resources.KUEUE_WORKLOADS, "job-train", patch, namespace="default", kind=PatchKind.MERGE, **more
        )

    def say(self, **conditions: bool) -> None:
        """Kueue writes these conditions."""
        data = [{"type": kind, "status": str(status), "reason": kind} for kind, status in conditions.items()]
        self.write({"status": {"conditions": data}}, subresource="status")

    def is_active(self) -> bool:
        """Whether Kueue may admit the Workload."""
        return bool(self.workload()["spec"]["active"])

    def records(self) -> set[str]:
        """What the scheduler has written on the Workload."""
        return {BY, RECORD} & (self.workload()["metadata"].get("annotations") or {}).keys()

    async def is_asked(self) -> None:
        """Wait until Kueue is asked to take the Workload off."""
        await self.until(lambda: not self.is_active(), 20.0)

    async def evict(self) -> None:
        """Kueue takes the Workload off."""
        self.say(QuotaReserved=True, Admitted=True, Evicted=True)
        self.change("train", {"suspend": True})
        await self.until(lambda: not self.pods("train"), 20.0)
        assert not self.is_active()
        self.say(QuotaReserved=False, Admitted=False, Evicted=True)

    async def is_asked_to_make_room(self) -> None:
        """The gang runs, an urgent one comes, and Kueue is asked to take the first one off."""
        await self.runs_admitted()
        self.add_urgent()
        await self.is_asked()

    async def let_go(self, record: str) -> bool:
        """The scheduler lets the Workload go because of this record, and is late."""
        (runtime,) = self._scheduler.runtimes.values()
        uid = self.workload()["metadata"]["uid"]
        owner = SuspendableOwner(resources.KUEUE_WORKLOADS, "default", "job-train", uid)
        return await OwnerWriter(runtime.handle, 300.0).let_go(owner, record, is_suspended=True)

    def note_authors(self, *authors: str) -> None:
        """The API server notes that these have written `active`, and Kueue another field of the spec."""
        entries = [{"manager": name, "fieldsV1": {"f:spec": {"f:active": {}}}} for name in authors]
        other = {"manager": "kueue", "fieldsV1": {"f:spec": {"f:priority": {}}, "f:metadata": {"f:labels": {}}}}
        self.write({"metadata": {"managedFields": [*entries, other]}})

    def admit(self) -> None:
        """Kueue admits the Workload again."""
        assert self.is_active()
        self.say(QuotaReserved=True, Admitted=True, Evicted=False)
        self.change("train", {"suspend": False})


def test_a_preempted_job_is_taken_off_by_kueue_which_may_admit_it_at_once() -> None:
    cluster = WithKueue(resume=3600)

    async def story() -> None:
        await cluster.is_asked_to_make_room()
        assert cluster.notes_on_job() == {**ONE_LEAF, **SUSPEND} and cluster.records() == {BY, RECORD}
        await cluster.evict()
        await cluster.until(cluster.is_active, 10.0)
        cluster.admit()
        await cluster.runs("urgent", 4)
        cluster.end("urgent")
        await cluster.runs("train", 4, 20.0)

    cluster.play(story)

    assert not cluster.records() and len(cluster.told_as("SuspendedByScheduler")) == 1
    assert any("Kueue admits it again by its own rules" in note for note in cluster.notes())


def test_a_gang_that_moves_is_admitted_again_and_gets_its_room() -> None:
    cluster = WithKueue(leaves=2, resume=3600)

    async def story() -> None:
        await cluster.runs_admitted()
        (leaf,) = cluster.leaves_of("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.is_asked()
        await cluster.evict()
        await cluster.until(cluster.is_active, 10.0)
        cluster.admit()
        await cluster.moved("train", 4, leaf, 20.0)

    cluster.play(story)

    assert not cluster.records()


def test_without_an_answer_of_kueue_pods_are_evicted_and_the_workload_is_active_again() -> None:
    cluster = WithKueue(resume=3600)

    async def story() -> float:
        await cluster.is_asked_to_make_room()
        took = await cluster.until(lambda: cluster.is_active() and not cluster.bound("train"), 60.0)
        await cluster.runs("urgent", 4, 20.0)
        return took

    assert 25.0 < cluster.play(story) < 40.0
    assert not cluster.records()


def _record(said: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {RECORD: said}}}


@pytest.mark.parametrize(
    "meanwhile",
    [{}, {"spec": {"priority": 3}}, _record(None), _record("{"), _record('{"at": "yesterday"}')],
    ids=["as-it-was", "with-another-spec", "record-gone", "record-no-json", "no-record"],
)
def test_the_next_scheduler_makes_the_workload_active_again(meanwhile: dict[str, Any]) -> None:
    cluster = WithKueue(resume=3600)

    async def story() -> None:
        await cluster.is_asked_to_make_room()
        await cluster.stop()
        if meanwhile:
            cluster.write(meanwhile)
        await cluster.restart()
        await cluster.evict()
        await cluster.until(cluster.is_active, 10.0)

    cluster.play(story)

    assert not cluster.records()


def test_a_look_at_an_earlier_suspension_leaves_the_record_of_a_later_one() -> None:
    cluster = WithKueue(resume=3600)

    async def story() -> bool:
        await cluster.is_asked_to_make_room()
        is_done = await cluster.let_go("an earlier record")
        await cluster.evict()
        await cluster.until(cluster.is_active, 10.0)
        return is_done

    assert not cluster.play(story)


def test_who_removes_the_annotation_keeps_the_workload_inactive() -> None:
    cluster = WithKueue(resume=30)

    async def story() -> None:
        await cluster.is_asked_to_make_room()
        cluster.write({"metadata": {"annotations": {BY: None}}})
        await cluster.evict()
        with pytest.raises(TimeoutError):
            await cluster.until(cluster.is_active, 120.0)

    cluster.play(story)


def test_a_workload_that_may_not_be_changed_loses_its_pods_all_the_same() -> None:
    def refuse(verb: str, resource: Any, name: str) -> Exception | None:
        return ApiError(403, "Forbidden", "no") if verb == "patch" and resource == resources.KUEUE_WORKLOADS else None

    cluster = WithKueue(faults=refuse)

    async def story() -> None:
        await cluster.runs_admitted()
        cluster.add_urgent()
        await cluster.runs("urgent", 4)

    cluster.play(story)

    assert cluster.is_active() and not cluster.is_suspended()
    assert any("cannot suspend or resume it" in note for note in cluster.notes())


@pytest.mark.parametrize("authors", [("kueuectl",), ("gangline", "argocd-controller")])
def test_a_workload_that_somebody_else_stops_meanwhile_stays_stopped(authors: tuple[str, ...]) -> None:
    cluster = WithKueue(resume=30)

    async def story() -> None:
        await cluster.is_asked_to_make_room()
        cluster.note_authors(*authors)
        await cluster.evict()
        await cluster.until(lambda: not cluster.records(), 60.0)
        with pytest.raises(TimeoutError):
            await cluster.until(cluster.is_active, 120.0)

    cluster.play(story)

    assert any("left to whoever has changed it" in note for note in cluster.notes())
    assert not cluster.told_as("ResumedByScheduler")


@pytest.mark.parametrize("authors", [(), ("gangline",)])
def test_a_workload_that_the_scheduler_alone_has_stopped_is_active_again(authors: tuple[str, ...]) -> None:
    cluster = WithKueue(resume=30)

    async def story() -> None:
        await cluster.is_asked_to_make_room()
        cluster.note_authors(*authors)
        await cluster.evict()
        await cluster.until(cluster.is_active, 10.0)

    cluster.play(story)

    assert len(cluster.told_as("ResumedByScheduler")) == 1
