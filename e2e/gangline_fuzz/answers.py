"""A plugin whose hooks answer oddly or raise: it harms the pods of its own profile, and nobody else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gangline import Narrow, Reason, Status, hookimpl, unschedulable, wait
from gangline.api import hookspecs

PROFILE = "odd"
NAME = "Odd"
SKIPPED = ("queue_sort",)  # the same plugin has to sort for all profiles


def _hooks() -> dict[str, Callable[..., Any]]:
    found = {name: value for name, value in vars(hookspecs.Hooks).items() if inspect.isfunction(value)}
    return {name: hook for name, hook in found.items() if name not in SKIPPED}


HOOKS = _hooks()
"""Every extension point, by its name."""


class Odd(Exception):
    """What an odd plugin raises."""


class Hidden(Exception):
    """An exception that cannot be written as a text."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # the point of it


def _raises(kind: type[BaseException], *said: object) -> Callable[[int], Any]:
    """Raises a new one each time: an exception keeps the frames that it went through, and with them the cluster."""

    def answer(size: int) -> Any:
        raise kind(*said)

    return answer


def _endless(size: int) -> Any:
    while True:
        yield {"nodes": size}


ANSWERS: Mapping[str, Callable[[int], Any]] = {
    "None": lambda size: None,
    "True": lambda size: True,
    "a number": lambda size: 7,
    "NaN": lambda size: float("nan"),
    "a huge number": lambda size: 2**70,
    "a text": lambda size: "n0",
    "the name of no node": lambda size: "nowhere",
    "bytes": lambda size: b"\xff",
    "a list": lambda size: [None, 1, "x"],
    "a set": lambda size: {"n0"},
    "a mapping": lambda size: {"n0": "n1", 7: None},
    "a class": lambda size: Status,
    "itself": lambda size: ANSWERS,
    "zeros": lambda size: np.zeros(size),
    "ones": lambda size: np.ones(size, dtype=np.uint8),
    "codes without reasons": lambda size: np.full(size, 200, dtype=np.uint8),
    "negative codes": lambda size: np.full(size, -1),
    "too short": lambda size: np.zeros(max(0, size - 1)),
    "too long": lambda size: np.zeros(size + 3),
    "a table": lambda size: np.zeros((size, 2)),
    "nothing at all": lambda size: np.zeros(0),
    "objects": lambda size: np.array([None] * size, dtype=object),
    "texts": lambda size: np.array(["x"] * size),
    "complex numbers": lambda size: np.zeros(size, dtype=np.complex128),
    "numbers that are none": lambda size: np.full(size, np.nan),
    "infinity": lambda size: np.full(size, np.inf),
    "dates": lambda size: np.zeros(size, dtype="datetime64[s]"),
    "a status": lambda size: unschedulable("no"),
    "a status with odd reasons": lambda size: unschedulable(7),  # type: ignore[arg-type]  # the point of it
    "to wait for ever": lambda size: wait(float("inf")),
    "to wait for NaN": lambda size: wait(float("nan")),
    "to wait for less than nothing": lambda size: wait(-1.0),
    "narrow": lambda size: Narrow(frozenset({"n0"})),
    "narrow by a list": lambda size: Narrow(["n0"]),  # type: ignore[arg-type]  # the point of it
    "narrow by nothing": lambda size: Narrow(None),  # type: ignore[arg-type]  # the point of it
    "an error": _raises(Odd, "odd"),
    "an error that cannot be shown": _raises(Hidden),
    "a KeyError": _raises(KeyError, "x"),
    "an AssertionError": _raises(AssertionError),
    "a StopIteration": _raises(StopIteration),
    "a RecursionError": _raises(RecursionError),
    "a MemoryError": _raises(MemoryError),
    "SystemExit": _raises(SystemExit, 3),
    "GeneratorExit": _raises(GeneratorExit),
    "endlessly": _endless,
}
"""What a hook may answer, by a name that can be kept; each is told how many nodes there are."""


def plans() -> st.SearchStrategy[dict[str, str]]:
    """Some hooks, and how each answers."""
    return st.dictionaries(st.sampled_from(sorted(HOOKS)), st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=3)


def plugin(plan: Mapping[str, str]) -> type[Any]:
    """A plugin that answers so."""

    def made(name: str, answer: Callable[[int], Any]) -> Any:
        if inspect.iscoroutinefunction(HOOKS[name]):

            async def later(self: Any) -> Any:
                return answer(0)

            return later

        if "nodes" in inspect.signature(HOOKS[name]).parameters:
            return lambda self, nodes: answer(len(nodes))
        return lambda self: answer(0)

    hooks = {}
    for name, how in plan.items():
        hook = made(name, ANSWERS[how])
        hook.__name__ = name
        hooks[name] = hookimpl(hook)
    return type(NAME, (), {"name": NAME, "reasons": (Reason("no"),), **hooks})


def configuration(plan: Mapping[str, str]) -> str:
    """A profile of this plugin at every point that it has."""
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
        f"- schedulerName: {PROFILE}\n  plugins: {{multiPoint: {{enabled: [{{name: {NAME}}}]}}}}\n"
    )
