"""What is kept for one identity: the verdicts and scores of plugins for every node, and what follows from them.

`Filtered` holds what one attempt adds for its pod. This module only holds the values; `keeping` and `evaluation`
compute them. They are structs, which are made in a sixth of the time of dataclasses.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec
import numpy as np

from gangline.api.cycle_state import Cycle, StateKey
from gangline.api.diagnosis import RejectedNodes
from gangline.profile.answers import are_all
from gangline.profile.implementations import Implementation
from gangline.profile.leading import BestRows
from gangline.profile.sharing import written
from gangline.state.changes import ChangeLog
from gangline.state.node_view import Rows
from gangline.state.pods import PodInfo
from gangline.status import BoolColumn, CodeColumn, Narrow, ScoreColumn, Status, read_only

_BYTES = 4096
"""The size of an entry without its arrays and shared values: lists, maps and sets, and the headers of the arrays."""
_SCORE_BYTES = np.dtype(np.float64).itemsize
_NO_MASK: BoolColumn = np.zeros(0, dtype=np.bool_)
_NO_SCORES: ScoreColumn = np.zeros(0)


class Scores(msgspec.Struct, eq=False):
    """The scores of the plugins that score the pods of one identity."""

    scorers: list[Implementation] = []
    raw: dict[str, ScoreColumn] = {}
    """By plugin; read-only if other entries share the column."""
    told: tuple[tuple[str, int], ...] = ()
    """Plugin and weight of the scores that need no normalization."""
    columns: list[ScoreColumn] = []
    """The scores of the plugins in `told`, in the same order."""
    constant: dict[str, bool] = {}
    """Whether a normalized score is the same on all nodes, so that it decides nothing."""
    base: ScoreColumn = _NO_SCORES
    """Weighted sum of the scores that need no normalization; a score that is alone and weighs 1 is its own sum."""
    position: Any = None
    """The position in the log of the entry up to which the scores are up to date; see `Kept.catch_up`."""
    is_wanted: bool = True
    """Whether the scores have been asked for since they followed a change together with the verdicts."""
    ranked: ScoreColumn | None = None
    """`base` where feasible, -1 elsewhere; None until it is asked for."""
    leaders: BestRows | None = None
    """The best rows of `ranked`; None until they are asked for, and when they have to be looked for again."""

    def keep(self, name: str, index: slice | Rows, fresh: ScoreColumn) -> None:
        """Store a plugin's scores at these rows."""
        kept = self.raw[name]
        is_constant = self.constant.get(name, False) and are_all(fresh, kept)
        self.raw[name] = column = written(kept, index, fresh)
        if name in self.constant:
            self.constant[name] = is_constant or are_all(column, column)


class Entry(msgspec.Struct, eq=False):
    """The kept results of one identity."""

    key: Hashable
    common_key: Hashable
    """The key of the answers that do not depend on requests; see `common`."""
    reading: tuple[str, ...]
    """The plugins whose own logs of changes matter to the entry."""
    log: ChangeLog
    """The changes that may make the entry out of date."""
    position: Any
    """The position in that log up to which the entry is up to date."""
    shared: Mapping[StateKey[Any], Any]
    rejected: Status | None
    narrow: dict[str, Narrow]
    filters: list[Implementation]
    shared_bytes: int = 0
    """The size of the key and of the values that plugins share in the entry, measured once."""
    changing: list[Implementation] = []
    """The filters that look at the pods of a node."""
    steady: BoolColumn = _NO_MASK
    """Where all other filters pass; changes only when a node itself changes."""
    skipped: frozenset[str] = frozenset()
    """Plugins that have answered that no pod of this class concerns them. An attempt keeps its set: a plugin that has
    reserved something for a pod is called to bind it too.
    """
    codes: dict[str, CodeColumn] = {}
    """By filter; read-only if other entries share the column."""
    diagnosed: dict[str, RejectedNodes] = {}
    """By filter, the column of `codes` as diagnoses show it; made when it is first asked for."""
    feasible: BoolColumn = _NO_MASK
    count: int = -1
    """The number of feasible nodes; -1 if they have not been counted since several rows have changed."""
    shown: BoolColumn | None = None
    """See `show`; None until a plugin is shown it."""
    scores: Scores | None = None
    """None before the scores are first asked for, and after scores that were asked for once have been dropped: see
    `Kept.scores`."""
    was_scored: bool = False
    """Whether somebody has asked for the scores."""
    is_asked_again: bool = False
    """Whether somebody has asked for the scores twice."""

    def counted(self) -> int:
        """The number of feasible nodes."""
        if self.count < 0:
            self.count = int(np.count_nonzero(self.feasible))
        return self.count

    def show(self) -> BoolColumn:
        """`feasible` for plugins, read-only."""
        if self.shown is None:
            self.shown = read_only(self.feasible)
        return self.shown

    def keep(self, name: str, index: slice | Rows, verdicts: CodeColumn) -> None:
        """Store a filter's verdicts at these rows; the column gets more bits if the new verdicts need them."""
        before = self.codes[name]
        column = self.codes[name] = written(before, index, verdicts)
        if column is not before:
            self.diagnosed.pop(name, None)


def size(key: Hashable, entry: Entry) -> int:
    """The size of an entry in bytes; the size of its key is in `shared_bytes`.

    Scores count once they are kept for long (`is_asked_again`): the scores of each plugin, their sum, `ranked`, and
    `leaders`, which may be all rows. Shared columns count for each entry: later each may have a copy of its own.
    """
    rows = len(entry.feasible)
    masks = 2 * rows + sum([codes.nbytes for codes in entry.codes.values()])
    columns = 3 + len(entry.scores.raw) if entry.scores is not None and entry.is_asked_again else 0
    return _BYTES + masks + rows * _SCORE_BYTES * columns + entry.shared_bytes


Extra = tuple[str, int, ScoreColumn]
"""A plugin, its weight and its scores: of the feasible nodes, or of all rows; see `Filtered.place`."""


class Filtered(msgspec.Struct, eq=False):
    """The result of filtering one pod."""

    pod: PodInfo
    cycle: Cycle
    entry: Entry
    feasible: BoolColumn
    codes: dict[str, CodeColumn] = {}
    """Verdicts of the plugins that are called for each attempt."""
    narrow: dict[str, Narrow] = {}
    status: Status | None = None
    skipped: frozenset[str] | set[str] = frozenset()
    count: int = 0
    """Feasible nodes at the last choice; 0 without a choice."""
    extra: list[Extra] = []
    """The scores at the last choice that cannot be kept."""
    scores: Scores | None = None
    """The scores that are kept per identity; None before they are asked for."""
    place: int = -1
    """The index of the chosen node in the columns of `extra`; without a meaning if `extra` has no entries."""
