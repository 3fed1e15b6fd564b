"""Transactions: what-if on the real columns. Pods are placed and taken off; an undo log takes all of it back.

A plugin or a group decision has to know what the filters would say if some pods were elsewhere. Copying the columns for
each question would be slow. So the steps are made on the real columns, in a block `with cache.transaction() as tx`, and
are undone when the block ends.

Rules:
- Every hypothetical step is made in a transaction, and nothing awaits inside one.
- Leaving the block without `commit` undoes every step, in reverse order. Transactions can be nested.
- A pod that a step takes off is *lifted* until it is put back. So a tracker can tell a trial from a real removal.
- A tracker that cannot tell from the undone steps how things were registers a function that restores them; see
  `UndoLog.after_undo`.
- An outermost block can step aside: its pods are taken off the columns until it comes back, and other code may change
  the columns meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from gangline.state.pods import PodInfo


class Placer(Protocol):
    """The object that moves the pods."""

    def place(self, pod: PodInfo, row: int) -> None:
        """Put a pod on a row."""

    def place_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """Put pods of one class on rows, all of them or none."""

    def put_back(self, pod: PodInfo, row: int) -> None:
        """Put a pod back on the row where it was; cannot fail."""

    def unplace(self, pod: PodInfo) -> None:
        """Take a pod off its row."""


class UndoLog:
    """The steps taken since the outermost transaction began."""

    __slots__ = ("depth", "is_undoing", "lifted", "steps")

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []
        self.lifted: set[str] = set()
        """The UIDs of the pods that steps have taken off, and have not put back."""
        self.depth = 0
        self.is_undoing = False
        """Whether a step is being undone."""

    def after_undo(self, restore: Callable[[], None]) -> None:
        """Call `restore` when the step that is being made has been undone; outside of a step, do nothing."""
        if self.depth and not self.is_undoing:
            self.steps.append(_Restore(restore))


class _Restore:
    """A step of the undo log that lets a tracker restore its state after another step; see `UndoLog.after_undo`."""

    __slots__ = ("_restore",)

    def __init__(self, restore: Callable[[], None]) -> None:
        self._restore = restore

    def __call__(self) -> None:
        self._restore()


class _Placed:
    """Undoes the placement of a pod; a pod that was lifted before is lifted again."""

    __slots__ = ("_log", "_placer", "pod", "was_lifted")

    def __init__(self, placer: Placer, log: UndoLog, pod: PodInfo, was_lifted: bool) -> None:
        self._placer = placer
        self._log = log
        self.pod = pod
        self.was_lifted = was_lifted

    def __call__(self) -> None:
        if self.was_lifted:
            self._log.lifted.add(self.pod.uid)
        self._placer.unplace(self.pod)


class _PlacedAll:
    """Undoes the placement of many pods, none of which was lifted before."""

    __slots__ = ("_placer", "pods")

    def __init__(self, placer: Placer, pods: Sequence[PodInfo]) -> None:
        self._placer = placer
        self.pods = pods

    def __call__(self) -> None:
        for pod in reversed(self.pods):
            self._placer.unplace(pod)


class _Unplaced:
    """Undoes the removal of a pod."""

    __slots__ = ("_log", "_placer", "_pod", "_row")

    def __init__(self, placer: Placer, log: UndoLog, pod: PodInfo, row: int) -> None:
        self._placer = placer
        self._log = log
        self._pod = pod
        self._row = row

    def __call__(self) -> None:
        self._log.lifted.discard(self._pod.uid)
        self._placer.put_back(self._pod, self._row)


class Transaction:
    """One block of steps; made by `Cache.transaction`."""

    __slots__ = ("_aside", "_committed", "_log", "_mark", "_placer")

    def __init__(self, placer: Placer, log: UndoLog) -> None:
        self._placer = placer
        self._log = log
        self._mark = 0
        self._committed = False
        self._aside = False

    def __enter__(self) -> Transaction:
        self._log.depth += 1
        self._mark = len(self._log.steps)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._aside:
            return
        self._log.depth -= 1
        if not self._committed:
            self.rollback()
        if self._log.depth == 0:
            self._log.steps.clear()
            self._log.lifted.clear()

    def place(self, pod: PodInfo, row: int) -> None:
        """Put a pod that is on no row on a row. Raises ValueError for another pod, and PluginError as `Cache.place`."""
        if pod.row >= 0 or row < 0 or not self._log.depth:
            raise ValueError(f"{pod.key} cannot be put on row {row}: it is on {pod.row}, or no block is open")
        lifted = self._log.lifted
        was_lifted = pod.uid in lifted
        lifted.discard(pod.uid)
        try:
            self._placer.place(pod, row)
        except BaseException:
            if was_lifted:
                lifted.add(pod.uid)
            raise
        self._log.steps.append(_Placed(self._placer, self._log, pod, was_lifted))

    def place_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """Put like pods, which are on no row, each on its row, in one step. Raises ValueError and PluginError."""
        cls = pods[0].cls if pods else None
        if len(pods) < 2 or self._log.lifted or any([pod.cls is not cls or pod.slot.row >= 0 for pod in pods]):
            for pod, row in zip(pods, rows, strict=True):
                self.place(pod, row)
            return
        if min(rows) < 0 or not self._log.depth or len(pods) != len(rows):
            raise ValueError(f"{pods[0].key} and others cannot be put on rows {rows}, or no block is open")
        self._placer.place_all(pods, rows)
        self._log.steps.append(_PlacedAll(self._placer, pods))

    def unplace(self, pod: PodInfo) -> None:
        """Take a pod off its row. Raises ValueError for a pod that is on no row."""
        row = pod.row
        if row < 0 or not self._log.depth:
            raise ValueError(f"{pod.key} cannot be taken off: it is on no row, or no block is open")
        self._log.lifted.add(pod.uid)
        self._placer.unplace(pod)
        self._log.steps.append(_Unplaced(self._placer, self._log, pod, row))

    def step_aside(self) -> list[tuple[PodInfo, int]]:
        """Undo all steps for now; returns the placed pods and their rows, in order.

        Only for an outermost block that has only placed pods; raises ValueError for any other.
        """
        steps = self._log.steps
        placed: list[tuple[PodInfo, int]] = []
        for step in steps:
            if isinstance(step, _Placed):
                placed.append((step.pod, step.pod.row))
            elif isinstance(step, _PlacedAll):
                placed += [(pod, pod.row) for pod in step.pods]
        is_all = all(isinstance(step, _Placed | _PlacedAll | _Restore) for step in steps)
        if self._aside or self._log.depth != 1 or not is_all:
            raise ValueError("only an outermost block that has placed pods, and has done nothing else, can step aside")
        self.rollback()
        self._log.depth = 0
        self._aside = True
        return placed

    def come_back(self) -> None:
        """Go on in a block that has stepped aside; no step is made again. Raises ValueError for any other block."""
        if not self._aside or self._log.depth:
            raise ValueError("this block has not stepped aside, or another one is open")
        self._log.depth = 1
        self._aside = False

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Call `undo` if this block is undone; for plugins with their own state."""
        self._log.steps.append(undo)

    def rollback(self) -> None:
        """Undo the steps of this block so far; the block can go on."""
        self.undo_to(self._mark)

    def mark(self) -> int:
        """The current position in the undo log, for `undo_to`."""
        return len(self._log.steps)

    def undo_to(self, mark: int) -> None:
        """Undo the steps since a mark of this block; the block can go on."""
        log = self._log
        log.is_undoing = True
        try:
            while len(log.steps) > mark:
                log.steps.pop()()
        finally:
            log.is_undoing = False

    def commit(self) -> None:
        """Keep the steps; an outer transaction can still undo them."""
        self._committed = True
