"""Judges a history: folds entry by entry, checks the rules after each, and keeps what was broken.

Rules of the moment hold at every revision. Lasting rules may be broken for a while: they count only after a time limit,
which begins anew at the end of each fault. Rules of the end hold when everything has settled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gangline_chaos.judge import rules
from gangline_chaos.judge.history import Change, Entry, Mark
from gangline_chaos.judge.objects import Pod
from gangline_chaos.judge.rules import Broken
from gangline_chaos.judge.world import CLAIMS, LEASES, NODES, PODS, REPORTS, World

IN_PART_S = 30.0
"""Seconds for which a gang may be on nodes in part."""
LOOK_S = 0.25
MOMENT_S = 10.0
"""Seconds for which locks and annotations may differ at the end: pods end by themselves then, too."""
SETTLED_S = 100.0
"""Seconds until locks and annotations agree, and until pods that have room are bound. A lock of a dead leader is
freed a minute after the next one leads, at the next sweep, which is every 30 s.
"""
ABANDONED_S = 360.0
"""Seconds until a waiting pod's lock without a writer is freed: five minutes, and two sweeps."""
LIMITS = {"gang in part": IN_PART_S, "lock of nobody": ABANDONED_S}
"""Seconds for which a rule may be broken while no fault is active, by rule; for other rules SETTLED_S."""
UNELECTED = frozenset(
    ("device given twice", "bound twice", "devices changed", "wrong number of devices", "ended by itself")
)
"""The rules that hold also where several schedulers bind pods at the same time: leases lock devices."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken."""

    at: float
    revision: int
    rule: str
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:.1f} s, revision {self.revision}: {self.rule}: {self.subject}: {self.text}"


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long it took after a fault until all pods that waited at its end had nodes or were gone."""

    fault: str
    at: float
    seconds: float


class Judge:
    """One history.

    `is_crowded`: some pods may never have room, so those that wait without room do not count as waiting after a fault.
    Without an election (`is_elected`) several schedulers bind pods, and only the rules of UNELECTED are checked.
    """

    def __init__(self, is_crowded: bool = False, is_elected: bool = True) -> None:
        self._is_crowded = is_crowded
        self._is_elected = is_elected
        self.world = World()
        self.violations: list[Violation] = []
        self.recoveries: list[Recovery] = []
        self.revisions = 0
        self.faults = 0
        self.bound = 0
        """How many times a pod was bound."""
        self._last = Change(0.0, 0, "", None)
        self._is_stale = False
        """Whether something has changed since the lasting rules were checked."""
        self._looked_at = -LOOK_S
        self._active: set[str] = set()
        self._calm_since = 0.0
        self._broken: dict[tuple[str, str], str] = {}
        """What is broken now, by rule and subject."""
        self._since: dict[tuple[str, str], float] = {}
        """Since when a lasting rule is broken."""
        self._pending: list[tuple[str, float, set[str]]] = []
        """The faults after which pods wait: name, end, and the UIDs of the pods."""

    def fold(self, entry: Entry) -> None:
        """Take the next entry of the history."""
        if isinstance(entry, Mark):
            self._mark(entry)
        else:
            self._change(entry)
        self._look_at_lasting(entry.at)

    def _mark(self, mark: Mark) -> None:
        if mark.kind == "begin":
            self.faults += 1
            self._active.add(mark.name)
        elif mark.kind == "end":
            self._active.discard(mark.name)
            self._calm_since = mark.at
            waiting = {pod.uid for pod in self.world.pods.values() if _waits(pod)}
            self._pending.append((mark.name, mark.at, waiting))
            self._recover(mark.at, ())
        elif mark.kind == "ended":
            self._report("ended by itself", mark.name, mark.text, mark.at)
        elif mark.kind == "quiet":
            self._look_at_end(mark.at)

    def _change(self, change: Change) -> None:
        self.revisions += change.revision != self._last.revision
        self._last = change
        old, new = self.world.fold(change)
        if change.key.startswith(PODS):
            self._pod_changed(old, new, change.at)
        elif change.key.startswith(NODES):
            self._look_at_node(change.key.removeprefix(NODES))
        if change.key.startswith((PODS, CLAIMS)) and self.world.claims:
            self._look("device claimed twice", rules.claims_given_twice(self.world), None)
        self._is_stale = self._is_stale or change.key.startswith((PODS, NODES, LEASES, REPORTS))

    def _pod_changed(self, old: Pod | None, new: Pod | None, at: float) -> None:
        for rule, subject, text in rules.wrong_changes(old, new):
            self._report(rule, subject, text, at)
        for node in {pod.node for pod in (old, new) if pod is not None and pod.node}:
            self._look_at_node(node)
        for gang in {pod.gang for pod in (old, new) if pod is not None and pod.gang}:
            self._look("gang apart", rules.gangs_apart(self.world, gang), {f"gang {gang}"})
        is_bound = new is not None and bool(new.node)
        was_bound = old is not None and new is not None and old.uid == new.uid and bool(old.node)
        self.bound += is_bound and not was_bound
        gone = [old.uid] if old is not None and (new is None or new.uid != old.uid) else []
        done = [new.uid] if new is not None and not _waits(new) else []
        self._recover(at, [*gone, *done])

    def _look_at_node(self, node: str) -> None:
        ending = f" of {node}"
        for rule, found in (
            ("device given twice", rules.devices_given_twice(self.world, node)),
            ("node over capacity", rules.nodes_over_capacity(self.world, node)),
        ):
            known = {subject for name, subject in self._broken if name == rule and subject.endswith(ending)}
            self._look(rule, found, known)

    def _look(self, rule: str, found: Broken, known: set[str] | None) -> None:
        """Note what is broken now; `known` are the subjects that were looked at, all of the rule if None."""
        if known is None:
            known = {subject for name, subject in self._broken if name == rule}
        for subject in known - found.keys():
            self._broken.pop((rule, subject), None)
        for subject, text in found.items():
            if (rule, subject) not in self._broken:
                self._broken[rule, subject] = text
                self._report(rule, subject, text, self._last.at)

    def _look_lasting(self, rule: str, found: Broken, at: float) -> None:
        for key in [key for key in self._since if key[0] == rule and key[1] not in found]:
            del self._since[key]
            self._broken.pop(key, None)
        for subject in found:
            self._since.setdefault((rule, subject), at)

    def _look_at_lasting(self, now: float) -> None:
        """Report what has been broken for too long while there was no fault. Lasting rules are checked every LOOK_S."""
        if self._is_stale and now >= self._looked_at + LOOK_S:
            self._is_stale, self._looked_at = False, now
            partly: Broken = {}
            for gang in self.world.gangs:
                partly |= rules.gang_in_part(self.world, gang)
            self._look_lasting("gang in part", partly, now)
            self._look_lasting("locks differ", rules.locks_that_differ(self.world), now)
            self._look_lasting("lock of nobody", rules.locks_nobody_wrote(self.world), now)
            self._look_lasting("devices missing", rules.devices_missing(self.world), now)
            self._look_lasting("waits for long", rules.left_waiting(self.world), now)
        if self._active:
            return
        for (rule, subject), since in self._since.items():
            limit = LIMITS.get(rule, SETTLED_S)
            lasted = now - max(since, self._calm_since)
            if lasted > limit and (rule, subject) not in self._broken:
                text = f"for {lasted:.0f} s"
                self._broken[rule, subject] = text
                self._report(rule, subject, text, now)

    def _look_at_end(self, at: float) -> None:
        world = self.world
        for rule, found in (
            ("left waiting", rules.left_waiting(world)),
            ("locks differ at the end", rules.locks_that_differ(world)),
            ("devices missing at the end", rules.devices_missing(world)),
        ):
            lasting = rule.removesuffix(" at the end")
            for subject, text in found.items():
                if lasting == rule or at - self._since.get((lasting, subject), at) > MOMENT_S:
                    self._report(rule, subject, text, at)
        for fault, ended, _ in self._pending if not self._is_crowded else ():
            self._report("not recovered", fault, f"pods wait since its end at {ended:.1f} s", at)

    def _recover(self, at: float, done: Iterable[str]) -> None:
        """Note that these pods no longer wait, and which faults all their pods have recovered from."""
        left = []
        for fault, ended, waiting in self._pending:
            waiting.difference_update(done)
            if waiting:
                left.append((fault, ended, waiting))
            else:
                self.recoveries.append(Recovery(fault, ended, at - ended))
        self._pending = left

    def _report(self, rule: str, subject: str, text: str, at: float) -> None:
        if self._is_elected or rule in UNELECTED:
            self.violations.append(Violation(at, self._last.revision, rule, subject, text))


def judge(history: Iterable[Entry], is_elected: bool = True) -> Judge:
    """Judge a whole history."""
    found = Judge(is_elected=is_elected)
    for entry in history:
        found.fold(entry)
    return found


def _waits(pod: Pod) -> bool:
    return not pod.node and not pod.is_leaving and not pod.has_ended
