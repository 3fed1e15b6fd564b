"""One call of a plugin: timed, its faults translated, its answer checked.

Any exception of a plugin becomes a PluginError, also SystemExit and KeyboardInterrupt: no plugin may end the process.
Answers for many nodes at once are checked in `answers`, where the number of nodes is known.
"""

from __future__ import annotations

import inspect
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from numbers import Real
from typing import Any

from gangline.api.proposal import Proposal
from gangline.failures import SLOW, Failures, cause_of, shown, stepped
from gangline.status import MAX_SCORE, SKIP, SKIP_CLASS, Code, Narrow, Status
from gangline.telemetry.metrics import Series

ASYNC_POINTS = frozenset({"pre_bind", "bind", "post_bind"})
_LONGEST_KEY = 16
"""Numbers of a sort key, at most."""

Check = Callable[[Any], str]
"""Returns what is wrong with an answer; empty if nothing is wrong."""

_TYPES: dict[str, tuple[type[Any], ...]] = {
    "pre_enqueue": (Status,),
    "pre_filter": (Status, Narrow),
    "post_filter": (Status, str, Proposal),
    "post_reject": (bool,),
    "pre_score": (Status,),
    "reserve": (Status,),
    "permit": (Status,),
    "pre_bind_pre_flight": (Status,),
    "pre_bind": (Status,),
    "bind": (Status,),
    "pod_group_concede": (AbstractContextManager,),
    "pod_group_post_filter": (Status, Mapping),
}
"""The types that an answer may have, besides None."""
_CODES: dict[str, tuple[Code, ...]] = {
    "pre_filter": (Code.SKIP, Code.SKIP_CLASS),
    "pre_score": (Code.SKIP,),
    "permit": (Code.WAIT,),
    "pre_bind_pre_flight": (Code.SKIP,),
    "bind": (Code.SKIP,),
}
"""The extension points at which WAIT, SKIP and SKIP_CLASS are allowed."""


@cache
def check_of(point: str) -> Check:
    """The check for answers at an extension point."""
    if point in _OTHERS:
        return _OTHERS[point]
    types = _TYPES.get(point)
    if types is None:
        return _anything
    nominates = Mapping in types
    refused = tuple(code for code in (Code.WAIT, Code.SKIP, Code.SKIP_CLASS) if code not in _CODES.get(point, ()))

    def check(answer: Any) -> str:
        if answer is None:
            return ""
        if not isinstance(answer, types):
            wanted = " or ".join(each.__name__ for each in types)
            return f"must return {wanted} or None, not {shown(answer)}"
        if isinstance(answer, Status) and answer.code in refused:
            return f"must not answer {answer.code.value}"
        return _nominations(answer) if nominates else ""

    return check


def _anything(answer: Any) -> str:
    return ""


def _nominations(answer: Status | Mapping[Any, Any]) -> str:
    if isinstance(answer, Status):
        return ""
    fits = all(isinstance(uid, str) and isinstance(node, str) for uid, node in answer.items())
    return "" if fits else f"must nominate by UID of the pod and name of the node, not {shown(answer)}"


def _sort_key(answer: Any) -> str:
    if not isinstance(answer, tuple) or not 0 < len(answer) <= _LONGEST_KEY:
        return f"must return a tuple of 1 to {_LONGEST_KEY} numbers, not {shown(answer)}"
    for each in answer:
        if type(each) is not float and type(each) is not int and not isinstance(each, Real):
            return f"must return a tuple of numbers, not {shown(answer)}"
        if each != each:  # true of NaN alone
            return f"must return numbers that can be compared, not {shown(answer)}"
    return ""


def _placement_score(answer: Any) -> str:
    if answer.__class__ is not float and not isinstance(answer, Real):  # isinstance takes ten times as long
        return f"must return a number, not {shown(answer)}"
    return "" if 0.0 <= float(answer) <= MAX_SCORE else f"scores must be 0..100, got {float(answer):g}"


def _placements(answer: Any) -> str:
    if answer is None or isinstance(answer, Status):
        return ""
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        return f"must return Placements, a Status or None, not {shown(answer)}"
    return ""


def _at_once(answer: Any) -> str:
    if answer is None or (callable(answer) and not inspect.iscoroutinefunction(answer)):
        return ""
    if isinstance(answer, Status) and answer.code is Code.SKIP:
        return ""
    return f"must return a function, SKIP or None, not {shown(answer)}"


def _sets_of_rows(answer: Any) -> str:
    if answer is None or (isinstance(answer, Iterable) and not isinstance(answer, str | bytes | Mapping)):
        return ""
    return f"must return arrays of rows or None, not {shown(answer)}"


_OTHERS: dict[str, Check] = {
    "queue_sort": _sort_key,
    "reserve_all": _at_once,
    "permit_all": _at_once,
    "placement_generate": _placements,
    "placement_narrow": _sets_of_rows,
    "placement_score": _placement_score,
}


def timed(
    function: Callable[..., Any], name: str, point: str, series: Series, failures: Failures
) -> Callable[..., Any]:
    """A hook's function, measured, with exceptions translated and answers checked; for hooks that are not async."""
    wrap = _unchecked if check_of(point) is _anything else _checked
    call = wrap(function, name, point, series, failures)
    call.__wrapped__ = function  # type: ignore[attr-defined]  # functions take attributes
    return call


def _unchecked(
    function: Callable[..., Any], name: str, point: str, series: Series, failures: Failures
) -> Callable[..., Any]:
    """As `_checked`, without the check: 0.63 µs for a call instead of 0.74, where the hook itself takes 0.19.

    Filters and scores are called for every pod. Their answers are checked where the number of nodes is known.
    """
    clock, too_long, bounds, counts = time.perf_counter, SLOW, series.bounds, series.counts

    def call(*args: Any) -> Any:
        start = clock()
        try:
            return function(*args)
        except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
            raise failures.raised(name, point, error) from cause_of(error)
        finally:
            seconds = clock() - start
            counts[bisect_left(bounds, seconds)] += 1  # as `series.observe`, which takes another call
            series.total += seconds
            if seconds > too_long:
                failures.slow(name, point, seconds)

    return call


def _checked(
    function: Callable[..., Any], name: str, point: str, series: Series, failures: Failures
) -> Callable[..., Any]:
    clock, too_long, bounds, counts = time.perf_counter, SLOW, series.bounds, series.counts
    check = check_of(point)
    asks_always = point in _OTHERS
    # The answers that most plugins give most of the time need no check.
    allowed = _CODES.get(point, ())
    skip = SKIP if Code.SKIP in allowed else None
    skip_class = SKIP_CLASS if Code.SKIP_CLASS in allowed else None

    def call(*args: Any) -> Any:
        start = clock()
        try:
            answer = function(*args)
            if (answer is None or answer is skip or answer is skip_class) and not asks_always:
                return answer
            if why := check(answer):
                raise failures.refused(name, point, why)
            return answer
        except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
            raise failures.raised(name, point, error) from cause_of(error)
        finally:
            seconds = clock() - start
            counts[bisect_left(bounds, seconds)] += 1  # as `series.observe`, which takes another call
            series.total += seconds
            if seconds > too_long:
                failures.slow(name, point, seconds)

    return call


def timed_async(
    function: Callable[..., Any], name: str, point: str, series: Series, failures: Failures
) -> Callable[..., Any]:
    """The call of an async hook. Its exceptions are left to the caller, who can tell a cancellation from a failure."""
    clock, observe = time.perf_counter, series.observe
    check = check_of(point)

    def slow(seconds: float) -> None:
        failures.slow(name, point, seconds)

    async def call(*args: Any) -> Any:
        start = clock()
        try:
            work = function(*args)
            answer = await (stepped(work, slow) if inspect.iscoroutine(work) else work)
        finally:
            observe(clock() - start)
        if point == "post_bind":
            return None  # this point has no answer
        if why := check(answer):
            raise failures.refused(name, point, why)
        return answer

    return call
