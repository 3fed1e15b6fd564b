"""Image columns follow the nodes."""

from __future__ import annotations

import time
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from gangline import model
from gangline.testing import cluster, make_node


def test_a_column_says_who_holds_the_image_and_how_large_it_is() -> None:
    cache = cluster([make_node("a", images={"app:1": 500}), make_node("b")])

    has, size = cache.nodes.view().image("app:1")

    assert has.tolist() == [True, False] and size == 500


def test_a_column_follows_changes_and_grows_with_the_nodes() -> None:
    cache = cluster([make_node("a", images={"app:1": 500})])
    cache.nodes.view().image("app:1")

    cache.upsert_node(make_node("a"))
    for i in range(100):
        cache.upsert_node(make_node(f"n{i}", images={"app:1": 500}))

    has, _ = cache.nodes.view().image("app:1")
    assert has.tolist() == [False, *[True] * 100]


def test_an_image_that_no_node_holds_has_no_size() -> None:
    cache = cluster([make_node("a", images={"app:1": 500})])
    cache.nodes.view().image("app:1")

    cache.upsert_node(make_node("a"))

    assert cache.nodes.view().image("app:1")[1] == 0
    assert cache.nodes.view().image("other:1")[1] == 0


def test_names_that_no_node_holds_leave_nothing_behind_and_cost_no_walk_over_the_nodes() -> None:
    cache = cluster(make_node(f"n{i}", images={f"image-{i}-{n}:1": 500 for n in range(50)}) for i in range(400))
    view = cache.nodes.view()
    tracemalloc.start()
    before, started = tracemalloc.get_traced_memory()[0], time.thread_time()

    held = [view.image(f"nobody-has-{n}:1")[1] for n in range(5000)]

    seconds, kept = time.thread_time() - started, tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert not any(held)
    assert seconds < 0.5 and kept < 100_000  # a walk for each would take 10 s, a column for each 2 MB


def test_columns_of_images_take_a_bounded_amount_of_memory() -> None:
    names = [f"image-{n}:1" for n in range(4000)]
    cache = cluster(make_node(f"n{i}", images=dict.fromkeys(names, 500)) for i in range(4))
    cache.nodes.images.grow(16_384)  # as at 16,384 nodes: a column takes 16 KiB
    view = cache.nodes.view()
    tracemalloc.start()

    for name in names:
        view.image(name)

    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 10 * 2**20
    assert all(view.image(name)[0].all() for name in names[:10])


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2)), max_size=4)),
        max_size=20,
    )
)
def test_a_column_is_always_what_the_nodes_hold(changes: list[tuple[int, list[tuple[str, int]]]]) -> None:
    cache = cluster(make_node(f"n{i}") for i in range(4))
    holds: dict[int, set[str]] = {i: set() for i in range(4)}
    for node, images in changes:
        made = make_node(f"n{node}")
        made.status.images = [model.ContainerImage(names=[name], size_bytes=size) for name, size in images]
        cache.upsert_node(made)
        holds[node] = {name for name, _ in images}

        for name in "abcd":
            has, size = cache.nodes.view().image(name)
            assert has.tolist() == [name in holds[i] for i in range(4)]
            assert not size or any(name in held for held in holds.values())
