"""Checks the answers of plugins for many nodes at once: a column must have the right length, type and range."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from operator import lt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline.api.cycle_state import Cycle
from gangline.api.placement import Placement
from gangline.api.pod_group import GroupAttempt
from gangline.errors import PluginError
from gangline.failures import cause_of, shown, text_of
from gangline.profile.implementations import Identity, Implementation
from gangline.state.node_view import Int64Column, NodeView, Rows
from gangline.state.pods import PodInfo
from gangline.status import MAX_SCORE, Code, CodeColumn, ScoreColumn, read_only

_MOST_PLACEMENTS = 4096
"""Placements of a group that are read from one plugin, at most; 16 for each node where that is more."""
_RACK = 64
"""Placements with up to this many rows count as small."""
_max = np.maximum.reduce
_HIGHEST = int(np.array(MAX_SCORE).view(np.uint64))
"""The bits of the highest score. Read as whole numbers, the bits of 0..100 are in the order of the scores, and those of
negative numbers and NaN are higher: so one look for the highest shows both ends of the range.
"""


def codes_of(impl: Implementation, answer: Any, size: int) -> CodeColumn:
    """The verdicts of a filter, one per node. Raises PluginError."""
    column = answer if type(answer) is np.ndarray else _array(impl, "filter", answer)
    if column.dtype.kind != "u":
        hint = "; codes(rejected) turns truth values into them" if column.dtype.kind == "b" else ""
        kind = shown(answer) if column.dtype.kind in "OSU" else column.dtype
        raise impl.refused("filter", f"must return unsigned integers, one per node, not {kind}{hint}")
    if column.shape != (size,):
        raise _wrong_shape(impl, "filter", column, size)
    return column


def scores_of(impl: Implementation, point: str, answer: Any, size: int) -> ScoreColumn:
    """The scores of a plugin as numbers, one per node. Raises PluginError."""
    try:
        scores = np.asarray(answer, dtype=np.float64)
    except BaseException as error:  # looking at the answer may call code of the plugin
        raise _no_numbers(impl, point, error) from error
    if answer is None:
        raise impl.refused(point, "must return numbers, one per node, not None")
    if scores.shape != (size,):
        raise _wrong_shape(impl, point, scores, size)
    return scores


def capacity_of(impl: Implementation, answer: Any, size: int) -> Int64Column:
    """The number of like pods that fit on each node. Raises PluginError."""
    held = _array(impl, "capacity", answer)
    if held.dtype.kind not in "iu":
        raise impl.refused("capacity", f"must return whole numbers, one per node, not {held.dtype}")
    if held.shape != (size,):
        raise _wrong_shape(impl, "capacity", held, size)
    if size and held.min() < 0:
        raise impl.refused("capacity", f"must return numbers from 0 on, got {held.min()}")
    if held.dtype.itemsize == 8 and held.dtype.kind == "u":
        held = np.minimum(held, np.uint64(np.iinfo(np.int64).max))
    return held.astype(np.int64)


def identity_of(asked: Sequence[Identity], pod: PodInfo, annotations: Mapping[str, str]) -> list[Hashable]:
    """What each plugin reads of a pod beyond its class. Raises PluginError."""
    said: list[Hashable] = []
    for identity in asked:
        try:
            answer = identity.ask(pod, annotations)
            if answer is not None:  # a value that cannot be compared fails here, where the plugin is known
                hash(answer)
                bool(answer == answer)
        except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
            raise identity.failures.raised(identity.name, "identity", error) from cause_of(error)
        said.append(answer)
    return said


def is_skipped(pre_score: Implementation | None, cycle: Cycle, pod: PodInfo, view: NodeView) -> bool:
    """Whether a plugin's `pre_score`, if it has one, says that its scores decide nothing. Raises PluginError."""
    answer = pre_score.call(cycle, pod, view) if pre_score is not None else None
    if pre_score is None or answer is None or answer.is_success:
        return False
    if answer.code is Code.SKIP:
        return True
    raise pre_score.refused("pre_score", answer.message)


def _array(impl: Implementation, point: str, answer: Any) -> NDArray[Any]:
    try:
        return np.asarray(answer)
    except BaseException as error:  # looking at the answer may call code of the plugin
        raise _no_numbers(impl, point, error) from error


def _no_numbers(impl: Implementation, point: str, error: BaseException) -> PluginError:
    return impl.refused(point, f"must return numbers, one per node: {text_of(error)}")


def _wrong_shape(impl: Implementation, point: str, column: NDArray[Any], size: int) -> PluginError:
    why = f"returned an array of shape {column.shape} for {size} nodes; one value per node is expected"
    return impl.refused(point, why)


def are_in_range(scores: ScoreColumn) -> bool:
    """Whether the scores are 0..100."""
    if not len(scores) or int(_max(scores.view(np.uint64))) <= _HIGHEST:
        return True
    return bool(scores.min() >= 0.0 and scores.max() <= MAX_SCORE)  # -0.0 has the highest bit of a negative number


def are_all(scores: ScoreColumn, like: ScoreColumn) -> bool:
    """Whether all scores are equal to the first of `like`; a look at the last one mostly spares a look at all."""
    if not len(scores):
        return True
    first = like.item(0)
    return bool(scores.item(-1) == first and int(np.count_nonzero(scores == first)) == len(scores))


def check_range(impl: Implementation, scores: ScoreColumn) -> None:
    """Check that the scores are 0..100. Raises PluginError."""
    if not are_in_range(scores):
        raise out_of_range(impl, scores.min(), scores.max())


def out_of_range(impl: Implementation, lowest: float, highest: float) -> PluginError:
    """The error for scores that are not 0..100."""
    return impl.refused("score", f"scores must be 0..100, got {lowest:g}..{highest:g}")


def placements_of(impl: Implementation, offered: Iterable[Any], size: int) -> Iterator[Placement]:
    """The placements that a plugin offers, one by one. Raises PluginError during the iteration.

    Rows must be from 0 to below `size`, each at most once.
    """
    point, most = "placement_generate", max(_MOST_PLACEMENTS, 16 * size)
    for number, placement in enumerate(_one_by_one(impl, point, offered), start=1):
        if number > most:
            raise impl.refused(point, f"must offer no more than {most} placements")
        yield _checked(impl, placement, size, point)


def narrowed(
    impls: Sequence[Implementation], attempt: GroupAttempt, placement: Placement, view: NodeView
) -> Generator[Placement, None, None]:
    """The parts of a placement, one by one, from the first plugin that offers any; else the whole placement.

    Raises PluginError during the iteration.
    """
    for impl in impls:
        offered = impl.call(attempt, placement, view)
        are_some = False
        with closing(_narrowed(impl, () if offered is None else offered, placement, len(view.whole))) as parts:
            for part in parts:
                are_some = True
                yield part
        if are_some:
            return
    yield placement


def _narrowed(
    impl: Implementation, offered: Iterable[Any], placement: Placement, size: int
) -> Generator[Placement, None, None]:
    point = "placement_narrow"
    with closing(_one_by_one(impl, point, offered)) as parts:
        for rows in parts:
            if not isinstance(rows, np.ndarray) or rows.ndim != 1 or rows.dtype.kind not in "iu":
                raise impl.refused(point, f"must offer arrays of rows, not {shown(rows)}")
            narrowed = _checked(impl, Placement(placement.name, rows, placement.tier), size, point)
            if not np.isin(narrowed.rows, placement.rows).all():
                raise impl.refused(point, f"must offer rows of {placement.name}, and offers others")
            yield narrowed


def _one_by_one(impl: Implementation, point: str, offered: Iterable[Any]) -> Generator[Any, None, None]:
    """The offers of a plugin, one by one; closing this generator closes the plugin's, too. Raises PluginError."""
    left: Any = None
    try:
        while True:
            try:
                left = iter(offered) if left is None else left
                found = next(left)
            except StopIteration:
                return
            except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
                raise impl.failures.raised(impl.name, point, error) from cause_of(error)
            yield found
    finally:
        if isinstance(left, Generator):
            try:
                left.close()
            except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
                raise impl.failures.raised(impl.name, point, error) from cause_of(error)


def _checked(impl: Implementation, placement: Any, size: int, point: str) -> Placement:
    if not isinstance(placement, Placement):
        raise impl.refused(point, f"must offer Placements, not {shown(placement)}")
    rows = placement.rows
    if len(rows):
        if _is_rising(rows):
            lowest, highest = rows.item(0), rows.item(-1)
        else:
            if len(np.unique(rows)) != len(rows):
                raise impl.refused(point, f"must name each row once, and {placement.name} names some twice")
            lowest, highest = int(rows.min()), int(rows.max())
        if not 0 <= lowest <= highest < size:
            raise impl.refused(point, f"must name rows from 0 to {size - 1}, and {placement.name} names others")
    if rows.dtype == np.intp and not rows.flags.writeable:
        return placement
    return Placement(placement.name, read_only(rows.astype(np.intp, copy=False)), placement.tier)


def _is_rising(rows: Rows) -> bool:
    """Whether each row is above the one before. Plain numbers take half the time of an array for a rack of nodes."""
    if len(rows) > _RACK:
        return bool((rows[1:] > rows[:-1]).all())
    numbers: list[int] = rows.tolist()
    return all(map(lt, numbers, numbers[1:]))
