"""The bars, and how figures are judged by them; pure functions."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

ALLOWED = 1.1
"""The highest count that passes, as a multiple of its bar."""
ALLOWED_TIME = 1.3
"""The longest time that passes, as a multiple of its bar: times depend on the processor, and a little on other
processes.
"""
ALLOWED_ELSEWHERE = 1.4
"""The highest count that passes under another version of Python than the bars': it compiles to other instructions."""
TIME = ": time"
"""The end of the names of figures that are times."""


class Bars(msgspec.Struct, frozen=True):
    """The contents of bars.json."""

    python: str
    """The version under which the figures were measured, such as 3.11."""
    figures: dict[str, float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One figure beside its bar."""

    name: str
    bar: float
    now: float
    allowed: float
    """The highest multiple of the bar that passes."""

    @property
    def ratio(self) -> float:
        """The figure as a multiple of the bar."""
        return self.now / self.bar

    @property
    def is_worse(self) -> bool:
        """Whether the figure is over what is allowed."""
        return self.ratio > self.allowed

    def says(self) -> str:
        """What to do about the ratio, in words; "" if nothing."""
        if self.is_worse:
            return f"WORSE: at most {self.allowed:g} is allowed"
        return "better: make bench-bars" if self.ratio < 1 / self.allowed else ""


def this_python() -> str:
    """The version of this Python: major and minor number."""
    return ".".join(platform.python_version_tuple()[:2])


def made(figures: Mapping[str, float], python: str) -> dict[str, Any]:
    """New bars, for bars.json."""
    rounded = {name: round(figure, 4) for name, figure in figures.items()}
    return {"python": python, "figures": rounded}


def read(text: str) -> Bars:
    """The bars in the text of bars.json. Raises msgspec.ValidationError."""
    return msgspec.json.decode(text, type=Bars)


def judged(figures: Mapping[str, float], bars: Bars, python: str) -> Sequence[Verdict]:
    """Each figure beside its bar. ValueError if a figure has no bar, or a bar no figure."""
    if figures.keys() != bars.figures.keys():
        raise ValueError(f"figures and bars differ: {sorted(figures.keys() ^ bars.figures.keys())}; make bench-bars")
    counts = ALLOWED if python == bars.python else ALLOWED_ELSEWHERE
    return [
        Verdict(name, bars.figures[name], now, ALLOWED_TIME if name.endswith(TIME) else counts)
        for name, now in figures.items()
    ]
