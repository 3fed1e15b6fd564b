"""Pods of one class that differ in their labels are told apart where affinity or spread reads the labels."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangline import model, resources
from gangline.testing import Cache, FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline.testing.deciding import GroupDecision, answers
from gangline.testing.gangs import GROUP, LEAF, Gangs, fabric, leaves_of
from gangline_plugins.counting.inter_pod_affinity import Args as AffinityArgs
from gangline_plugins.counting.inter_pod_affinity import InterPodAffinity
from gangline_plugins.counting.pod_topology_spread import PodTopologySpread
from gangline_plugins.counting.pod_topology_spread_constraints import Args as SpreadArgs
from gangline_plugins.counting.pod_topology_spread_constraints import DefaultConstraint

HARD = "DoNotSchedule"
labels = st.fixed_dictionaries({"app": st.sampled_from("xy"), "index": st.sampled_from("01")})
selectors = st.sampled_from("xy").map(lambda app: model.LabelSelector(match_labels={"app": app}))
by_index = st.lists(st.just("index"), max_size=1)
terms = st.builds(model.PodAffinityTerm, st.just("rack"), selectors, match_label_keys=by_index)
required = st.builds(lambda term: model.PodAffinity([term]), terms)
preferred = st.builds(lambda term: model.PodAffinity([], [model.WeightedPodAffinityTerm(1, term)]), terms)
affinities = (
    st.none()
    | st.builds(model.Affinity, pod_affinity=required | preferred)
    | st.builds(model.Affinity, pod_anti_affinity=required | preferred)
)
spreads = st.builds(
    model.TopologySpreadConstraint,
    st.just(1),
    st.just("rack"),
    st.sampled_from([HARD, "ScheduleAnyway"]),
    selectors,
    match_label_keys=by_index,
)
placed = st.lists(st.tuples(st.sampled_from(["n0", "n1", "n2"]), labels, affinities), max_size=4)


NEAR = model.Affinity(
    pod_affinity=model.PodAffinity([model.PodAffinityTerm("rack", model.LabelSelector(match_labels={"app": "x"}))])
)
SPREAD = [model.TopologySpreadConstraint(1, "rack", HARD, model.LabelSelector(match_labels={"app": "x"}))]
X, Y = {"app": "x", "index": "0"}, {"app": "y", "index": "0"}
WISH = model.Affinity(
    pod_affinity=model.PodAffinity(
        [], [model.WeightedPodAffinityTerm(1, model.PodAffinityTerm("rack", model.LabelSelector({"app": "x"})))]
    )
)


def racks(pods: list[tuple[str, dict[str, str], model.Affinity | None]] = []) -> Cache:  # noqa: B006  # only read
    """Two racks, a node in none, and these pods."""
    nodes = [make_node(f"n{n}", labels={"rack": rack} if rack else {}) for n, rack in enumerate(["a", "b", ""])]
    made = [make_pod(f"p{n}", node=node, labels=has, affinity=affinity) for n, (node, has, affinity) in enumerate(pods)]
    return cluster(nodes, made)


def told_apart(cache: Cache, args: SpreadArgs, *pods: model.Pod) -> bool:
    """Whether the plugins tell pods of one class apart."""
    handle = FakeHandle(cache)
    plugins: list[Any] = [InterPodAffinity(AffinityArgs(), handle), PodTopologySpread(args, handle)]
    records = [cache.record(pod) for pod in pods]
    assert len({pod.cls.id for pod in records}) == 1
    return len({tuple(plugin.identity(pod, pod.annotations) for plugin in plugins) for pod in records}) > 1


@example([], NEAR, [], X, Y)
@example([("n0", X, None)], None, SPREAD, X, Y)
@example([("n0", Y, WISH)], None, [], X, Y)
@given(placed, affinities, st.lists(spreads, max_size=1), labels, labels)
def test_pods_that_are_not_told_apart_get_the_same_answers(
    pods: list[tuple[str, dict[str, str], model.Affinity | None]],
    affinity: model.Affinity | None,
    spread: list[model.TopologySpreadConstraint],
    one: dict[str, str],
    other: dict[str, str],
) -> None:
    cache = racks(pods)
    waiting = [
        make_pod(name, labels=has, affinity=affinity, topology_spread_constraints=spread)
        for name, has in (("one", one), ("other", other))
    ]

    if not told_apart(cache, SpreadArgs(), *waiting):
        runtime = make_runtime(cache, InterPodAffinity, PodTopologySpread)
        first, second = (answers(runtime, cache.record(pod)) for pod in waiting)
        assert first == second


BY_INDEX = [model.TopologySpreadConstraint(1, "rack", HARD, model.LabelSelector(), match_label_keys=["index"])]


@pytest.mark.parametrize(
    ("spec", "label", "expected"),
    [
        ({}, "app", False),
        ({"affinity": NEAR}, "app", True),
        ({"affinity": NEAR}, "index", False),
        ({"topology_spread_constraints": SPREAD}, "app", True),
        ({"topology_spread_constraints": SPREAD}, "index", False),
        ({"topology_spread_constraints": BY_INDEX}, "index", True),
        ({"topology_spread_constraints": BY_INDEX}, "app", False),
    ],
)
def test_only_labels_that_are_read_tell_pods_apart(spec: dict[str, Any], label: str, expected: bool) -> None:
    one, other = (make_pod(value, labels={label: value}, **spec) for value in "xy")

    assert told_apart(racks(), SpreadArgs(), one, other) is expected


def test_pods_that_default_constraints_select_by_different_services_are_told_apart() -> None:
    cache = racks()
    for app in "xy":
        service = model.Service(model.ObjectMeta(app, "default"), model.ServiceSpec({"app": app}))
        cache.store(resources.SERVICES).upsert(service)
    args = SpreadArgs([DefaultConstraint(1, "rack", HARD)], "List")

    assert told_apart(cache, args, make_pod("one", labels={"app": "x"}), make_pod("other", labels={"app": "y"}))
    assert not told_apart(cache, args, make_pod("one"), make_pod("other", labels={"app": "z"}))


@pytest.mark.parametrize(("nodes", "fits"), [(3, True), (2, False)])
def test_members_of_a_gang_go_to_the_one_that_their_affinity_matches_and_that_may_go_anywhere(
    nodes: int, fits: bool
) -> None:
    gangs = Gangs(fabric(spines=1, leaves=2, nodes=nodes), InterPodAffinity)
    gangs.define("g", 3)
    near = model.Affinity(
        pod_affinity=model.PodAffinity([model.PodAffinityTerm(LEAF, model.LabelSelector({"app": "x"}))])
    )
    pods = [
        make_pod(f"g-{number}", gpus=8, labels={GROUP: "g", "app": app}, affinity=near)
        for number, app in enumerate("xyy")
    ]

    found = gangs.decide([gangs.cache.record(pod) for pod in pods])

    placed = {each.pod.name: each.node for each in found.members} if isinstance(found, GroupDecision) else {}
    assert len(leaves_of(placed)) == fits
