"""What kube-scheduler does for claims behind feature gates: stories with it and with Gangline come to the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from gangline_e2e.claims import grouping, listing, tainting
from gangline_e2e.claims.building import Created, Decided, Story
from gangline_e2e.claims.starting import USER, start_kube_scheduler
from gangline_e2e.claims.telling import Outcome, prepare, tell
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import Gangline, configuration, profile

GATES = ("DRADeviceTaintRules", "DRAListTypeAttributes", "DRAWorkloadResourceClaims")
"""The gates of DynamicResources."""
GROUPING = ("GenericWorkload", "GangScheduling")
GATE = "--feature-gates=" + ",".join(f"{gate}=true" for gate in (*GATES, *GROUPING))
TOGETHER = (*tainting.STORIES, *listing.STORIES, *grouping.STORIES)
STORIES: Mapping[str, Story] = {story.name: story for story in TOGETHER}
READING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "reads-more"},
    "rules": [
        {"apiGroups": [group], "resources": kinds, "verbs": ["list", "watch"]}
        for group, kinds in (
            ("resource.k8s.io", ["devicetaintrules"]),
            ("apps", ["deployments"]),  # these two are for GangPermit
            ("batch", ["jobs", "cronjobs"]),
        )
    ],
}
BOUND = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "reads-more"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-more"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
}
Outcomes = Mapping[str, Outcome]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def theirs(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """All stories with kube-scheduler."""
    with _fresh(tmp_path_factory) as plane:
        return asyncio.run(_told(plane, lambda: start_kube_scheduler(plane, GATE)))


@pytest.fixture(scope="module")
def ours(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """All stories with Gangline."""
    with _fresh(tmp_path_factory) as plane, ExitStack() as stack:
        args = {"DynamicResources": {"featureGates": dict.fromkeys(GATES, True)}}
        config = configuration(profile("default-scheduler", enabled=[{"name": "GangPermit"}], args=args))
        scheduler = Gangline(plane.kubeconfig_for(USER), plane.folder / "gangline", config)
        stack.callback(scheduler.stop)
        yield asyncio.run(_told(plane, scheduler.start))
        assert "Traceback" not in scheduler.logs()


@pytest.mark.parametrize("name", STORIES)
def test_a_gated_story_is_true_of_kube_scheduler(theirs: Outcomes, name: str) -> None:
    story, outcome = STORIES[name], theirs[name]

    said = {pod: iter(decisions) for pod, decisions in outcome.decided.items()}
    for step in story.steps:
        if isinstance(step, Created | Decided) and (step.at or step.refused):
            pod = step.name if isinstance(step, Decided) else step.manifest["metadata"]["name"]
            found = next(said[pod.removeprefix("@")])
            assert found == step.at or (step.refused and step.refused in found)
    assert {claim: outcome.devices(claim) for claim in story.devices} == story.devices


@pytest.mark.parametrize("name", STORIES)
def test_a_gated_story_ends_as_with_kube_scheduler(ours: Outcomes, theirs: Outcomes, name: str) -> None:
    assert ours[name].decided == theirs[name].decided
    assert ours[name].claims == theirs[name].claims


def _fresh(tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    served = "--runtime-config=resource.k8s.io/v1beta2=true,scheduling.k8s.io/v1alpha2=true"
    options = Options(
        controller_manager=True, kwok=False, apiserver_args=(GATE, served), controller_manager_args=(GATE,)
    )
    return ControlPlane(tmp_path_factory.mktemp("gates") / "plane", options)


async def _told(plane: ControlPlane, start: Callable[[], object]) -> Outcomes:
    async with isolated(plane) as api:
        await api.create_many([READING, BOUND])
        await prepare(api, TOGETHER)
        await asyncio.to_thread(start)
        return await tell(api, TOGETHER)
