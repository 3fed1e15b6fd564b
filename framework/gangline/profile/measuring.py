"""Measures how long the plugins of one extension point take together."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from gangline.telemetry.series import Series

Method = TypeVar("Method", bound=Callable[..., Any])


class TimedPoint(Protocol):
    """An object whose methods are measured."""

    seconds: Mapping[str, Series]
    """The series of each extension point."""


def measured(point: str) -> Callable[[Method], Method]:
    """Measure a method that calls all plugins of an extension point: the time that the plugins take together."""

    def measure(method: Any) -> Any:
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def waits(self: TimedPoint, *args: Any) -> Any:
                start = time.perf_counter()
                try:
                    return await method(self, *args)
                finally:
                    self.seconds[point].observe(time.perf_counter() - start)

            return waits

        @functools.wraps(method)
        def call(self: TimedPoint, *args: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(self, *args)
            finally:
                self.seconds[point].observe(time.perf_counter() - start)

        return call

    return measure
