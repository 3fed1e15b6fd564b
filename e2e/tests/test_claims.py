"""Claims of dynamic resource allocation: the same stories with kube-scheduler and with Gangline come to the same.

The stories are first true of kube-scheduler: each says to which node its pods go and which devices their claims get, or
why not. Then everything that is written is compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from gangline_e2e.claims import counting, pooling, selecting
from gangline_e2e.claims.building import Created, Decided, Story
from gangline_e2e.claims.telling import Outcome, prepare, tell
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import configuration

USER = "system:kube-scheduler"
TOGETHER = (*counting.STORIES, *selecting.STORIES, *pooling.STORIES)
STORIES: Mapping[str, Story] = {story.name: story for story in (*TOGETHER, *pooling.ALONE)}
Outcomes = Mapping[str, Outcome]

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(scope="module")
def theirs(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """All stories with kube-scheduler."""
    with _fresh(tmp_path_factory) as plane:
        config = configuration()
        config["clientConnection"] = {"kubeconfig": str(plane.kubeconfig_for(USER))}
        file = plane.folder / "kube-scheduler.yaml"
        file.write_text(yaml.safe_dump(config))
        return asyncio.run(_told(plane, lambda: plane.start_scheduler([f"--config={file}"])))


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_true_of_kube_scheduler(theirs: Outcomes, name: str) -> None:
    story, outcome = STORIES[name], theirs[name]

    said = {pod: iter(decisions) for pod, decisions in outcome.decided.items()}
    for step in story.steps:
        if isinstance(step, Created | Decided) and (step.at or step.refused):
            pod = step.name if isinstance(step, Decided) else step.manifest["metadata"]["name"]
            found = next(said[pod.removeprefix("@")])
            assert found == step.at or (step.refused and _plain(story, step.refused) in found)
    assert {claim: outcome.devices(claim) for claim in story.devices} == story.devices


def _plain(story: Story, text: str) -> str:
    return str(story.told(text)).replace(f"{story.name}--", "")


def _fresh(tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """A control plane with the controllers of claims; nobody has to run the pods."""
    folder: Path = tmp_path_factory.mktemp("claims") / "plane"
    return ControlPlane(folder, Options(controller_manager=True, kwok=False))


async def _told(plane: ControlPlane, start: Callable[[], object]) -> Outcomes:
    """All stories with the scheduler that starts when all is there."""
    async with isolated(plane) as api:
        await prepare(api, TOGETHER)
        await asyncio.to_thread(start)
        outcomes = await tell(api, TOGETHER)
        for story in pooling.ALONE:
            await prepare(api, [story])
            outcomes |= await tell(api, [story])
        return outcomes
