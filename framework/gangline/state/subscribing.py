"""Who is told of changes, and for how long.

What a plugin subscribes while it is built is told until another configuration is taken, so that nothing of the old one
goes on listening. What is shared with later configurations, and what is subscribed at other times, is told for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Generic, TypeVar

L = TypeVar("L")


class Subscriptions:
    """Those of one configuration."""

    def __init__(self) -> None:
        self._ends: list[Callable[[], None]] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """What is subscribed in this block is one of these; all of them end where it raises."""
        token = _collecting.set(self)
        try:
            yield
        except BaseException:
            self.end()
            raise
        finally:
            _collecting.reset(token)

    def note(self, end: Callable[[], None]) -> None:
        """Call this at their end."""
        self._ends.append(end)

    def end(self) -> None:
        """None of them is told any more."""
        while self._ends:
            self._ends.pop()()


_collecting: ContextVar[Subscriptions | None] = ContextVar("_collecting", default=None)


@contextmanager
def for_good() -> Iterator[None]:
    """What is subscribed in this block does not end."""
    token = _collecting.set(None)
    try:
        yield
    finally:
        _collecting.reset(token)


class Listeners(Generic[L]):
    """Who is told, in the order in which they subscribed."""

    def __init__(self) -> None:
        self._listeners: tuple[L, ...] = ()

    def __iter__(self) -> Iterator[L]:
        return iter(self._listeners)

    def add(self, listener: L) -> None:
        """One more, who may be there already and is told once more then."""
        self._listeners = (*self._listeners, listener)
        if (subscriptions := _collecting.get()) is not None:
            subscriptions.note(partial(self._remove, listener))

    def _remove(self, listener: L) -> None:
        at = next(place for place, each in enumerate(self._listeners) if each is listener)
        self._listeners = self._listeners[:at] + self._listeners[at + 1 :]
