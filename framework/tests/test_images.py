"""Image columns follow the nodes."""

from __future__ import annotations

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
