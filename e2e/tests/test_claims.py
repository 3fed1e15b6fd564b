"""Claims of dynamic resource allocation: the same stories with kube-scheduler and with Gangline come to the same.

The stories are first true of kube-scheduler: each says to which node its pods go and which devices their claims get, or
why not. Then everything that is written is compared.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from gangline_e2e.claims import attaching, counting, extending, pooling, selecting
from gangline_e2e.claims.building import Created, Decided, Story
from gangline_e2e.claims.replaying import replay
from gangline_e2e.claims.starting import USER, start_kube_scheduler
from gangline_e2e.claims.telling import Outcome, prepare, tell
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import Manifest, Manifests

TOGETHER = (*counting.STORIES, *selecting.STORIES, *pooling.STORIES, *extending.STORIES, *attaching.STORIES)
STORIES: Mapping[str, Story] = {story.name: story for story in (*TOGETHER, *pooling.ALONE)}
Outcomes = Mapping[str, Outcome]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def theirs(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """All stories with kube-scheduler."""
    with _fresh(tmp_path_factory) as plane:
        return asyncio.run(_told(plane, lambda: start_kube_scheduler(plane)))


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


@pytest.fixture(scope="module")
def ours(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """All stories with Gangline."""
    with _fresh(tmp_path_factory) as plane, ExitStack() as stack:
        config = configuration(profile("default-scheduler"))
        scheduler = Gangline(plane.kubeconfig_for(USER), plane.folder / "gangline", config)
        stack.callback(scheduler.stop)
        yield asyncio.run(_told(plane, scheduler.start))
        assert "Traceback" not in scheduler.logs()


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_as_with_kube_scheduler(ours: Outcomes, theirs: Outcomes, name: str) -> None:
    assert ours[name].decided == theirs[name].decided
    assert ours[name].claims == theirs[name].claims
    assert ours[name].mapped == theirs[name].mapped


@pytest.mark.parametrize("name", [name for name in STORIES if not name.startswith("extended-")])
def test_our_allocator_finds_the_devices_that_kube_scheduler_finds(theirs: Outcomes, name: str) -> None:
    story, outcome = STORIES[name], theirs[name]

    for question in replay(story, outcome):
        answers = {node.removeprefix(f"{name}--"): each for node, each in question.answers.items()}
        if question.decided in answers:
            allocated = [outcome.claims[claim]["allocation"] for claim in question.claims]
            assert _comparable(answers[question.decided]) == _comparable(allocated)
        else:
            errors = {str(each["error"]) for each in answers.values() if isinstance(each, dict)}
            assert errors or set(map(type, answers.values())) <= {type(None)}
            assert bool(errors) == any(word in question.decided for word in ("running", "does not exist"))
            if "CEL" in question.decided:
                assert {error.partition("CEL runtime error: ")[2] for error in errors} == {
                    question.decided.partition("CEL runtime error: ")[2]
                }


def _comparable(allocations: Sequence[Manifest]) -> Manifests:
    """Allocations without the names of shares and times."""
    found: Manifests = json.loads(json.dumps(allocations))
    for allocation in found:
        allocation.pop("allocationTimestamp", None)
        for result in allocation["devices"]["results"]:
            result.pop("shareID", None)
    return found


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
