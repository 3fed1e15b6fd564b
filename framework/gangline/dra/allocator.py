"""Allocates the claims of a pod on one node after the other, as kube-scheduler would."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gangline.dra.asking import MOST_DEVICES, Alternative, Ask, read
from gangline.dra.candidates import Candidates, Unallocatable
from gangline.dra.counting import Outcomes, count
from gangline.dra.problem import Problem
from gangline.dra.results import Gift, allocation
from gangline.dra.search import MOST_STEPS, Answer, Ending, solve
from gangline.dra.selecting import Selectors
from gangline.dra.standing import Standing
from gangline.model.resource_claims import ResourceClaim, ResourceClaimAllocation
from gangline.model.resource_slices import DeviceClass


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a node has for the claims of a pod."""

    allocations: tuple[ResourceClaimAllocation, ...] | None = None
    """One for each claim, if there are devices for all."""
    error: str = ""
    """Why the pod cannot be decided at all, whatever other nodes have."""
    is_exhaustive: bool = True
    """False if the search for devices was given up; `error` says so."""


class Allocator:
    """The devices of a cluster, and what is taken of them."""

    def __init__(
        self,
        standing: Standing,
        classes: Mapping[str, DeviceClass],
        selectors: Selectors,
        share_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        most_steps: int = MOST_STEPS,
    ) -> None:
        self._standing = standing
        self._classes = classes
        self._selectors = selectors
        self._share_id = share_id
        self._most_steps = most_steps

    def ask(self, claims: Sequence[ResourceClaim]) -> PodAllocator:
        """What nodes have for the claims of a pod. Raises InvalidObject: no node can have anything for such claims."""
        ask = read(claims, self._classes)
        candidates = Candidates(ask, self._standing, self._selectors)
        return PodAllocator(ask, candidates, self._share_id, self._most_steps)


class PodAllocator:
    """Answers for one pod, node by node; nodes of one shape are solved once."""

    def __init__(self, ask: Ask, candidates: Candidates, share_id: Callable[[], str], most_steps: int) -> None:
        self._ask = ask
        self._candidates = candidates
        self._share_id = share_id
        self._most_steps = most_steps
        self._answers: dict[Problem, Answer] = {}

    def everywhere(self, size: int) -> Outcomes:
        """Which of the nodes in the first `size` rows have devices: see `counting`."""
        return count(self._candidates, size)

    def on(self, node: int, node_name: str) -> Verdict:
        """What the node in this row has."""
        try:
            problem, rows = self._candidates.of_node(node)
            self._check_count(problem)
        except Unallocatable as error:
            return Verdict(error=str(error))
        answer = self._answers.get(problem)
        if answer is None:
            answer = self._answers[problem] = solve(problem, self._most_steps)
        if answer.ending is Ending.FOUND:
            return Verdict(self._allocations(answer, rows, node_name))
        return self._refusal(answer, rows)

    def _check_count(self, problem: Problem) -> None:
        """Raise Unallocatable if a claim gets more devices than it may have, whichever alternatives are chosen."""
        for claim, requests in zip(self._ask.claims, problem.requests, strict=True):
            least = sum(min(problem.choices[number].count for number in numbers) for numbers in requests)
            if least > MOST_DEVICES:
                name = f"{claim.metadata.namespace}/{claim.metadata.name}"
                raise Unallocatable(f"claim {name} asks for {least} devices, and at most {MOST_DEVICES} are allocated")

    def _refusal(self, answer: Answer, rows: list[int]) -> Verdict:
        if answer.ending is Ending.GAVE_UP:
            text = f"no devices were found in {self._most_steps} steps, and the search was given up"
            return Verdict(error=text, is_exhaustive=False)
        if answer.culprit is None:
            return Verdict()
        number, position = answer.culprit
        alternative = self._candidates.alternatives[number]
        device = "/".join(self._candidates.table.identity(rows[position]))
        why = "all devices are asked for, and they break a constraint of the claim"
        if answer.ending is Ending.FAILED:
            why = f"a selector fails: {self._candidates.failure(number, rows[position])}"
        return Verdict(error=f"request {alternative.name}, device {device}: {why}")

    def _allocations(self, answer: Answer, rows: list[int], node_name: str) -> tuple[ResourceClaimAllocation, ...]:
        found = []
        for number, claim in enumerate(self._ask.claims):
            requests = self._ask.requests[number]
            gifts = [self._gift(choice, rows[position]) for of, choice, position in answer.given if of == number]
            chosen = [self._chosen(answer, number, index) for index in range(len(requests))]
            found.append(allocation(claim, requests, chosen, gifts, node_name, self._share_id))
        return tuple(found)

    def _chosen(self, answer: Answer, claim: int, request: int) -> Alternative:
        alternatives = self._ask.requests[claim][request].alternatives
        number = answer.chosen.get((claim, request))
        return alternatives[0] if number is None else self._candidates.alternatives[number]

    def _gift(self, choice: int, row: int) -> Gift:
        candidates = self._candidates
        table = candidates.table
        consumed = None
        if table.shareable[row]:
            consumed = {name: amount.text for name, (amount, _) in candidates.consumed(choice, row).items()}
        spec = table.slices[table.slice_of[row]].spec
        return Gift(candidates.alternatives[choice], table.devices[row], spec, consumed)
