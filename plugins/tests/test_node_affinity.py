"""NodeAffinity: selectors, required and preferred affinity, and what a profile adds."""

from __future__ import annotations

import pytest

from gangline import PluginError, model
from gangline.testing import cluster, make_node, make_pod, make_runtime, run_filter, run_score
from gangline_plugins.node_affinity import Args, NodeAffinity

CACHE = cluster([make_node("a", labels={"rack": "1"}), make_node("b", labels={"rack": "2"}), make_node("c")])
MISMATCH = ("node(s) didn't match Pod's node affinity/selector",)
ENFORCED = ("node(s) didn't match scheduler-enforced node affinity",)
NARROWED = ("node(s) didn't satisfy plugin(s) [NodeAffinity]",)


def rack(*values: str) -> model.NodeSelectorTerm:
    return model.NodeSelectorTerm(match_expressions=[model.Requirement("rack", "In", list(values))])


def named(name: str, *more: model.Requirement) -> model.NodeSelectorTerm:
    return model.NodeSelectorTerm(
        match_fields=[model.Requirement("metadata.name", "In", [name])], match_expressions=list(more)
    )


def affinity(*required: model.NodeSelectorTerm, **preferred: model.NodeSelectorTerm) -> model.NodeAffinity:
    return model.NodeAffinity(
        required=model.NodeSelector(list(required)) if required else None,
        preferred=[model.PreferredSchedulingTerm(int(weight[1:]), term) for weight, term in preferred.items()],
    )


def pod(node_affinity: model.NodeAffinity | None = None, **selector: str) -> model.Pod:
    return make_pod(
        "p", affinity=model.Affinity(node_affinity=node_affinity), node_selector=selector if selector else None
    )


@pytest.mark.parametrize(
    ("wanted", "reasons"),
    [
        (pod(), {"a": (), "b": (), "c": ()}),
        (pod(rack="1"), {"a": (), "b": MISMATCH, "c": MISMATCH}),
        (pod(affinity(rack("2", "3"))), {"a": MISMATCH, "b": (), "c": MISMATCH}),
        (pod(affinity(rack("1"), rack("2"))), {"a": (), "b": (), "c": MISMATCH}),
        (pod(affinity(rack("2")), rack="1"), {"a": MISMATCH, "b": MISMATCH, "c": MISMATCH}),
        (pod(affinity(named("c"))), {"a": NARROWED, "b": NARROWED, "c": ()}),
        (
            pod(affinity(named("a", model.Requirement("rack", "In", ["2"])), named("b"))),
            {"a": MISMATCH, "b": (), "c": NARROWED},
        ),
        (pod(affinity(named("c"), rack("1"))), {"a": (), "b": MISMATCH, "c": ()}),
    ],
    ids=["nothing", "selector", "in", "or", "both", "name", "name and label", "name or label"],
)
def test_a_node_has_to_match(wanted: model.Pod, reasons: dict[str, tuple[str, ...]]) -> None:
    assert run_filter(NodeAffinity, wanted, CACHE) == reasons


def test_names_that_contradict_each_other_reject_the_pod() -> None:
    fields = [model.Requirement("metadata.name", "In", [name]) for name in "ab"]

    reasons = run_filter(NodeAffinity, pod(affinity(model.NodeSelectorTerm(match_fields=fields))), CACHE)

    assert set(reasons.values()) == {("pod affinity terms conflict",)}


def test_preferences_add_up_and_the_best_node_gets_100() -> None:
    wanted = pod(affinity(w30=rack("1", "2"), w10=rack("2"), w5=named("c")))

    assert run_score(NodeAffinity, wanted, CACHE) == {"a": 75.0, "b": 100.0, "c": 12.0}


def test_without_preferences_there_is_no_score() -> None:
    assert run_score(NodeAffinity, pod(rack="1"), CACHE) == {}


def test_a_preference_that_makes_no_sense_fails_the_pod_and_names_its_place() -> None:
    term = model.NodeSelectorTerm(match_expressions=[model.Requirement("rack", "Near", ["1"])])

    for _ in range(2):
        with pytest.raises(PluginError, match=r"NodeAffinity at pre_score: .*preferred\[0\]\.preference"):
            run_score(NodeAffinity, pod(affinity(w1=term)), CACHE)


def test_a_profile_adds_affinity_to_every_pod() -> None:
    args = Args(added_affinity=affinity(rack("1", "2"), w1=rack("2")))

    assert run_filter(NodeAffinity, pod(rack="1"), CACHE, args) == {"a": (), "b": MISMATCH, "c": ENFORCED}
    assert run_score(NodeAffinity, pod(), CACHE, args) == {"a": 0.0, "b": 100.0}


def test_added_affinity_that_makes_no_sense_is_refused_at_load() -> None:
    args = Args(added_affinity=affinity(rack()))

    with pytest.raises(
        PluginError, match=r"NodeAffinity: cannot be built: addedAffinity\.required\.nodeSelectorTerms\[0\]"
    ):
        make_runtime(CACHE, NodeAffinity, args={"NodeAffinity": args})
