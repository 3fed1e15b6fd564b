"""Jobs that ask to be suspended: who suspends and resumes them, and when, in virtual time with their controllers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gangline import ApiError, PatchKind, Unavailable, model, resources
from gangline.simulate import InMemoryServer, SimulatedClient
from gangline.testing.gang_stories import ONE_LEAF

from ..recovery.recovery_cases import LossStory

SUSPEND = {"gangline.dev/eviction": "suspend"}
BY, RECORD = "gangline.dev/suspended-by", "gangline.dev/suspension"


class Suspensions(LossStory):
    """Leaves of four nodes with eight GPUs each, and a profile that preempts, recovers and suspends."""

    def __init__(self, leaves: int = 1, resume: float = 300, **more: Any) -> None:
        super().__init__(leaves, releaseSeconds=20, **more)
        self.profile = self.profile.replace(
            "{name: Recovery}", "{name: Recovery}, {name: GangPreemption}, {name: Suspension}"
        ).replace("pluginConfig: [", f"pluginConfig: [{{name: Suspension, args: {{resumeSeconds: {resume}}}}}, ")
        self.create(resources.PRIORITY_CLASSES, model.PriorityClass(model.ObjectMeta("urgent"), value=100))

    def job(self, name: str = "train") -> Mapping[str, Any]:
        """A Job as it is stored."""
        data: Mapping[str, Any] = self.server.get(resources.JOBS, name, namespace="default").data
        return data

    def is_suspended(self, name: str = "train") -> bool:
        """Whether a Job is suspended."""
        return bool(self.job(name)["spec"].get("suspend"))

    def notes_on_job(self, name: str = "train") -> Mapping[str, str]:
        """The annotations of a Job."""
        found: Mapping[str, str] = self.job(name)["metadata"].get("annotations", {})
        return found

    def change(self, name: str, spec: Mapping[str, Any], annotations: Mapping[str, Any] | None = None) -> None:
        """Somebody changes a Job."""
        patch = {"spec": spec, "metadata": {"annotations": annotations or {}}}
        self.server.patch(resources.JOBS, name, patch, namespace="default", kind=PatchKind.MERGE)

    def add_urgent(self, size: int = 4) -> None:
        """A gang that preempts others."""
        self.add_job("urgent", size, ONE_LEAF, priorityClassName="urgent")

    def end(self, name: str) -> None:
        """Delete a Job with its pods."""
        self.server.delete(resources.JOBS, name, namespace="default")
        for pod in self.bound(name):
            self.server.delete(resources.PODS, pod, namespace="default")

    async def is_preempted(self, **labels: str) -> None:
        """The Job train runs, and is preempted by an urgent one."""
        self.add_job("train", 4, {**ONE_LEAF, **SUSPEND})
        await self.runs("train", 4)
        if labels:
            self.server.patch(resources.JOBS, "train", {"metadata": {"labels": labels}}, namespace="default")
        self.add_urgent()
        await self.runs("urgent", 4)

    def pods(self, prefix: str) -> list[str]:
        """The pods with this prefix that are not being deleted."""
        pods = self.list(resources.PODS)
        return [
            pod.metadata.name
            for pod in pods
            if pod.metadata.name.startswith(prefix) and not pod.metadata.deletion_timestamp
        ]


class MutePatches(SimulatedClient):
    """Answers no first write of each kind to a Job, which is made or lost."""

    def __init__(self, server: InMemoryServer, is_made: bool) -> None:
        super().__init__(server, latency={"bind": 0.01})
        self._is_made = is_made
        self._seen: set[str] = set()

    async def patch(
        self, resource: resources.Resource[resources.T], name: str, patch: Mapping[str, Any], **more: Any
    ) -> resources.T:
        kind = f"{patch.get('spec')}"
        if resource is not resources.JOBS or kind in self._seen:
            return await super().patch(resource, name, patch, **more)
        self._seen.add(kind)
        if self._is_made:
            await super().patch(resource, name, patch, **more)
        raise Unavailable(0, "Timeout", "no answer in time")


def test_a_preempted_gang_is_suspended_and_resumed_when_it_has_room() -> None:
    cluster = Suspensions(resume=3600)

    async def story() -> float:
        await cluster.is_preempted()
        assert cluster.is_suspended() and cluster.notes_on_job()[BY] == "gangs" and not cluster.bound("train")
        with pytest.raises(TimeoutError):
            await cluster.until(lambda: not cluster.is_suspended(), 60.0)
        cluster.end("urgent")
        return await cluster.runs("train", 4, 20.0)

    cluster.play(story)

    assert not cluster.is_suspended() and BY not in cluster.notes_on_job() and RECORD not in cluster.notes_on_job()
    assert any("resumed when there is room, or after 3600 s" in note for note in cluster.notes())
    assert any("there is room for it" in note for note in cluster.notes())


def test_without_the_annotation_pods_are_evicted() -> None:
    cluster = Suspensions()

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        cluster.add_urgent()
        await cluster.runs("urgent", 4)

    cluster.play(story)

    assert not cluster.is_suspended()


def test_a_gang_without_room_is_resumed_when_its_time_is_over_and_waits_in_the_queue() -> None:
    cluster = Suspensions(resume=30)

    async def story() -> None:
        await cluster.is_preempted()
        await cluster.until(lambda: not cluster.is_suspended(), 40.0)
        await cluster.until(lambda: len(cluster.pods("train")) == 4, 10.0)

    cluster.play(story)

    assert not cluster.bound("train")


def test_the_next_scheduler_resumes_what_the_last_one_has_suspended() -> None:
    cluster = Suspensions(resume=3600)

    async def story() -> None:
        await cluster.is_preempted()
        await cluster.restart()
        cluster.end("urgent")
        await cluster.runs("train", 4, 20.0)

    cluster.play(story)


def test_who_resumes_a_job_by_hand_wins() -> None:
    cluster = Suspensions(resume=3600)

    async def story() -> None:
        await cluster.is_preempted()
        cluster.change("train", {"suspend": False})
        await cluster.until(lambda: BY not in cluster.notes_on_job(), 20.0)
        assert len(cluster.pods("train")) == 4

    cluster.play(story)


def test_who_resumes_and_suspends_a_job_again_by_hand_wins() -> None:
    cluster = Suspensions(resume=30)

    async def story() -> None:
        await cluster.is_preempted()
        cluster.change("train", {"suspend": False})
        cluster.change("train", {"suspend": True})
        cluster.end("urgent")
        await cluster.until(lambda: BY not in cluster.notes_on_job(), 20.0)
        with pytest.raises(TimeoutError):
            await cluster.until(lambda: not cluster.is_suspended(), 120.0)

    cluster.play(story)

    assert any("left to whoever has changed it" in note for note in cluster.notes())


def test_who_removes_the_annotation_keeps_a_job_suspended() -> None:
    cluster = Suspensions(resume=30)

    async def story() -> None:
        await cluster.is_preempted()
        cluster.change("train", {}, {BY: None})
        cluster.end("urgent")
        with pytest.raises(TimeoutError):
            await cluster.until(lambda: not cluster.is_suspended(), 120.0)

    cluster.play(story)


def test_a_job_that_kueue_admits_is_never_suspended() -> None:
    cluster = Suspensions()

    async def story() -> None:
        await cluster.is_preempted(**{"kueue.x-k8s.io/queue-name": "team"})

    cluster.play(story)

    assert not cluster.is_suspended()


def test_a_job_that_may_not_be_suspended_loses_its_pods_all_the_same() -> None:
    def refuse(verb: str, resource: Any, name: str) -> Exception | None:
        return ApiError(403, "Forbidden", "no") if verb == "patch" and resource == resources.JOBS else None

    cluster = Suspensions(faults=refuse)

    async def story() -> None:
        await cluster.is_preempted()

    cluster.play(story)

    assert not cluster.is_suspended()
    assert any("cannot suspend or resume it" in note for note in cluster.notes())


@pytest.mark.parametrize("is_made", [False, True], ids=["lost", "made-without-an-answer"])
def test_a_job_is_suspended_and_resumed_though_writes_to_it_get_no_answer(is_made: bool) -> None:
    cluster = Suspensions(leaves=2, resume=3600)
    cluster.client = MutePatches(cluster.server, is_made)

    async def story() -> None:
        cluster.add_job("train", 4, {**ONE_LEAF, **SUSPEND})
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.moved("train", 4, leaf, 25.0)
        await cluster.told("room is kept for the next ones")

    cluster.play(story)

    assert not cluster.is_suspended() and not cluster.told_as("SuspensionFailed")
    assert len(cluster.told_as("SuspendedByScheduler")) == 1


def test_a_gang_that_is_released_is_suspended_until_it_has_room() -> None:
    cluster = Suspensions(resume=3600)

    async def story() -> None:
        cluster.add_job("train", 4, {**ONE_LEAF, **SUSPEND})
        await cluster.runs("train", 4)
        node = cluster.node_of("train", 0)
        cluster.fail(node)
        await cluster.until(cluster.is_suspended, 60.0)
        cluster.fail(node, status="True")
        await cluster.runs("train", 4, 20.0)

    cluster.play(story)

    assert not cluster.is_suspended()


def test_a_gang_that_moves_is_suspended_for_a_moment_and_gets_its_room() -> None:
    cluster = Suspensions(leaves=2, resume=3600)

    async def story() -> None:
        cluster.add_job("train", 4, {**ONE_LEAF, **SUSPEND})
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.moved("train", 4, leaf, 20.0)

    cluster.play(story)

    assert not cluster.is_suspended()
    assert any("as soon as its pods are gone" in note for note in cluster.notes())


def test_a_scheduler_that_ends_between_suspending_and_resuming_is_followed_by_one_that_resumes() -> None:
    cluster = Suspensions(leaves=2, resume=3600)

    async def story() -> None:
        cluster.add_job("train", 4, {**ONE_LEAF, **SUSPEND})
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.fail(cluster.node_of("train", 2))
        await cluster.until(cluster.is_suspended, 20.0)
        await cluster.restart()
        was_suspended = cluster.is_suspended()
        await cluster.moved("train", 4, leaf, 20.0)
        assert was_suspended

    cluster.play(story)

    assert not cluster.is_suspended()


def test_of_two_jobs_with_room_for_one_the_other_stays_suspended() -> None:
    cluster = Suspensions(leaves=2, resume=3600)

    async def story() -> list[str]:
        for name in ("first", "second"):
            cluster.add_job(name, 4, {**ONE_LEAF, **SUSPEND})
            await cluster.runs(name, 4)
        for name in ("urgent-a", "urgent-b"):
            cluster.add_job(name, 4, ONE_LEAF, priorityClassName="urgent")
            await cluster.runs(name, 4)
        assert cluster.is_suspended("first") and cluster.is_suspended("second")
        cluster.end("urgent-a")
        await cluster.until(lambda: len(cluster.bound("first")) + len(cluster.bound("second")) == 4, 20.0)
        with pytest.raises(TimeoutError):
            await cluster.until(lambda: not cluster.is_suspended("first") and not cluster.is_suspended("second"), 60.0)
        return [name for name in ("first", "second") if cluster.is_suspended(name)]

    assert len(cluster.play(story)) == 1


class OfJobSet(Suspensions):
    """A JobSet of one Job with four pods."""

    def add_job_set(self) -> None:
        """Create it, and the Job that its controller makes."""
        self.add_job("set-workers-0", 4, {**ONE_LEAF, **SUSPEND})
        job = self.job("set-workers-0")
        parts = [{"name": "workers", "replicas": 1, "template": {"spec": job["spec"]}}]
        made = {
            "apiVersion": resources.JOB_SETS.api_version,
            "kind": "JobSet",
            "metadata": {"name": "set", "annotations": SUSPEND},
        }
        self.server.apply_manifest({**made, "spec": {"replicatedJobs": parts}})
        owner = {"apiVersion": resources.JOB_SETS.api_version, "kind": "JobSet", "name": "set", "controller": True}
        owner["uid"] = self.job_set()["metadata"]["uid"]
        self.server.patch(
            resources.JOBS, "set-workers-0", {"metadata": {"ownerReferences": [owner]}}, namespace="default"
        )

    def job_set(self) -> Mapping[str, Any]:
        """It, as it is stored."""
        data: Mapping[str, Any] = self.server.get(resources.JOB_SETS, "set", namespace="default").data
        return data

    def is_set_suspended(self) -> bool:
        """Whether it is suspended."""
        return bool(self.job_set()["spec"].get("suspend"))

    def control(self) -> None:
        """Its controller does to its Job what somebody has done to it."""
        self.change("set-workers-0", {"suspend": self.is_set_suspended()})


def test_the_job_set_of_a_preempted_job_is_suspended_and_resumed() -> None:
    cluster = OfJobSet(resume=3600)

    async def story() -> None:
        cluster.add_job_set()
        await cluster.runs("set", 4)
        cluster.add_urgent()
        await cluster.until(cluster.is_set_suspended, 20.0)
        cluster.control()
        await cluster.runs("urgent", 4, 20.0)
        cluster.end("urgent")
        await cluster.until(lambda: not cluster.is_set_suspended(), 20.0)
        cluster.control()
        await cluster.runs("set", 4, 20.0)

    cluster.play(story)

    assert BY not in (cluster.job_set()["metadata"].get("annotations") or {})


def test_pods_that_no_controller_deletes_are_evicted_after_half_a_minute() -> None:
    cluster = OfJobSet(resume=3600)

    async def story() -> float:
        cluster.add_job_set()
        await cluster.runs("set", 4)
        before = cluster.uids("set")
        cluster.add_urgent()
        await cluster.until(cluster.is_set_suspended, 20.0)
        return await cluster.until(lambda: before.isdisjoint(cluster.uids("set")), 60.0)

    assert 25.0 < cluster.play(story) < 40.0


def test_a_disruption_budget_keeps_a_released_job_from_being_suspended() -> None:
    cluster = Suspensions(resume=3600)

    async def story() -> None:
        cluster.add_job("train", 4, {**ONE_LEAF, **SUSPEND})
        cluster.add_budget("train")
        await cluster.runs("train", 4)
        cluster.fail(cluster.node_of("train", 0))
        await cluster.told("members are released", 60.0)
        with pytest.raises(TimeoutError):
            await cluster.until(cluster.is_suspended, 60.0)

    cluster.play(story)


def test_an_unknown_word_is_told_and_pods_are_evicted() -> None:
    cluster = Suspensions()

    async def story() -> None:
        cluster.add_job("train", 4, {**ONE_LEAF, "gangline.dev/eviction": "gently"})
        await cluster.runs("train", 4)
        cluster.add_urgent()
        await cluster.runs("urgent", 4)

    cluster.play(story)

    assert any('suspend or evict, not "gently"' in note for note in cluster.notes())


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_job_of_which_somebody_declares_that_it_is_suspended_stays_so(is_restarted: bool) -> None:
    cluster = Suspensions(resume=30)

    async def story() -> None:
        await cluster.is_preempted()
        entry = {"manager": "argocd-controller", "operation": "Apply", "fieldsV1": {"f:spec": {"f:suspend": {}}}}
        patch = {"metadata": {"managedFields": [entry]}}
        cluster.server.patch(resources.JOBS, "train", patch, namespace="default", kind=PatchKind.MERGE)
        if is_restarted:
            await cluster.restart()
        cluster.end("urgent")
        await cluster.until(lambda: BY not in cluster.notes_on_job(), 60.0)

    cluster.play(story)

    assert cluster.is_suspended() and any("left to whoever has changed it" in note for note in cluster.notes())
