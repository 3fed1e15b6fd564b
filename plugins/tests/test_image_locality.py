"""ImageLocality."""

from __future__ import annotations

import pytest

from gangline import model
from gangline.testing import cluster, make_node, make_pod, run_score
from gangline_plugins.image_locality import ImageLocality

MB = 2**20


def pod(*images: str) -> model.Pod:
    return make_pod("p", containers=[model.Container(image=image) for image in images])


@pytest.mark.parametrize(
    ("size", "score"),
    [(20, 0.0), (46 + 977, 50.0), (2 * 1000, 100.0), (9000, 100.0)],
    ids=["tiny", "half", "full", "huge"],
)
def test_a_node_that_holds_the_image_scores_by_its_size(size: int, score: float) -> None:
    cache = cluster([make_node("a", images={"app:1": size * MB}), make_node("b")])  # half of it counts: one node of two

    assert run_score(ImageLocality, pod("app:1"), cache) == {"a": score, "b": 0.0}


def test_the_same_bytes_count_less_where_fewer_nodes_hold_them() -> None:
    held = {"app:1": 1000 * MB}
    few = run_score(ImageLocality, pod("app:1"), cluster([make_node("a", images=held), *map(make_node, "bcd")]))
    many = run_score(ImageLocality, pod("app:1"), cluster(make_node(name, images=held) for name in "abcd"))

    assert few["a"] < many["a"] == 100.0


@pytest.mark.parametrize(
    ("image", "held"),
    [("app", "app:latest"), ("registry:5000/app", "registry:5000/app:latest"), ("app:1", "app:1")],
    ids=["no tag", "port and no tag", "tag"],
)
def test_an_image_without_a_tag_is_the_latest(image: str, held: str) -> None:
    cache = cluster([make_node("a", images={held: 4000 * MB})])

    assert run_score(ImageLocality, pod(image), cache) == {"a": 100.0}


def test_every_container_raises_what_full_marks_take() -> None:
    cache = cluster([make_node("a", images={"app:1": 1000 * MB})])

    assert run_score(ImageLocality, pod("app:1", "other:1"), cache)["a"] == 100 * (1000 - 23) // (2000 - 23)


def test_while_no_node_holds_an_image_there_is_no_opinion() -> None:
    cache = cluster([make_node("a", images={"app:1": 1000 * MB})])
    assert run_score(ImageLocality, pod("app:1"), cache)

    cache.upsert_node(make_node("a"))

    assert run_score(ImageLocality, pod("app:1"), cache) == {}
