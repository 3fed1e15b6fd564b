"""Asks Gangline's allocator the questions that a scheduler decided in a story, without any API server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gangline.explain import allocate
from gangline_e2e.claims.building import Changed, Created, Decided, Deleted, Story
from gangline_e2e.claims.telling import Outcome
from gangline_e2e.workloads import Manifest

LISTS = {"Node": "nodes", "ResourceSlice": "resourceSlices", "DeviceClass": "deviceClasses"}


@dataclass(frozen=True, slots=True)
class Question:
    """The decision about a pod in a story, and the allocator's answers for the claims that had no devices then."""

    pod: str
    decided: str
    """The pod's node, or why it has none."""
    claims: list[str]
    answers: dict[str, Any]
    """For each node: None, an error, or the allocations of the claims."""


def replay(story: Story, outcome: Outcome) -> Iterator[Question]:
    """The questions of a story in order. After each, claims get the outcome's devices; lost claims are left out."""
    there: dict[tuple[str, str], Manifest] = {}
    waiting: dict[str, Manifest] = {}
    allocated: dict[str, Manifest] = {}
    said = {pod: iter(decisions) for pod, decisions in outcome.decided.items()}

    def question(pod: str) -> Question:
        decided, claims = next(said[pod]), _claims(waiting[pod])
        lacking = [each for each in claims if each not in allocated and each in outcome.claims]
        answers = _ask(there, list(allocated.values()), [_claim(outcome, each, bare=True) for each in lacking])
        if decided in {key[1].removeprefix(f"{story.name}--") for key in there if key[0] == "Node"}:
            allocated.update({each: _claim(outcome, each) for each in lacking})
        return Question(pod, decided, lacking, answers)

    for change in story.before:
        allocated[change.name[1:]] = _claim(outcome, change.name[1:])
    for manifest in story.there:
        _put(there, story.told(manifest))
    for step in story.steps:
        match step:
            case Created() if step.manifest["kind"] == "Pod":
                pod = step.manifest["metadata"]["name"][1:]
                waiting[pod] = story.told(step.manifest)
                if step.at or step.refused:
                    yield question(pod)
            case Created():
                _put(there, story.told(step.manifest))
            case Decided():
                yield question(step.name[1:])
            case Deleted() if step.kind in LISTS:
                del there[step.kind, story.told(step.name)]
            case Deleted():
                allocated = {key: each for key, each in allocated.items() if not key.startswith(f"{step.name[1:]}/")}
            case Changed() if step.kind in LISTS:
                old = there[step.kind, story.told(step.name)]
                old["spec"].update(story.told(step.patch)["spec"])


def _put(there: dict[tuple[str, str], Manifest], manifest: Manifest) -> None:
    there[manifest["kind"], manifest["metadata"]["name"]] = manifest


def _claims(pod: Manifest) -> list[str]:
    """The names that outcomes use for the claims of a pod, in the order of the pod's spec."""
    story, _, name = pod["metadata"]["name"].partition("--")
    return [
        each["resourceClaimName"].removeprefix(f"{story}--")
        if "resourceClaimName" in each
        else f"{name}/{each['name']}"
        for each in pod["spec"]["resourceClaims"]
    ]


def _claim(outcome: Outcome, name: str, bare: bool = False) -> Manifest:
    """A claim as the server stored it: with the defaults of its requests."""
    found = outcome.claims[name]
    status = {} if bare or found["allocation"] is None else {"allocation": found["allocation"]}
    return {"metadata": {"name": name, "namespace": "NAMESPACE", "uid": name}, "spec": found["spec"], "status": status}


def _ask(there: dict[tuple[str, str], Manifest], allocated: list[Manifest], claims: list[Manifest]) -> dict[str, Any]:
    case: dict[str, Any] = {
        name: [each for (kind, _), each in there.items() if kind == wanted] for wanted, name in LISTS.items()
    }
    found: dict[str, Any] = allocate({**case, "allocatedClaims": allocated, "claims": claims})
    return found["nodes"] if claims else {}
