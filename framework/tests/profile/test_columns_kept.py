"""The columns after any changes are those that would be made of the objects that there are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.state import labels, nodes, resource_axis, taints
from gangline.state.cache import Cache
from gangline.state.resource_axis import ResourceAxis
from gangline.testing import make_node, make_pod

RESOURCES = ("example.com/a", "example.com/b", "example.com/c", "cpu")
KEYS = ("rack", "zone", "odd")
TAINTS = ("a=1:NoSchedule", "b=2:NoExecute")

some_resources = st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 5))
node_changes = st.tuples(
    st.just("node"),
    st.sampled_from(["n", "m", "o"]),
    some_resources,
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from("xyz")),
    st.lists(st.sampled_from(TAINTS), unique=True),
)
pod_changes = st.tuples(st.just("pod"), st.sampled_from("pqrs"), st.sampled_from(["n", "m", "o"]), some_resources)
removals = st.tuples(st.just("remove"), st.sampled_from(["n", "m", "o", "p", "q", "r", "s"]))
asked = st.tuples(st.just("ask"), st.sampled_from([*KEYS, "nobody has it"]))


def apply(cache: Cache, change: Any) -> None:
    match change:
        case ("node", name, resources, node_labels, taints):
            cache.upsert_node(make_node(name, gpus=0, labels=node_labels, taints=taints, resources=resources))
        case ("pod", name, node, resources):
            cache.upsert_pod(cache.record(make_pod(name, node=node, resources=resources)))
        case ("remove", name):
            cache.remove_node(name)
            cache.remove_pod(f"pod-default-{name}")
        case ("ask", key):
            cache.nodes.view().label(key)


def seen(cache: Cache) -> dict[str, Any]:
    """What every view would show, by node."""
    view = cache.nodes.view()
    found: dict[str, Any] = {}
    for row, name in enumerate(cache.nodes.names):
        if not name:
            continue
        columns = {key: view.label(key) for key in (*KEYS, "nobody has it")}
        found[name] = (
            {resource: int(view.allocatable(resource)[row]) for resource in RESOURCES},
            {
                resource: int(view.requested(resource)[row])
                for resource in RESOURCES
                if int(view.allocatable(resource).sum())
            },
            {key: column.values[column.ids[row]] if column.exists[row] else None for key, column in columns.items()},
            view.taint_sets[int(view.taints[row])],
        )
    return found


@given(st.lists(node_changes | pod_changes | removals | asked, max_size=25))
def test_kept_columns_equal_those_made_anew(changes: list[Any]) -> None:
    cache = Cache()
    for change in changes:
        apply(cache, change)

    anew = Cache()
    for row, node in enumerate(cache.nodes.objects):
        if node is not None:
            anew.upsert_node(node)
        assert not cache.nodes.requested[ResourceAxis.NOTHING, row] and not cache.nodes.allocatable[4, row]
    for pod in cache.pods.values():
        anew.upsert_pod(anew.record(make_pod(pod.name, node=pod.node_name, resources=dict(_asked(pod)))))

    assert seen(cache) == seen(anew)


def _asked(pod: Any) -> Any:
    return ((name, f"{amount}m" if name == "cpu" else amount) for name, amount in pod.cls.requests.real.items())


def test_resources_that_only_pods_name_take_no_room() -> None:
    cache = Cache()
    cache.upsert_node(make_node("n", gpus=0, cpu=4))
    size = cache.nodes.allocatable.nbytes

    for number in range(50):
        resources = {f"example.com/{number}-{i}": 1 for i in range(100)}
        cache.upsert_pod(cache.record(make_pod(f"p{number}", node="n", resources=resources)))

    assert cache.nodes.allocatable.nbytes == size and len(cache.nodes.axis) == 5


def test_a_node_that_names_ever_other_resources_takes_no_more_room() -> None:
    cache = Cache()
    for number in range(200):
        cache.upsert_node(make_node("n", gpus=0, resources={f"example.com/{number}-{i}": 1 for i in range(50)}))

    assert len(cache.nodes.axis) < 200


def test_a_resource_for_which_there_was_no_room_has_some_when_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_axis, "MOST_OFFERED", 8)
    cache = Cache()
    cache.upsert_node(make_node("greedy", gpus=0, resources={f"example.com/{i}": 1 for i in range(8)}))
    cache.upsert_node(make_node("without", gpus=8))
    cache.remove_node("greedy")
    cache.remove_node("without")

    for name in ("n1", "n2", "n3"):
        cache.upsert_node(make_node(name, gpus=8))

    view = cache.nodes.view()
    assert sorted(view.allocatable("nvidia.com/gpu")[view.alive].tolist()) == [8, 8, 8]


def test_labels_that_only_pods_name_have_no_column() -> None:
    cache = Cache()
    cache.upsert_node(make_node("n", labels={"rack": "r"}))

    for number in range(1000):
        assert not cache.nodes.view().label(f"k{number}").exists.any()

    assert cache.nodes.labels.columns() == {}


def test_values_and_taints_of_the_past_are_forgotten() -> None:
    cache = Cache()
    cache.upsert_node(make_node("other", labels={"rack": "r"}, taints=["keep=1:NoSchedule"]))
    for number in range(5000):
        cache.upsert_node(make_node("n", labels={"rack": f"r{number}"}, taints=[f"t=v{number}:NoSchedule"]))
        cache.nodes.view().label("rack")

    column, view = cache.nodes.view().label("rack"), cache.nodes.view()
    assert len(column.values) <= labels._MOST_HISTORY + 8 and len(view.taint_sets) <= taints.MOST_HISTORY + 8
    assert column.equals("r4999").tolist() == [False, True] and column.equals("r").tolist() == [True, False]
    assert [view.taint_sets[number][0].key for number in view.taints.tolist()] == ["keep", "t"]


def test_more_pods_than_a_node_counts_are_refused_and_the_sums_stay_within_64_bits() -> None:
    cache, refused = Cache(), 0
    cache.upsert_node(make_node("n", cpu=4, memory="1Gi"))
    for number in range(nodes.MOST_PODS + 10):
        try:
            cache.upsert_pod(cache.record(make_pod(f"p{number}", node="n", memory=str(2**62))))
        except Exception as error:
            assert "and more are not counted" in str(error)
            refused += 1

    assert refused == 10 and int(cache.nodes.view().requested("memory")[0]) > 2**60
