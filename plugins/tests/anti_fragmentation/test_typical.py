"""What is typical: given or counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import ConfigError, InvalidObject, PluginError
from gangline.model import Pod
from gangline.testing import Cache, FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline.testing.configured import decode_args
from gangline_plugins.anti_fragmentation import AntiFragmentation
from gangline_plugins.anti_fragmentation.arguments import AntiFragmentationArgs, TypicalPod, typical_of
from gangline_plugins.anti_fragmentation.typical import PodHistory, PodKind, cpu_per_gpu, kind_of, typical

DAY = 86_400.0
SMALL, LARGE = PodKind(1000, 1, 1000), PodKind(8000, 8, 1000)


def ask(plugin: AntiFragmentation, cache: Cache, pod: Pod) -> list[float]:
    """A pod comes and is rated; the score of each node."""
    record = cache.record(pod)
    plugin.post_enqueue(record)
    return plugin.score(record, cache.nodes.view()).tolist()


def test_rare_kinds_are_left_out_and_the_rest_sums_to_one() -> None:
    found = typical({SMALL: 60.0, LARGE: 37.0, PodKind(500): 3.0})

    assert [kind for kind, _ in found] == [SMALL, LARGE]
    assert sum(popularity for _, popularity in found) == pytest.approx(1.0)


def test_a_pod_counts_half_after_one_half_life() -> None:
    history: PodHistory[PodKind] = PodHistory(DAY, 0.0)
    history.count("a", SMALL, 0.0)
    history.count("b", LARGE, DAY)

    assert dict(typical(history.counts())) == pytest.approx({SMALL: 1 / 3, LARGE: 2 / 3})


def test_a_pod_counts_once() -> None:
    history: PodHistory[PodKind] = PodHistory(DAY, 0.0)
    for _ in range(3):
        history.count("a", SMALL, 0.0)
    history.count("b", LARGE, 0.0)

    assert dict(typical(history.counts())) == pytest.approx({SMALL: 0.5, LARGE: 0.5})


@pytest.mark.parametrize("half_lives", [600.0, 1000.0, 1025.0, 1e300])
def test_counting_goes_on_however_long_no_pod_has_come(half_lives: float) -> None:
    history: PodHistory[PodKind] = PodHistory(DAY, 0.0)
    history.count("a", SMALL, 0.0)
    history.count("b", LARGE, half_lives * DAY)

    assert dict(typical(history.counts())) == {LARGE: 1.0}


def test_cpu_beside_gpus_does_not_count_pods_without_gpus() -> None:
    assert cpu_per_gpu([(PodKind(16_000), 0.5), (PodKind(8000, 2, 500), 0.5)]) == pytest.approx(8.0)


def test_popularities_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(InvalidObject, match=r"typicalPods: the popularities sum to 0.7; they must sum to 1"):
        typical_of([TypicalPod(0.5), TypicalPod(0.2, gpus=1)])


def test_a_fraction_without_gpus_is_refused() -> None:
    with pytest.raises(InvalidObject, match=r"typicalPods\[0\]: fraction and models mean nothing without gpus"):
        typical_of([TypicalPod(1.0, fraction=0.5)])


@pytest.mark.parametrize("cpu", ["many", "1x"])
def test_cpu_that_is_no_quantity_is_refused(cpu: str) -> None:
    with pytest.raises(InvalidObject, match=f"typicalPods\\[0\\].cpu: '{cpu}': not a quantity"):
        typical_of([TypicalPod(1.0, cpu=cpu)])


def test_a_bad_popularity_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"file: args.typicalPods\[0\].popularity"):
        decode_args("file", "args", {"typicalPods": [{"popularity": -1}]}, AntiFragmentationArgs)


def test_the_error_names_the_plugin() -> None:
    bad = AntiFragmentationArgs(typical_pods=[TypicalPod(0.5)])
    with pytest.raises(PluginError, match=r"AntiFragmentation.*sum to 0\.5"):
        make_runtime(Cache(), AntiFragmentation, args={"AntiFragmentation": bad})


def test_what_runs_is_counted_at_the_start_and_what_is_asked_for_later() -> None:
    running = [make_pod(f"r{i}", 1, cpu=8, node="a") for i in range(3)]
    cache = cluster([make_node("a"), make_node("b")], running)
    handle = FakeHandle(cache)
    plugin = AntiFragmentation(AntiFragmentationArgs(), handle)

    ask(plugin, cache, make_pod("new", 2, cpu=4))

    found = dict(plugin.typical)
    assert found == pytest.approx({PodKind(8000, 1, 1000): 0.75, PodKind(4000, 2, 1000): 0.25})


def test_what_is_typical_follows_what_is_asked_for() -> None:
    cache = cluster([make_node("a")])
    handle = FakeHandle(cache)
    plugin = AntiFragmentation(AntiFragmentationArgs(half_life_seconds=3600), handle)
    ask(plugin, cache, make_pod("old", 1, cpu=8))

    handle.fake_clock.advance(30 * 3600)
    ask(plugin, cache, make_pod("new", 4, cpu=16))

    assert [kind for kind, _ in plugin.typical] == [PodKind(16_000, 4, 1000)]


def test_a_cluster_that_was_asked_for_nothing_yet_rates_by_what_is_left() -> None:
    cache = cluster([make_node("large", gpus=8), make_node("small", gpus=2)])
    plugin = AntiFragmentation(AntiFragmentationArgs(), FakeHandle(cache))

    large, small = plugin.score(cache.record(make_pod("new", 1)), cache.nodes.view())

    assert large < small


def test_a_node_that_comes_later_is_rated_like_the_others() -> None:
    cache = cluster([make_node("a")])
    plugin = AntiFragmentation(AntiFragmentationArgs(), FakeHandle(cache))
    ask(plugin, cache, make_pod("first", 1, cpu=8))
    cache.upsert_node(make_node("b"))

    a, b = ask(plugin, cache, make_pod("second", 1, cpu=8))

    assert a == b


def test_a_node_that_is_gone_and_replaced_is_rated_as_it_is_now() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    plugin = AntiFragmentation(AntiFragmentationArgs(), FakeHandle(cache))
    ask(plugin, cache, make_pod("first", 1, cpu=8))
    cache.remove_node("b")
    ask(plugin, cache, make_pod("second", 1, cpu=8))
    cache.upsert_node(make_node("c", gpus=2, cpu=16))

    whole, small = ask(plugin, cache, make_pod("third", 1, cpu=8))

    assert small > whole


@given(
    asked=st.lists(
        st.tuples(
            st.sampled_from(["1", "2"]),
            st.integers(0, 2),
            st.sampled_from([250, 1000]),
            st.sampled_from([(), (("zone", "a"),), (("zone", "b"),)]),
        ),
        max_size=12,
    )
)
def test_the_kind_that_a_class_of_pods_keeps_is_the_kind_that_a_new_class_has(
    asked: list[tuple[str, int, int, tuple[tuple[str, str], ...]]],
) -> None:
    cache = Cache()
    for number, (cpu, count, milli, selector) in enumerate(asked):
        known, new = cache.record(make_pod(f"p-{number}", cpu=cpu)), Cache().record(make_pod("p", cpu=cpu))

        assert kind_of(known, count, milli, selector) == kind_of(new, count, milli, selector)
