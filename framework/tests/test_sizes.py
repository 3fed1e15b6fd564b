"""Caches hold as many bytes as they may, whatever their entries are made of."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import model
from gangline.profile.evaluation import Evaluator
from gangline.sizes import BoundedCache, CacheByUse, quick_size_of, size_of
from gangline.testing import cluster, make_node, make_pod, make_runtime
from gangline_plugins.node_affinity import NodeAffinity
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.taint_toleration import TaintToleration


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros(100_000),
        lambda: ["x" * n for n in range(300, 1300)],
        lambda: {f"key-{n}": (n, f"value-{n}") for n in range(2000)},
        lambda: [model.Toleration(key=f"key-{n}", value=f"value-{n}") for n in range(2000)],
        lambda: frozenset(f"name-{n}" for n in range(5000)),
    ],
    ids=["array", "texts", "map", "structs", "set"],
)
def test_a_value_is_measured_at_about_what_it_takes(make: Callable[[], Any]) -> None:
    tracemalloc.start()
    value = make()
    truth, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert 0.5 < size_of(value) / truth < 2.0


def test_what_is_there_twice_counts_once_and_a_part_of_an_array_as_the_whole() -> None:
    array = np.zeros(1000)

    assert size_of([array, array, array[:10]]) < 8000 + 500
    assert size_of(array[:10]) > 8000


@dataclass(frozen=True)
class Plain:
    text: str
    number: int


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(), inner)
        | st.builds(lambda texts: frozenset(texts), st.lists(st.text()))
        | st.builds(lambda text, number: Plain(text, number), st.text(), st.integers())
    ),
)


@given(PLAIN)
def test_the_quick_size_is_never_less_than_the_other(value: object) -> None:
    assert quick_size_of(value) >= size_of(value)


def test_what_is_no_plain_data_is_measured_object_by_object() -> None:
    circle: list[Any] = [np.zeros(1000)]
    circle.append(circle)

    assert quick_size_of(circle) == size_of(circle) > 8000


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=60))
def test_a_cache_never_holds_more_than_it_may_and_drops_what_was_used_least_recently(
    puts: list[tuple[int, int]],
) -> None:
    cache: BoundedCache[int, int] = BoundedCache(100, lambda key, value: value)
    order: dict[int, int] = {}
    for key, size in puts:
        cache.put(key, size)
        order.pop(key, None)
        order[key] = size
        while sum(order.values()) > 100 and len(order) > 1:
            order.pop(next(iter(order)))

        assert cache.items() == order
        assert cache.bytes == sum(order.values())


def test_an_entry_that_is_dropped_takes_no_memory() -> None:
    cache: BoundedCache[str, str] = BoundedCache(1000, lambda *_: 10)
    cache.put("a", "x")
    cache.put("b", "y")

    cache.pop("a")
    cache.pop("c")

    assert (cache.get("a"), cache.get("b"), cache.bytes) == (None, "y", 10)


def test_an_entry_that_has_grown_makes_others_go() -> None:
    sizes = {"a": 10, "b": 10, "c": 10}
    cache: BoundedCache[str, str] = BoundedCache(30, lambda key, value: sizes[key])
    for key in sizes:
        cache.put(key, key)
    assert cache.get("a") == "a"

    sizes["c"] = 20
    cache.measure("c")

    assert list(cache.items()) == ["c", "a"] and cache.bytes == 30


def test_a_cache_by_use_grows_where_what_it_has_dropped_is_asked_for_again_and_not_for_what_occurs_once() -> None:
    cache: CacheByUse[int, int] = CacheByUse(100, lambda: 250, lambda *_: 10)
    for key in range(1000):
        assert cache.get(key) is None
        cache.put(key, key)
    once = cache.bytes
    for _ in range(3):
        for key in range(2000, 2020):
            if cache.get(key) is None:
                cache.put(key, key)
    again = cache.bytes
    for _ in range(3):
        for key in range(100):
            if cache.get(key) is None:
                cache.put(key, key)

    assert (once, again, cache.bytes) == (100, 200, 250)


@pytest.mark.parametrize(
    ("nodes", "classes", "most"), [(3, 300, 2**18), (3000, 60, 2**20)], ids=["few nodes", "many nodes"]
)
def test_what_is_kept_of_pod_classes_takes_no_more_than_it_may_however_few_nodes_there_are(
    nodes: int, classes: int, most: int
) -> None:
    cache = cluster(make_node(f"n{i}") for i in range(nodes))
    profile = make_runtime(cache, NodeResourcesFit, TaintToleration, NodeAffinity).profile
    evaluator = Evaluator(profile, cache.nodes, None, kept_bytes=most)
    records = [cache.record(make_pod(f"p{i}", cpu=f"{i + 1}m")) for i in range(classes)]
    for record in records:
        record.cls.memo.clear()
    evaluator.choose(evaluator.filter(records[0]))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    for record in records:
        for _ in range(2):  # scores that are asked for again are kept
            evaluator.choose(evaluator.filter(record))
        record.cls.memo.clear()  # lives with the class

    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert kept < 3 * most  # all of them would take twice as much on few nodes, and 8 MiB on many
