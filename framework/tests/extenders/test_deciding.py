"""How extenders' answers are turned into columns."""

from __future__ import annotations

import numpy as np

from gangline.config import Extender, ManagedResource
from gangline.extenders import deciding
from gangline.extenders.wire import ExtenderFilterResult, HostPriority
from gangline.model import Container, ResourceRequirements
from gangline.status import Reason
from gangline.testing import cluster, make_node, make_pod

URL = "http://extender"


def test_a_rejection_has_a_number_for_each_reason_and_none_for_nodes_that_are_gone() -> None:
    cache = cluster([make_node("a"), make_node("b"), make_node("c")])
    hot, broken = Reason("hot"), Reason("broken", resolvable=False)

    found = deciding.rejection({"a": hot, "c": broken, "gone": hot}, cache.nodes)

    assert found.codes.tolist() == [1, 0, 2]
    assert found.plugin.reasons == (hot, broken)


def test_what_extenders_add_is_summed_by_row() -> None:
    cache = cluster([make_node("a"), make_node("b")])

    found = deciding.bonus([{"a": 10.0, "gone": 5.0}, {"a": 1.0, "b": 2.0}], cache.nodes)

    assert found is not None
    np.testing.assert_array_equal(found, [11.0, 2.0])


def test_nothing_is_added_by_zeros() -> None:
    cache = cluster([make_node("a")])

    assert deciding.bonus([{"a": 0.0}, {}], cache.nodes) is None


def test_a_node_that_is_scored_twice_gets_both_scores() -> None:
    extender = Extender(url_prefix=URL, prioritize_verb="p", weight=3)

    assert deciding.weighted(extender, [HostPriority("a", 1), HostPriority("a", 2)]) == {"a": 90.0}


def test_an_extender_without_resources_of_its_own_looks_after_all_pods() -> None:
    assert deciding.looks_after(Extender(url_prefix=URL), cluster().record(make_pod("p")))


def test_an_extender_looks_after_pods_that_ask_for_its_resources_in_any_container() -> None:
    extender = Extender(url_prefix=URL, managed_resources=(ManagedResource("x.io/a"), ManagedResource("x.io/b")))
    asking = Container(name="init", resources=ResourceRequirements(requests={"x.io/b": 1}))
    record = cluster().record

    assert deciding.looks_after(extender, record(make_pod("p", resources={"x.io/a": 1})))
    assert deciding.looks_after(extender, record(make_pod("p", init_containers=[asking])))
    assert not deciding.looks_after(extender, record(make_pod("p", resources={"x.io/c": 1})))


def test_a_node_that_is_not_returned_without_a_word_is_unresolvable_as_upstream() -> None:
    extender = Extender(url_prefix=URL, filter_verb="filter", node_cache_capable=True)
    answer = ExtenderFilterResult(node_names=["b"], failed_nodes={"c": "hot", "other": "unasked"})

    verdicts = deciding.Verdicts(["a", "b", "c"], {}).after(extender, answer)

    assert list(verdicts.passed) == ["b"]
    assert verdicts.failed == {
        "a": Reason(f"node(s) were left out by extender {URL}", resolvable=False),
        "c": Reason("hot"),
    }


def test_unresolvable_goes_before_resolvable_for_a_node_that_is_both() -> None:
    extender = Extender(url_prefix=URL, filter_verb="filter", node_cache_capable=True)
    answer = ExtenderFilterResult(
        node_names=[], failed_nodes={"a": "hot"}, failed_and_unresolvable_nodes={"a": "broken"}
    )

    verdicts = deciding.Verdicts(["a"], {}).after(extender, answer)

    assert verdicts.failed == {"a": Reason("broken", resolvable=False)}
