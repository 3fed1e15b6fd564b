"""What grows is found and named; and nothing grows in a scheduler, whether it leads or stands by."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import logging
import os
import pkgutil
import re
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gangline
import gangline_plugins
from churn.bounded import BOUNDED
from churn.cluster import Churn, Pace
from churn.measuring import Measured, measure
from churn.reach import Reach, grown
from gangline.simulate import run
from memory import growing, slope

PODS_OF_NODE, LEAST = 40 if os.environ.get("CI") else 20, 6
PART = PODS_OF_NODE * 15 // 2
"""Pods between two looks; one node comes with each PODS_OF_NODE of them, so that what has an entry for each grows by 7:
more than LEAST, and growth that counts.
"""

MOST_LOOKS = 12
"""What has grown at each of three looks may only fill up still, as on a busy machine, where decisions take other turns.
A leak grows at each look, however many there are.
"""


class Holder:
    """Holds collections in all ways in which objects do."""

    __slots__ = ("_inner", "by_name", "column", "listeners")

    def __init__(self) -> None:
        self._inner: deque[str] = deque()
        self.by_name: OrderedDict[str, list[int]] = OrderedDict()
        self.column = np.zeros(4)
        self.listeners: list[Callable[[], Any]] = []


def test_sizes_are_those_of_all_objects_of_a_type_together() -> None:
    holders = [Holder(), Holder()]
    for number, each in enumerate(holders):
        each._inner.extend("ab")
        each.by_name["a"] = [1] * (number + 1)

    sizes = Reach({"root": holders}).sizes

    assert {name: size for name, size in sizes.items() if size} == {
        "root": 2,
        "Holder._inner": 4,
        "Holder.by_name": 2,
        "Holder.by_name[]": 3,
        "Holder.column": 8,
    }


async def test_what_runs_and_what_is_called_back_is_reached() -> None:
    def listen(seen: list[int]) -> Callable[[], None]:
        return lambda: seen.append(1)

    async def wait() -> None:
        known = {"a": 1, "b": 2}
        await asyncio.Event().wait()
        known.clear()

    other = Holder()
    other.by_name["b"] = []
    holder = Holder()
    holder.listeners = [listen([1, 2, 3]), functools.partial(max, [1, 2]), other.by_name.popitem]
    task = asyncio.create_task(wait())
    await asyncio.sleep(0)

    sizes = Reach({"holder": holder, "task": task}).sizes

    found = {name.rpartition("<locals>.")[2]: size for name, size in sizes.items() if size}
    assert found["<lambda>().seen"] == 3 and found["wait().known"] == 2
    assert found["Holder.listeners[]"] >= 2
    task.cancel()


def test_what_is_left_out_is_not_counted() -> None:
    holder = Holder()
    holder._inner.append("a")

    assert "Holder._inner" not in Reach({"root": holder}, closed={"Holder._inner"}).sizes
    assert "Holder._inner" not in Reach({"root": holder}, besides=[holder._inner]).sizes
    assert not Reach({"root": holder}, without=(Holder,)).sizes


def test_only_what_grows_each_time_is_named() -> None:
    looks = [Counter(leak=3, filled=1, noise=5), Counter(leak=6, filled=9, noise=9), Counter(leak=9, filled=9, noise=2)]

    assert grown(looks) == {"leak": (3, 6, 9)}
    assert grown(looks, least=4) == {}


def test_growth_is_told_by_million_pods() -> None:
    found = [Measured(pods, {"kept": pods}, {}, 100.0 + pods / 1e5) for pods in (100_000, 200_000, 300_000)]

    assert slope(found) == pytest.approx(10.0)
    assert growing(found) == {"kept": (100_000, 200_000, 300_000)}


def attributes_of(cls: type) -> str:
    """The code of the modules of a class and of its bases in Python, in which their attributes are named."""
    modules = [sys.modules[each.__module__] for each in cls.__mro__ if each is not object]
    return "".join(inspect.getsource(each) for each in modules if str(each.__file__).endswith(".py"))


def test_each_collection_with_a_maximum_size_exists() -> None:
    """A name that is no more hides nothing, and its collection fills up to its maximum, look after look."""
    for package in (gangline, gangline_plugins):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    classes = {
        each.__qualname__: each
        for name, module in sys.modules.items()
        if name.partition(".")[0] in ("gangline", "gangline_plugins", "weakref", "_weakrefset")
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == name
    }

    def has(cls: str, name: str) -> bool:
        code = attributes_of(classes[cls]) if cls in classes else ""
        return re.search(rf"\bself\.{name}\b|^    {name}:", code, re.MULTILINE) is not None

    assert [name for name in BOUNDED if not has(*name.split("."))] == []


def growing_in(looks: list[Measured]) -> dict[str, tuple[int, ...]]:
    """What has grown at each look."""
    return grown([each.sizes for each in looks], least=LEAST)


def test_nothing_grows_in_a_leader_nor_in_a_standby() -> None:
    churn = Churn(pace=Pace(pods_of_node=PODS_OF_NODE, pods_of_namespace=PODS_OF_NODE * 7 // 4))

    async def story() -> list[Measured]:
        async with AsyncExitStack() as stack:
            await churn.start(stack)
            looks: list[Measured] = []
            while len(looks) < 3 or (growing_in(looks) and len(looks) < MOST_LOOKS):
                await churn.play(PART)
                looks.append(measure(churn))
            return looks

    logging.disable(logging.WARNING)
    try:
        looks = run(story(), churn.clock)
    finally:
        logging.disable(logging.NOTSET)

    assert churn.done["bound"] > 0.9 * churn.done["made"] and churn.done["deleted"] == churn.done["made"]
    assert growing_in(looks) == {}


def test_a_collection_that_grows_is_named_by_its_attribute() -> None:
    found = SimpleNamespace(kept=[1])

    before, after = Reach({"root": found}).sizes, Reach({"root": SimpleNamespace(kept=[1] * 9)}).sizes

    assert grown([before, after]) == {"SimpleNamespace.kept": (1, 9)}
