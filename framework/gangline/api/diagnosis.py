"""The verdicts of the filters on every node, kept as columns; words are made from them only when someone asks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from gangline.api.cycle_state import Cycle
from gangline.failures import Failures, cause_of, shown
from gangline.state.node_view import NodeView
from gangline.state.pods import PodInfo
from gangline.status import BoolColumn, Code, CodeColumn, Reason, Status

_MOST_REASONS = 64
"""Reasons that one code may stand for, at most."""


class RejectedNodes(msgspec.Struct, frozen=True, eq=False):
    """The verdicts of one filter plugin, one code per node; 0 where the node passes."""

    name: str
    plugin: Any
    codes: CodeColumn
    failures: Failures = msgspec.field(default_factory=Failures)

    def reasons(self, cycle: Cycle, pod: PodInfo, code: int) -> Sequence[Reason]:
        """The reasons that a code stands for: from the plugin's `explain` if it has one, else from its list of reasons.

        Raises PluginError if `explain` raises or returns anything but 1 to 64 Reasons, or if the list is too short.
        """
        explain = getattr(self.plugin, "explain", None)
        try:
            if explain is not None:
                found = tuple(itertools.islice(explain(cycle, pod, code), _MOST_REASONS + 1))
            else:
                found = tuple(self.plugin.reasons[code - 1 : code])
        except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
            raise self.failures.raised(self.name, "explain", error) from cause_of(error)
        if not found and explain is None:
            why = f"answered {code}, and has {len(self.plugin.reasons)} reasons"
            raise self.failures.refused(self.name, "filter", why)
        if not 0 < len(found) <= _MOST_REASONS or not all(isinstance(reason, Reason) for reason in found):
            why = f"must return 1 to {_MOST_REASONS} Reasons, not {shown(found)}"
            raise self.failures.refused(self.name, "explain", why)
        return found


Tally = Sequence[tuple[RejectedNodes, Mapping[int, int]]]
"""The plugins that are the first to reject some nodes, each with how often each of its codes occurs on these."""


@dataclass(slots=True, eq=False)
class Diagnosis:
    """Why nodes are not feasible for one pod.

    A node counts for the first plugin, in profile order, that rejects it. `status` is set when pre_filter rejected the
    pod as a whole.
    """

    pod: PodInfo
    nodes: NodeView
    cycle: Cycle
    rejections: list[RejectedNodes] = field(default_factory=list)
    narrowed: BoolColumn | None = None
    narrowed_by: tuple[str, ...] = ()
    status: Status | None = None

    def plugins(self, tally: Tally | None = None) -> set[str]:
        """The plugins whose rejections left no node feasible."""
        if self.status is not None:
            return {self.status.plugin, *self.narrowed_by} - {""}
        rejecting = self._rejecting() if tally is None else tally
        return {rejection.name for rejection, _ in rejecting} | set(self.narrowed_by)

    def tally(self) -> Tally:
        """Counts the verdicts once, for several questions about them as they are now."""
        return [(rejection, _numbers(rejection.codes[mask])) for rejection, mask in self._rejecting()]

    def first(self) -> list[tuple[RejectedNodes, BoolColumn]]:
        """Each plugin with the nodes that it is the first to reject."""
        rejecting = {id(rejection): mask for rejection, mask in self._rejecting()}
        return [
            (rejection, self.nodes.full(False) if (mask := rejecting.get(id(rejection))) is None else mask)
            for rejection in self.rejections
        ]

    def _rejecting(self) -> Iterator[tuple[RejectedNodes, BoolColumn]]:
        """As `first`, without the plugins that are the first to reject no node: most plugins reject none."""
        undecided = self.nodes.alive.copy()
        if self.narrowed is not None:
            undecided &= self.narrowed
        for rejection in self.rejections:
            codes = rejection.codes
            if np.count_nonzero(codes):
                mask = codes != 0
                mask &= undecided
                if np.count_nonzero(mask):
                    yield rejection, mask
                    undecided ^= mask

    def resolvable(self) -> BoolColumn:
        """Nodes whose rejection could end if pods were removed from them, one truth value per node."""
        result = self.nodes.full(False)
        if self.status is not None:
            return result
        for rejection, mask in self._rejecting():
            is_resolvable = {
                code: all([reason.resolvable for reason in rejection.reasons(self.cycle, self.pod, code)])
                for code in _numbers(rejection.codes[mask])
            }
            if all(is_resolvable.values()):  # nearly always: to compare the codes of all nodes takes longer
                result |= mask
                continue
            for code, may_end in is_resolvable.items():
                if may_end:
                    result |= mask & (rejection.codes == code)
        return result

    def counts(self, tally: Tally | None = None) -> Counter[str]:
        """The number of nodes for each reason."""
        counts: Counter[str] = Counter()
        alive = self.nodes.alive
        if self.narrowed is not None and (outside := int((alive & ~self.narrowed).sum())):
            counts[f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(self.narrowed_by))}]"] = outside
        for rejection, numbers in self.tally() if tally is None else tally:
            for code, number in numbers.items():
                for reason in rejection.reasons(self.cycle, self.pod, code):
                    counts[reason.message] += number
        return counts

    def message(self, tally: Tally | None = None) -> str:
        """The FailedScheduling text in kube-scheduler's words, without the part on preemption."""
        total = int(np.count_nonzero(self.nodes.alive))  # in a tenth of the time of sum()
        if total == 0 and self.status is None:
            return "no nodes available to schedule pods"
        if self.status is not None:
            why = self.status.message
        else:
            why = ", ".join(sorted(f"{n} {reason}" for reason, n in self.counts(tally).items()))
        return f"0/{total} nodes are available: {why}." if why else f"0/{total} nodes are available."

    def all_of(self, i: int) -> list[tuple[str, Code, tuple[str, ...]]]:
        """Every plugin that rejects the i-th node, with verdict and reasons, in profile order; the first decides."""
        if self.status is not None:
            return [(self.status.plugin, self.status.code, self.status.reasons)]
        found: list[tuple[str, Code, tuple[str, ...]]] = []
        if self.narrowed is not None and not self.narrowed[i]:
            name = " ".join(sorted(self.narrowed_by))
            why = f"node(s) didn't satisfy plugin(s) [{name}]"
            found.append((name, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (why,)))
        for rejection in self.rejections:
            code = int(rejection.codes[i])
            if code:
                reasons = rejection.reasons(self.cycle, self.pod, code)
                resolvable = all(reason.resolvable for reason in reasons)
                verdict = Code.UNSCHEDULABLE if resolvable else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
                found.append((rejection.name, verdict, tuple(reason.message for reason in reasons)))
        return found


def _numbers(codes: CodeColumn) -> dict[int, int]:
    """How often each code occurs."""
    if codes.dtype == np.uint8:
        numbers = np.bincount(codes)
        return {code: int(numbers[code]) for code in numbers.nonzero()[0].tolist()}
    found, counts = np.unique(codes, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))
