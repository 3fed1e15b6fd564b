"""The faults of plugins: counted, and logged with their traceback, but only a few times a minute.

Code that calls a plugin makes the PluginError here, where the fault happens, and raises it. Other code decides what the
error means for a pod. So a fault is reported once, however far the exception goes.
"""

from __future__ import annotations

import logging
import reprlib
import time
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar

import prometheus_client as metrics

from gangline.errors import DeadlineExceeded, PluginError

log = logging.getLogger(__name__)

SLOW = 0.05
"""Seconds that a hook may block the loop before the log names it."""
PAUSE = 60.0
"""Seconds during which the log does not repeat a message."""
MOST_TEXTS = 5
"""Different faults of one plugin at one extension point that are logged in that time."""
MOST_OF_TEXT = 500
"""Characters of a fault that a message shows, at most."""

T = TypeVar("T")

being_built: ContextVar[str] = ContextVar("being_built", default="")
"""The plugin that is being built; what it asks for is attributed to it."""


class Failures:
    """Records the faults of plugins; one object for each process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, warns_of_slow: bool = True) -> None:
        """Without `warns_of_slow` slow calls are not logged: for commands, in which no other work waits for plugins."""
        self._clock = clock
        self._warns_of_slow = warns_of_slow
        self._said: dict[tuple[str, str, str], _Said] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        """The number of faults by plugin and extension point."""
        self.slow_counts: Counter[tuple[str, str]] = Counter()
        self.awaited: Counter[tuple[str, str, str]] = Counter()
        """The calls that have not returned yet, by profile, plugin and extension point; of a binding's points alone."""
        labels = ("plugin", "extension_point")
        self.failed = metrics.Counter(
            "gangline_plugin_failures",
            "Exceptions of plugins, and answers that they must not give.",
            labels,
            registry=None,
        )
        self.held = metrics.Counter(
            "gangline_slow_hooks", "Calls of plugins that held the loop for more than 50 ms.", labels, registry=None
        )

    def raised(self, plugin: str, point: str, error: BaseException, then: str = "") -> PluginError | DeadlineExceeded:
        """A plugin has raised: returns the exception to raise instead. `then` says what follows from the fault.

        A PluginError that passed through the plugin is returned unchanged. So is DeadlineExceeded, which is not its
        fault.
        """
        if isinstance(error, DeadlineExceeded):
            return error
        if isinstance(error, PluginError):
            if error.is_counted:
                return error
            found = error
            found.plugin = found.plugin or plugin
        else:
            found = PluginError(plugin, point, f"{described(error)}{then}")
            found.__cause__ = error
        self._note(found, plugin, point, error)
        return found

    def refused(self, plugin: str, point: str, why: str) -> PluginError:
        """A plugin has given a wrong answer: returns the exception to raise."""
        found = PluginError(plugin, point, why)
        self._note(found, plugin, point, None)
        return found

    def slow(self, plugin: str, point: str, seconds: float) -> None:
        """A plugin has blocked the loop for this many seconds."""
        self.slow_counts[plugin, point] += 1
        self.held.labels(plugin, point).inc()
        if not self._warns_of_slow:
            return
        left_out = self._due("slow", plugin, point, "")
        if left_out is not None:
            log.warning("plugin %s at %s held the loop for %.3f s%s", plugin, point, seconds, _and(left_out))

    def _note(self, found: PluginError, plugin: str, point: str, error: BaseException | None) -> None:
        found.is_counted = True
        self.counts[plugin, point] += 1
        self.failed.labels(plugin, point).inc()
        left_out = self._due("failed", plugin, point, str(found))
        if left_out is not None:
            log.error("%s%s", found, _and(left_out), exc_info=error)

    def _due(self, what: str, plugin: str, point: str, text: str) -> int | None:
        """How many lines were left out since the last one; None if this line is to be left out too."""
        now = self._clock()
        said = self._said.get((what, plugin, point))
        if said is None or now - said.since >= PAUSE:
            self._said[what, plugin, point] = _Said(now, text)
            return said.left_out if said is not None else 0
        if text in said.texts or len(said.texts) >= MOST_TEXTS:
            said.left_out += 1
            return None
        said.texts.add(text)
        return 0


class _Said:
    """What was logged about one plugin at one extension point."""

    __slots__ = ("left_out", "since", "texts")

    def __init__(self, since: float, text: str) -> None:
        self.since = since
        self.texts = {text}
        self.left_out = 0


def described(error: BaseException) -> str:
    """An exception in one line, even if its own text cannot be made."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """The text of an exception."""
    try:
        return cut(str(error))
    except BaseException:  # the plugin's own code makes the text of its exception
        return "its text cannot be made"


def shown(answer: object) -> str:
    """An answer of a plugin in one line, even if its own text cannot be made."""
    try:
        return cut(reprlib.repr(answer))
    except BaseException:  # the plugin's own code makes the text of its answer
        return f"a {type(answer).__name__}"


def cut(text: str) -> str:
    """The part of a text that a message shows."""
    return text if len(text) <= MOST_OF_TEXT else f"{text[: MOST_OF_TEXT - 3]}..."


def cause_of(error: BaseException) -> BaseException | None:
    """The cause to give the PluginError made from this exception; a PluginError that passed through keeps its own."""
    return error.__cause__ if isinstance(error, PluginError | DeadlineExceeded) else error


def name_of(thing: object) -> str:
    """The owner of a plugin's method or function, for messages."""
    thing = getattr(thing, "func", thing)  # of a partial
    owner = getattr(thing, "__self__", thing)
    name = getattr(owner, "name", None)
    if isinstance(name, str) and name:
        return name
    return getattr(thing, "__qualname__", None) or type(owner).__name__


@types.coroutine
def stepped(
    work: Coroutine[Any, Any, T],
    slow: Callable[[float], None],
    is_left: Callable[[], bool] = lambda: False,
    first_wait: Callable[[], object] | None = None,
) -> Generator[Any, Any, T]:
    """Await some work, and report each step that blocks the loop for more than `SLOW` seconds.

    If an exception is thrown in, for example a cancellation, while `is_left()` is true, the work does not receive the
    exception, and is closed. `first_wait` is called when the work first waits for something; work that never waits
    never leads to a call.
    """
    clock, value, error = time.perf_counter, None, None
    while True:
        start = clock()
        try:
            waits = work.send(value) if error is None else work.throw(error)
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            if (seconds := clock() - start) > SLOW:
                slow(seconds)
        if first_wait is not None:
            first_wait()
            first_wait = None
        value, error = None, None
        try:
            value = yield waits
        except GeneratorExit:
            work.close()
            raise
        except BaseException as thrown:  # a cancellation, which the work has to receive
            if is_left():
                with suppress(BaseException):  # the work may raise anything when it is closed
                    work.close()
                raise
            error = thrown


def _and(left_out: int) -> str:
    return f" (and {left_out} more lines like this, left out)" if left_out else ""
