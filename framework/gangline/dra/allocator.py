"""Allocates the claims of a pod on one node after the other, as kube-scheduler would.

`Allocator.ask` turns claims into a question. The answers come from three steps, the cheapest first. Columns over all
devices say which of them each request may be given (`candidates`). Counting then settles most nodes without a search
(`counting`). For the others, and for the devices themselves, the part of the columns that concerns the node is cut out
as a small problem (`cutting`), and a search finds the solution that kube-scheduler would find (`search`).

Many nodes are alike, and most do not change from one pod to the next. So solutions are kept by the shape of a problem
and the state of its devices (`solving`), and the cut of a node is kept until its slices change. In the order `best` the
solution is improved afterwards: the devices with the least loss serve (`losses`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline.deadline import Deadline
from gangline.dra.asking import MOST_DEVICES, Alternative, Ask, read
from gangline.dra.at_once import are_own, keys_of
from gangline.dra.candidates import USABLE, Candidates
from gangline.dra.counters import CounterRoom
from gangline.dra.counting import Counted, Counting
from gangline.dra.cutting import Cut, Unallocatable, problem_of, state_of, within
from gangline.dra.kept_cuts import KeptCuts
from gangline.dra.layout import DeviceLayout
from gangline.dra.likeness import alike
from gangline.dra.losses import Losses
from gangline.dra.matrices import OwnDevices
from gangline.dra.problem import NodeProblem
from gangline.dra.reaching import Reaching
from gangline.dra.reading import CONSUMES, SHAREABLE
from gangline.dra.results import Gift, allocation
from gangline.dra.rows import RowNumbers
from gangline.dra.search import Ending, SearchAnswer
from gangline.dra.selecting import Selectors
from gangline.dra.sharing import Values
from gangline.dra.solving import ProblemShape, Solver
from gangline.dra.standing import Standing
from gangline.dra.stock import DeviceStock, stock
from gangline.dra.units import Units
from gangline.dra.weighing import Chosen, Weighing
from gangline.model.resource_claims import ResourceClaim, ResourceClaimAllocation
from gangline.model.resource_slices import DeviceClass
from gangline.status import BoolColumn

Order = Literal["upstream", "best"]
"""The order in which devices are tried: kube-scheduler's order, or the devices with the least loss first."""
Allocations = tuple[ResourceClaimAllocation, ...]
"""One allocation for each claim of a pod."""
SharedOn = Mapping[int, NDArray[np.intp]]
"""By number of a claim: the rows of the nodes, all of which must be able to use the devices of the claim."""


class NodeVerdict(msgspec.Struct, frozen=True):
    """What a node has for the claims of a pod."""

    allocations: tuple[ResourceClaimAllocation, ...] | None = None
    """One allocation for each claim; None if the node does not have devices for all claims."""
    error: str = ""
    """Why the pod cannot be scheduled on any node; or that the search was given up on this node. "" for neither."""
    is_exhaustive: bool = True
    """False if the search was given up before all solutions were tried: other nodes may have the devices."""


class Allocator:
    """The devices of a cluster, and what is taken of them."""

    def __init__(
        self,
        standing: Standing,
        classes: Mapping[str, DeviceClass],
        selectors: Selectors,
        share_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        solver: Solver | None = None,
    ) -> None:
        """`solver` keeps the answers to problems; several allocators may share one."""
        self._standing = standing
        self._classes = classes
        self._selectors = selectors
        self._share_id = share_id
        self._solver = solver if solver is not None else Solver()
        self.properties = selectors.properties
        self.losses = Losses(standing, selectors.properties, selectors.check)
        self.units = Units(standing, self.losses)
        self._layout = DeviceLayout(standing)
        self._own_devices = OwnDevices(standing.table)
        self._counter_room = CounterRoom(standing, selectors.properties, selectors.check)

    def within(self, deadline: Deadline) -> AbstractContextManager[None]:
        """A block in which answers that take longer raise DeadlineExceeded; what was worked out so far is kept."""
        return self._selectors.within(deadline)

    def ask(self, claims: Sequence[ResourceClaim]) -> PodAllocator:
        """What nodes have for the claims of a pod. Raises InvalidObject: no node can have anything for such claims."""
        ask = read(claims, self._classes)
        candidates = Candidates(ask, self._standing, self._selectors)
        counting = Counting(candidates, self._counter_room, self._own_devices)
        weighing = Weighing(candidates, self.losses, self._own_devices)
        return PodAllocator(
            ask, candidates, counting, weighing, self._share_id, self._solver, self.losses, self.units, self._layout
        )


class PodAllocator:
    """Answers for one pod, node by node. Nodes with equal problems share one search."""

    def __init__(
        self,
        ask: Ask,
        candidates: Candidates,
        counting: Counting,
        weighing: Weighing,
        share_id: Callable[[], str],
        solver: Solver,
        losses: Losses,
        units: Units,
        layout: DeviceLayout,
    ) -> None:
        self._ask = ask
        self._candidates = candidates
        self._counting = counting
        self._share_id = share_id
        self._solver = solver
        self._losses = losses
        self._units = units
        self._layout = layout
        self._weighing = weighing
        self._reaching = Reaching(candidates)
        self._cuts = KeptCuts(candidates, solver, losses)

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is kept for the question."""
        return self._candidates.nbytes + self._cuts.nbytes

    def counted(self, size: int, nodes: NDArray[np.int64] | None = None, is_bare: bool = False) -> Counted:
        """The counts for the nodes in these rows; without `nodes`, for the nodes in the first `size` rows.

        With `is_bare` the counts are made as if no claim had any device.
        """
        return self._counting.count(size, nodes, is_bare)

    def prepare(self) -> None:
        """Bring the columns of the requests up to date, and what claims have."""
        for number in range(len(self._candidates.alternatives)):
            self._candidates.flags(number)
        _ = self._candidates.standing.states

    def check(self) -> None:
        """Raise DeadlineExceeded if the time of the question has passed: see `Allocator.within`."""
        self._candidates.check()

    @property
    def least(self) -> int:
        """The smallest number of devices that satisfies the claims."""
        return self._ask.least

    def usable(self) -> BoolColumn:
        """By row of the table: whether some request may be given the device while no claim has the device."""
        candidates = self._candidates
        found: BoolColumn = np.zeros(len(candidates.table), dtype=np.bool_)
        for number in range(len(candidates.alternatives)):
            found |= candidates.flags(number) & USABLE > 0
        return found

    def is_in_use(self, node: int) -> bool:
        """Whether other claims have a device that these claims might get on the node in this row, or consume counters
        of such a device.
        """
        table, states = self._candidates.table, self._candidates.standing.states
        for each in table.pools_of(node):
            mine = each.rows[self._candidates.matter(each.rows)]
            if states[mine].any():
                return True
            if (table.traits[mine] & CONSUMES).any():
                others = (*each.pool.slices, *each.pool.others)
                if any(states[table.rows_of_slice(number)].any() for number in others):
                    return True
        return False

    def weighed(self, size: int, nodes: NDArray[np.int64] | None = None, chosen: Chosen = frozenset()) -> Values:
        """What is lost on the nodes in these rows if they serve the question; on the first `size` rows without."""
        return self._weighing.weigh(size, nodes, chosen)

    def wanted(self) -> tuple[int, int]:
        """How many GPUs the claims ask for, and how many thousandths of each GPU: see `units`."""
        return self._units.wanted(self._candidates)

    def stock(self, nodes: NDArray[np.int64]) -> DeviceStock:
        """The devices of the nodes in these rows for the first request."""
        return stock(self._candidates, self._layout, nodes)

    def verdicts(self, nodes: NDArray[np.int64]) -> Iterator[tuple[RowNumbers, NodeVerdict | SearchAnswer]]:
        """The nodes in these rows, in groups with equal problems, each with a solution, or why there is none."""
        shapes: dict[int, ProblemShape] = {}
        for group in alike(self._candidates, self._layout, nodes):
            self.check()
            shape = shapes.get(group.content)
            answer = shape.answers.get(group.state) if shape is not None else None
            if answer is not None and answer.culprit is None:  # who names a culprit names a device of the node
                yield group.nodes, answer if answer.ending is Ending.FOUND else self._refusal(answer, [])
                continue
            node = group.nodes.item(0)
            found = self._found(node)
            if group.content >= 0 and (made := self._cuts.shape_of(node)) is not None:
                shapes[group.content] = made
            yield group.nodes, found if isinstance(found, NodeVerdict) else found[2]

    def on(
        self,
        node: int,
        node_name: str,
        claims: Sequence[ResourceClaim] | None = None,
        order: Order = "upstream",
        shared_on: SharedOn | None = None,
    ) -> NodeVerdict:
        """The verdict on the node in this row, with devices for `claims`; without `claims`, for those of the question.

        `claims` have the same specs as the claims of the question. A claim with an entry in `shared_on` gets only
        devices that all nodes of the entry may use.
        """
        found = self._found(node, shared_on)
        if isinstance(found, NodeVerdict):
            return found
        of_node, state, answer = found
        if order == "best":
            answer = self._improved(node, of_node, state, answer, shared_on)
        return NodeVerdict(self._allocations(answer, of_node.devices.rows, node_name, claims or self._ask.claims))

    def on_each(
        self, nodes: Sequence[int], names: Sequence[str], claims: Sequence[Sequence[ResourceClaim]], order: Order
    ) -> list[Allocations] | None:
        """As `on` for one pod on each of these different nodes, where each pod takes its devices before the next one is
        asked about; None unless each node has the devices, and each device is for one claim and its node alone.
        """
        standing = self._candidates.standing
        answers: dict[Hashable, SearchAnswer] = {}
        try:
            cuts = list(map(self._cuts.of, nodes))
            outlines = list(map(self._cuts.outline, nodes, cuts)) if order == "best" else None
            keys = keys_of(standing, cuts, outlines)
            for node, cut, key in zip(nodes, cuts, keys or (), strict=keys is not None):
                if key not in answers:
                    first = self._answer(cut, key.state, None)
                    is_best = order == "best" and first.ending is Ending.FOUND
                    answers[key] = self._improved(node, cut, key.state, first, None) if is_best else first
        except Unallocatable:
            return None
        found = [answers[key] for key in keys or ()]
        are_found = bool(found) and all([each.ending is Ending.FOUND for each in answers.values()])
        if not are_found or not are_own(standing, nodes, cuts, found):
            return None
        each = zip(found, cuts, names, claims, strict=True)
        return [self._allocations(answer, cut.devices.rows, name, of) for answer, cut, name, of in each]

    def choices(self, size: int, nodes: NDArray[np.int64]) -> Iterator[tuple[Chosen, RowNumbers]]:
        """Which alternatives the claims get on the nodes in these rows, in the order of kube-scheduler.

        Yields claims, by number, and names of alternatives, with the places of nodes where these are chosen; a node
        that does not have the devices is left out.
        """
        firsts = self._counting.first_fits(size, nodes)
        for first in np.unique(firsts[firsts >= 0]).tolist():
            yield self._named(self._counting.combinations[first]), np.flatnonzero(firsts == first)
        places = np.flatnonzero(firsts < 0)
        where = dict(zip(nodes[places].tolist(), places.tolist(), strict=True))
        for group, found in self.verdicts(nodes[places]):
            if not isinstance(found, NodeVerdict):
                given = dict.fromkeys(number for _, number, _ in found.given)
                yield self._named(given), np.array([where[node] for node in group.tolist()], dtype=np.int64)

    def _named(self, numbers: Iterable[int]) -> Chosen:
        """The claim and name of each of these alternatives that gets devices, where its request lists alternatives."""
        alternatives, requests = self._candidates.alternatives, self._ask.requests
        return frozenset(
            (each.claim, each.name)
            for each in map(alternatives.__getitem__, numbers)
            if requests[each.claim][each.request].is_prioritized and (each.is_all or each.count)
        )

    def reached(self, size: int) -> tuple[list[BoolColumn], BoolColumn]:
        """For the first `size` nodes: the sets of nodes that may use one free device together, and which nodes have a
        free device that no other node may use; see `reaching`.
        """
        return self._reaching.sets(size), self._reaching.alone(size)

    def _found(
        self, node: int, shared_on: SharedOn | None = None
    ) -> tuple[Cut, Hashable | None, SearchAnswer] | NodeVerdict:
        """A solution for the node in this row, with the state of the node's devices; or why there is none."""
        try:
            found = self._cuts.of(node)
            state = state_of(self._candidates, found) if shared_on is None else None
            answer = self._answer(found, state, shared_on)
        except Unallocatable as error:
            return NodeVerdict(error=str(error))
        return (found, state, answer) if answer.ending is Ending.FOUND else self._refusal(answer, found.devices.rows)

    def _answer(self, found: Cut, state: Hashable | None, shared_on: SharedOn | None) -> SearchAnswer:
        """The solution in kube-scheduler's order, from memory if the state is known. Raises Unallocatable."""
        answer = found.shape.answers.get(state) if state is not None else None
        if answer is None:
            answer = self._solved(found, shared_on)
            if state is not None:
                self._solver.keep(found.shape, state, answer)
        return answer

    def _improved(
        self, node: int, found: Cut, state: Hashable | None, first: SearchAnswer, shared_on: SharedOn | None
    ) -> SearchAnswer:
        """The answer in the order `best`. It is kept by the states of the devices, unless a device may be shared or
        consumes counters.
        """
        outline = self._cuts.outline(node, found) if found.is_plain and state is not None else None
        if outline is None:
            return self._solved_best(found, first, shared_on)
        key = state, self._candidates.standing.states[outline.rows].tobytes(), outline.groups
        answer = found.shape.answers.get(key)
        if answer is None:
            answer = self._solved_best(found, first, shared_on)
            self._solver.keep(found.shape, key, answer)
        return answer

    def _solved_best(self, found: Cut, first: SearchAnswer, shared_on: SharedOn | None) -> SearchAnswer:
        stakes = self._losses.stakes(found.devices.numbers, found.devices.pools)
        return self._solver.improve(self._problem(found, shared_on), stakes, first)

    def _solved(self, found: Cut, shared_on: SharedOn | None) -> SearchAnswer:
        problem = self._problem(found, shared_on)
        self._check_count(problem)
        return self._solver.solve(problem)

    def _problem(self, found: Cut, shared_on: SharedOn | None) -> NodeProblem:
        """The problem of a node with the devices that are taken now. Raises Unallocatable."""
        problem = problem_of(self._candidates, found)
        if shared_on is None:
            return problem
        rows = np.array(found.devices.numbers, dtype=np.int64)
        allowed = {claim: self._reaching.reaches_all(rows, nodes) for claim, nodes in shared_on.items()}
        return within(problem, self._candidates, allowed)

    def _check_count(self, problem: NodeProblem) -> None:
        """Raise Unallocatable if a claim gets more devices than it may have, whichever alternatives are chosen."""
        for claim, requests in enumerate(problem.requests):
            least = sum(min(problem.choices[number].count for number in numbers) for numbers in requests)
            if least > MOST_DEVICES:
                why = f"number of requested devices {least} exceeds the claim limit of {MOST_DEVICES}"
                raise Unallocatable(f"{self._ask.named(claim)}: {why}")

    def _refusal(self, answer: SearchAnswer, rows: list[int]) -> NodeVerdict:
        if answer.ending is Ending.GAVE_UP:
            text = f"no devices were found in {self._solver.most_steps} steps, and the search was given up"
            return NodeVerdict(error=text, is_exhaustive=False)
        if answer.culprit is None:
            return NodeVerdict()
        number, position = answer.culprit
        if answer.ending is Ending.FAILED:
            return NodeVerdict(error=self._candidates.complaint(number, rows[position]))
        alternative = self._candidates.alternatives[number]
        claim = self._ask.named(alternative.claim)
        device = "/".join(self._candidates.table.ids[rows[position]])
        why = f"cannot add device {device} because a claim constraint would not be satisfied"
        return NodeVerdict(error=f"{claim}, request {alternative.name}: {why}")

    def _allocations(
        self, answer: SearchAnswer, rows: list[int], node_name: str, claims: Sequence[ResourceClaim]
    ) -> tuple[ResourceClaimAllocation, ...]:
        found = []
        for number, claim in enumerate(claims):
            requests = self._ask.requests[number]
            gifts = [self._gift(choice, rows[position]) for of, choice, position in answer.given if of == number]
            chosen = [self._chosen(answer, number, index) for index in range(len(requests))]
            found.append(allocation(claim, requests, chosen, gifts, node_name, self._share_id))
        return tuple(found)

    def _chosen(self, answer: SearchAnswer, claim: int, request: int) -> Alternative:
        alternatives = self._ask.requests[claim][request].alternatives
        number = answer.chosen.get((claim, request))
        return alternatives[0] if number is None else self._candidates.alternatives[number]

    def _gift(self, choice: int, row: int) -> Gift:
        candidates = self._candidates
        table = candidates.table
        consumed = None
        if table.traits_of(row) & SHAREABLE:
            consumed = {name: amount.text for name, (amount, _) in candidates.consumed(choice, row).items()}
        spec = table.slices[table.slice_of[row]].spec
        return Gift(candidates.alternatives[choice], table.devices[row], spec, consumed)
