"""How far one workload has come, and the rules that hold for it on its way."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangline_e2e.day.fitting import Floor
from gangline_e2e.day.workload import Workload


@dataclass(slots=True)
class Progress:
    """The progress of one workload; times are seconds on the judge's clock."""

    workload: Workload
    came: dict[str, float] = field(default_factory=dict)
    """UID to when the pod was first seen."""
    rows: dict[str, int] = field(default_factory=dict)
    """The row of the node of each pod that has a node and is not deleted, by the UID of the pod."""
    parts: dict[str, set[int]] = field(default_factory=dict)
    """The domains in which each part has pods."""
    bound: int = 0
    """How many pods have got a node so far."""
    ended: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    """The UIDs of the pods that somebody has deleted; their kubelet may take long to end them."""
    gone: set[str] = field(default_factory=set)
    """The UIDs of the pods that were deleted before they had ended."""
    deleted: set[str] = field(default_factory=set)
    """The names of all pods that are gone."""
    complete_s: float | None = None
    """When all pods were there."""
    first_s: float | None = None
    """When the first pod got a node."""
    whole_s: float | None = None
    """When the last pod got a node."""
    moved_s: float = 0.0
    """When a pod last got a node, or was deleted before its end."""
    excused: bool = False
    """Whether a pod was deleted because its node was, which is no fault of the scheduler."""
    withdrawn: bool = False
    """Whether the workload's user has deleted it."""

    @property
    def is_waiting(self) -> bool:
        """Whether all pods exist, and none of them has had a node."""
        return self.complete_s is not None and not self.bound and not self.gone and not self.withdrawn

    @property
    def is_partial(self) -> bool:
        """Whether some pods have a node and others have none yet, and none was deleted."""
        return 0 < self.bound < self.workload.size and not self.gone and not self.withdrawn

    @property
    def is_torn(self) -> bool:
        """Whether the scheduler has evicted some pods and lets others stay on their nodes."""
        stay = self.rows.keys() - self.ended - self.leaving
        return bool(self.gone) and not self.excused and not self.withdrawn and bool(stay)

    @property
    def has_ended(self) -> bool:
        """Whether all pods have ended well."""
        return len(self.ended) == self.workload.size

    @property
    def was_evicted(self) -> bool:
        """Whether the workload has to start anew: pods were deleted before their end, and no other pod runs."""
        return bool(self.gone) and not self.withdrawn and not self.rows.keys() - self.ended

    def see(self, uid: str, now: float) -> None:
        """A pod was seen."""
        if uid not in self.came:
            self.came[uid] = now
            if len(self.came) == self.workload.size:
                self.complete_s = now

    def bind(self, uid: str, row: int, part: str, floor: Floor, now: float) -> list[str]:
        """A pod has got a node; returns one line for each rule that this breaks."""
        asked, found = self.workload, []
        if not asked.is_possible:
            found.append(f"{asked.name} cannot fit anywhere, but has a node")
        others = next(iter(self.rows.values()), row)
        if asked.level and floor.domains[asked.level][row] != floor.domains[asked.level][others]:
            found.append(f"{asked.name} is not in one {asked.level}")
        if asked.part:
            domains = self.parts.setdefault(part, set())
            domains.add(int(floor.domains[asked.part][row]))
            if len(domains) > 1 or not part:
                found.append(f"{asked.name}: part {part!r} is not in one {asked.part}")
        self.rows[uid] = row
        self.bound += 1
        self.moved_s = now
        self.first_s = now if self.first_s is None else self.first_s
        if self.bound == asked.size:
            self.whole_s = now
        return found

    def end(self, uid: str) -> None:
        """A pod has ended well."""
        self.ended.add(uid)

    def leave(self, uid: str, now: float) -> None:
        """A pod is gone."""
        self.rows.pop(uid, None)
        if uid not in self.ended:
            self.gone.add(uid)
            self.moved_s = now

    def phase(self) -> float:
        """Seconds from its first pod on a node until all had one; 0 until then."""
        return self.whole_s - self.first_s if self.whole_s is not None and self.first_s is not None else 0.0
