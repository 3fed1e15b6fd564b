"""A mixed workload with Gangline and with kube-scheduler: the same pods run, the same wait, for the same reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from gangline_e2e import mixed
from gangline_e2e.api import Api
from gangline_e2e.constraints import Objects, violations
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.noting import noting
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.volumes import is_claim_bound
from gangline_e2e.workloads import Manifest, Manifests, is_bound, is_ready

USER = "system:kube-scheduler"
LATE = [pod["metadata"]["name"] for pod in mixed.late()]
PLAIN = {f"plain-{i}" for i in range(mixed.GUARDED)}

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has left: everything at the end, and what only shows on the way."""

    objects: Objects
    victims: Manifests
    """Each pod that was preempted, while it was ending."""
    nominations: dict[str, str]
    """The node for which each urgent pod was nominated while its room was made."""
    preempted: Manifests
    """The events that say who was preempted."""

    def named(self, app: str) -> Manifests:
        """The pods of one kind that are there at the end."""
        return [pod for pod in self.objects.pods if pod["metadata"]["labels"]["app"] == app]

    def pending(self) -> dict[str, Manifest]:
        """What the pods without a node were told, by name."""
        return {pod["metadata"]["name"]: _scheduled(pod) for pod in self.objects.pods if not is_bound(pod)}


@pytest.fixture(scope="module")
def ours(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The workload with Gangline, which has no more rights than kube-scheduler."""
    with _fresh(tmp_path_factory) as plane:
        config = configuration(profile("default-scheduler"))
        with Gangline(plane.kubeconfig_for(USER), plane.folder / "gangline", config) as scheduler:
            outcome = asyncio.run(_play(plane))
        assert "Traceback" not in scheduler.logs(), scheduler.logs()[-10_000:]
    return outcome


@pytest.fixture(scope="module")
def theirs(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The same with kube-scheduler, with the plugins that Gangline has too."""
    config = configuration({"plugins": {"multiPoint": {"disabled": [{"name": "DynamicResources"}]}}})
    with _fresh(tmp_path_factory) as plane:
        config["clientConnection"] = {"kubeconfig": str(plane.kubeconfig_for(USER))}
        file = plane.folder / "kube-scheduler.yaml"
        file.write_text(yaml.safe_dump(config))
        plane.start_scheduler([f"--config={file}"])
        return asyncio.run(_play(plane))


@pytest.fixture(params=["ours", "theirs"])
def outcome(request: pytest.FixtureRequest) -> Outcome:
    """Either run: what must hold for Gangline has to hold for kube-scheduler, else the test is wrong."""
    found: Outcome = request.getfixturevalue(request.param)
    return found


def test_every_bound_pod_obeys_every_constraint(outcome: Outcome) -> None:
    assert violations(outcome.objects) == []


def test_only_the_pods_that_fit_nowhere_stay_pending(outcome: Outcome) -> None:
    assert outcome.pending().keys() == set(LATE)


@pytest.mark.parametrize("name", LATE)
def test_a_pod_that_stays_pending_is_told_what_kube_scheduler_tells_it(
    ours: Outcome, theirs: Outcome, name: str
) -> None:
    said, expected = ours.pending()[name], theirs.pending()[name]

    for field in ("status", "reason", "message"):
        assert said.get(field) == expected.get(field)


def test_volumes_are_bound_to_the_claims_of_the_pods_that_run(outcome: Outcome) -> None:
    bound = {claim["metadata"]["name"] for claim in outcome.objects.claims if is_claim_bound(claim)}

    assert bound == {"once", *(f"local-{i}" for i in range(10)), *(f"zonal-{i}" for i in range(6))}


def test_urgent_pods_get_the_nodes_without_a_budget_and_only_their_pods_go(outcome: Outcome) -> None:
    assert {pod["spec"]["nodeName"] for pod in outcome.named("urgent")} == {"busy-1", "busy-3"}
    assert {pod["metadata"]["name"] for pod in outcome.victims} == PLAIN
    assert outcome.named("plain") == []
    assert len([pod for pod in outcome.named("guarded") if is_bound(pod)]) == mixed.GUARDED


def test_urgent_pods_are_nominated_for_the_nodes_that_they_get_and_then_no_more(outcome: Outcome) -> None:
    pods = outcome.named("urgent")

    assert outcome.nominations == {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
    assert [pod["metadata"]["name"] for pod in outcome.objects.pods if _nomination(pod)] == []


def test_victims_say_that_a_scheduler_took_them_off(ours: Outcome, theirs: Outcome) -> None:
    said, expected = ([_disruption(pod) for pod in each.victims] for each in (ours, theirs))

    for condition in said:
        assert condition["reason"] == "PreemptionByScheduler"
        assert condition["status"] == "True"
        assert condition["message"] == expected[0]["message"]


def test_victims_get_the_event_that_kube_scheduler_sends(ours: Outcome, theirs: Outcome) -> None:
    assert _preempted(ours) == _preempted(theirs)
    assert {name for name, *_ in _preempted(ours)} == PLAIN


def _fresh(tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """A control plane whose controllers bind volumes and count budgets."""
    folder: Path = tmp_path_factory.mktemp("parity") / "plane"
    often = ("--pvclaimbinder-sync-period=1s",)
    return ControlPlane(folder, Options(controller_manager=True, controller_manager_args=often))


async def _play(plane: ControlPlane) -> Outcome:
    """Give the workload to the scheduler that runs, part by part."""
    async with isolated(plane) as api:
        await api.create_many(mixed.nodes())
        await api.wait_for("/api/v1/nodes", is_ready, 60)
        await api.create_many(mixed.objects(api.namespace))
        claims = f"/api/v1/namespaces/{api.namespace}/persistentvolumeclaims"
        await api.wait_for(claims, is_claim_bound, mixed.BOUND_AT_ONCE)
        early = await api.create_many(mixed.early())
        await api.wait_for(api.pods, is_bound, len(early), timeout_s=120)
        await api.wait_for(f"/apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets", _is_counted, 1)

        victims, nominated = await _preempt(api)
        await api.create_many(mixed.late(), concurrency=1)
        await api.wait_for(api.pods, _is_refused, len(LATE))
        events = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
        preempted = await api.wait_for(events, _is_preempted_event, len(PLAIN))
        await api.wait_for(claims, is_claim_bound, mixed.BOUND_AT_ONCE + mixed.BOUND_LATER)
        objects = Objects(
            await api.list(api.pods),
            await api.list("/api/v1/nodes"),
            await api.list(claims),
            await api.list("/api/v1/persistentvolumes"),
        )
        nominations = {pod["metadata"]["name"]: _nomination(pod) for pod in nominated}
        return Outcome(objects, victims, nominations, preempted)


async def _preempt(api: Api) -> tuple[Manifests, Manifests]:
    """Create the urgent pods and wait until they are bound: the victims, and the pods while they were nominated."""
    async with (
        noting(api, api.pods, _is_ending) as ending,
        noting(api, api.pods, lambda pod: bool(_nomination(pod))) as nominated,
    ):
        urgent = await api.create_many(mixed.urgent())
        uids = {pod["metadata"]["uid"] for pod in urgent}
        await api.wait_for(api.pods, lambda pod: pod["metadata"]["uid"] in uids and is_bound(pod), len(uids))
        return await ending.until(len(PLAIN), "victims end"), await nominated.until(len(uids), "pods were nominated")


def _preempted(outcome: Outcome) -> set[tuple[str, ...]]:
    """Who was preempted, and what the events say; the UID of the pod that came instead, and its node, differ."""
    urgent = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in outcome.named("urgent")}
    return {
        (event["regarding"]["name"], *(event[field] for field in ("type", "action", "reportingController")), note)
        for event in outcome.preempted
        for note in _without(event["note"], urgent)
    }


def _without(note: str, urgent: dict[str, str]) -> Iterator[str]:
    """The note with words in place of a UID and the node of the pod with that UID."""
    for uid, node in urgent.items():
        if uid in note:
            yield note.replace(uid, "UID").replace(node, "NODE")


def _conditions(pod: Manifest, kind: str) -> Manifests:
    return [each for each in pod["status"].get("conditions", []) if each["type"] == kind]


def _scheduled(pod: Manifest) -> Manifest:
    (condition,) = _conditions(pod, "PodScheduled")
    return condition


def _disruption(pod: Manifest) -> Manifest:
    (condition,) = _conditions(pod, "DisruptionTarget")
    return condition


def _nomination(pod: Manifest) -> str:
    node: str = pod["status"].get("nominatedNodeName", "")
    return node


def _is_ending(pod: Manifest) -> bool:
    return "deletionTimestamp" in pod["metadata"] and bool(_conditions(pod, "DisruptionTarget"))


def _is_refused(pod: Manifest) -> bool:
    return not is_bound(pod) and bool(_conditions(pod, "PodScheduled"))


def _is_counted(budget: Manifest) -> bool:
    status = budget.get("status", {})
    return (status.get("currentHealthy"), status.get("disruptionsAllowed")) == (mixed.GUARDED, 0)


def _is_preempted_event(event: Manifest) -> bool:
    return bool(event["reason"] == "Preempted")
