"""Affinity between pods in small clusters; the verdicts follow from the documented rules and are worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline import Action, ConfigError, PodInfo, model, resources
from gangline.testing import Cache, Runtime

from .judging import Object, judged_by, record

ZONE, HOST = "zone", "kubernetes.io/hostname"
OK = ""
LONELY = "node(s) didn't match pod affinity rules"
ENEMY = "node(s) didn't match pod anti-affinity rules"
REPELLED = "node(s) didn't satisfy existing pods anti-affinity rules"


def node(name: str, zone: str | None = None) -> Object:
    labels = {HOST: name, **({ZONE: zone} if zone is not None else {})}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"pods": "110"}}}


def pod(
    name: str, node: str = "", app: str = "web", space: str = "red", labels: Object | None = None, **affinity: Any
) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": space,
            "uid": f"{space}/{name}",
            "labels": {"app": app, **(labels or {})},
        },
        "spec": {"nodeName": node, "containers": [{"name": "c"}], "affinity": affinity},
    }


def term(app: str | None = "web", key: str = ZONE, **more: Any) -> Object:
    selector = {} if app is None else {"matchLabels": {"app": app}}
    return {"topologyKey": key, "labelSelector": selector, **more}


def near(*terms: Object) -> Object:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def far(*terms: Object) -> Object:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def wish(weight: int, wanted: Object, side: str = "podAffinity") -> Object:
    terms = [{"weight": weight, "podAffinityTerm": wanted}]
    return {side: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def space(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}}


def build(
    pods: list[Object], args: str = "", nodes: list[Object] | None = None, **objects: Any
) -> tuple[Cache, Runtime]:
    return judged_by("InterPodAffinity", args, {"nodes": NODES if nodes is None else nodes, "pods": pods, **objects})


def verdicts(pods: list[Object], new: Object, **objects: Any) -> dict[str, str]:
    cluster, runtime = build(pods, **objects)
    filtered = runtime.evaluator.filter(record(cluster, new))
    diagnosis = runtime.evaluator.diagnose(filtered)
    result = {}
    for row, name in enumerate(cluster.nodes.names):
        result[name] = OK if filtered.feasible[row] else diagnosis.all_of(row)[0][2][0]
    return result


def scores(pods: list[Object], new: Object, args: str = "") -> dict[str, float]:
    cluster, runtime = build(pods, args)
    column = runtime.evaluator.scores(runtime.evaluator.filter(record(cluster, new))).get("InterPodAffinity")
    return {} if column is None else dict(zip(cluster.nodes.names, column.tolist(), strict=True))


# Two nodes in zone a, one in zone b, one in no zone.
NODES = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("bare")]
SPACES = [space("red", team="r"), space("blue", team="b"), space("plain")]


def at(a1: str = OK, a2: str = OK, b1: str = OK, bare: str = OK) -> dict[str, str]:
    return {"a1": a1, "a2": a2, "b1": b1, "bare": bare}


ZONE_A_ONLY = at(b1=LONELY, bare=LONELY)
NOWHERE = at(LONELY, LONELY, LONELY, LONELY)
SITUATIONS = {
    "company is found in the whole zone": ([pod("p", "a1", "db")], pod("new", **near(term("db"))), ZONE_A_ONLY),
    "or on the host alone": (
        [pod("p", "a1", "db")],
        pod("new", **near(term("db", HOST))),
        at(a2=LONELY, b1=LONELY, bare=LONELY),
    ),
    "no company, no place": ([], pod("new", **near(term("db"))), NOWHERE),
    "the first of its kind may go wherever the label is": ([], pod("new", **near(term())), at(bare=LONELY)),
    "the second has to follow": ([pod("p", "a1")], pod("new", **near(term())), ZONE_A_ONLY),
    "company without the label does not count, so the first rule holds": (
        [pod("p", "bare")],
        pod("new", **near(term())),
        at(bare=LONELY),
    ),
    "one pod has to match all terms": (
        [pod("p", "a1", "db"), pod("q", "a1", "cache")],
        pod("new", **near(term("db"), term("cache"))),
        NOWHERE,
    ),
    "and then all keys have to be met": (
        [pod("p", "a1", "db")],
        pod("new", **near(term("db"), term("db", HOST))),
        at(a2=LONELY, b1=LONELY, bare=LONELY),
    ),
    "an empty selector means every pod": (
        [pod("p", "b1", "any")],
        pod("new", **near(term(None))),
        at(LONELY, LONELY, OK, LONELY),
    ),
    "an absent selector means none": (
        [pod("p", "a1")],
        pod("new", **near({"topologyKey": ZONE})),
        NOWHERE,
    ),
    "other namespaces do not count": ([pod("p", "a1", "db", "blue")], pod("new", **near(term("db"))), NOWHERE),
    "unless they are named": (
        [pod("p", "a1", "db", "blue")],
        pod("new", **near(term("db", namespaces=["blue"]))),
        ZONE_A_ONLY,
    ),
    "or selected": (
        [pod("p", "a1", "db", "blue")],
        pod("new", **near(term("db", namespaceSelector={"matchLabels": {"team": "b"}}))),
        ZONE_A_ONLY,
    ),
    "a selector of namespaces leaves the own one out": (
        [pod("p", "a1", "db")],
        pod("new", **near(term("db", namespaceSelector={"matchLabels": {"team": "b"}}))),
        NOWHERE,
    ),
    "an empty selector of namespaces means all, unknown ones too": (
        [pod("p", "a1", "db", "unheard-of")],
        pod("new", **near(term("db", namespaceSelector={}))),
        ZONE_A_ONLY,
    ),
    "an enemy closes its zone, not nodes without the label": (
        [pod("p", "a1", "db")],
        pod("new", **far(term("db"))),
        at(ENEMY, ENEMY),
    ),
    "each anti-affinity term counts alone": (
        [pod("p", "a1", "db"), pod("q", "b1", "cache")],
        pod("new", **far(term("db", HOST), term("cache"))),
        at(a1=ENEMY, b1=ENEMY),
    ),
    "placed pods keep others away": ([pod("p", "a1", "db", **far(term()))], pod("new"), at(REPELLED, REPELLED)),
    "but only those whom they mean": ([pod("p", "a1", "db", **far(term("cache")))], pod("new"), at()),
    "a placed pod means its own namespace": ([pod("p", "a1", "db", "blue", **far(term()))], pod("new"), at()),
    "or the namespaces that it selects": (
        [pod("p", "a1", "db", "blue", **far(term(namespaceSelector={"matchLabels": {"team": "r"}})))],
        pod("new"),
        at(REPELLED, REPELLED),
    ),
    "the own rules are named before those of placed pods": (
        [pod("p", "a1", "web", **far(term()))],
        pod("new", **far(term("web", HOST))),
        at(ENEMY, REPELLED),
    ),
    "affinity is named first": (
        [pod("p", "a1", "db")],
        pod("new", **near(term("cache")), **far(term("db"))),
        NOWHERE,
    ),
    "match label keys look for the same revision": (
        [pod("p", "a1", labels={"rev": "1"}), pod("q", "b1", labels={"rev": "2"})],
        pod("new", labels={"rev": "2"}, **near(term(matchLabelKeys=["rev"]))),
        at(LONELY, LONELY, OK, LONELY),
    ),
    "mismatch label keys for another": (
        [pod("p", "a1", labels={"rev": "1"}), pod("q", "b1", labels={"rev": "2"})],
        pod("new", labels={"rev": "2"}, **near(term(mismatchLabelKeys=["rev"]))),
        ZONE_A_ONLY,
    ),
    "keys that the API server has merged are not added again": (
        [pod("p", "a1", labels={"rev": "1"})],
        pod(
            "new",
            labels={"rev": "2"},
            **near(
                {
                    "topologyKey": ZONE,
                    "matchLabelKeys": ["rev"],
                    "labelSelector": {"matchExpressions": [{"key": "rev", "operator": "In", "values": ["1"]}]},
                }
            ),
        ),
        ZONE_A_ONLY,
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_verdicts_follow_the_rules(name: str) -> None:
    pods, new, expected = SITUATIONS[name]

    assert verdicts(pods, new, namespaces=SPACES) == expected


def test_a_selector_that_makes_no_sense_rejects_the_pod() -> None:
    broken = {"topologyKey": ZONE, "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In"}]}}
    cluster, runtime = build([pod("p", "a1", **far(broken))])
    filtered = runtime.evaluator.filter(record(cluster, pod("new", **near(broken))))

    assert filtered.status is not None
    assert "podAffinity.required[0].labelSelector.matchExpressions[0].values" in filtered.status.message


PREFERRED = {
    "wanted company attracts": ([pod("p", "a1", "db")], pod("new", **wish(10, term("db"))), (100, 100, 0, 0)),
    "unwanted company repels": (
        [pod("p", "a1", "db")],
        pod("new", **wish(10, term("db"), "podAntiAffinity")),
        (0, 0, 100, 100),
    ),
    "more company attracts more": (
        [pod("p", "a1", "db"), pod("q", "a1", "db"), pod("r", "b1", "db")],
        pod("new", **wish(10, term("db"))),
        (100, 100, 50, 0),
    ),
    "placed pods have wishes too": ([pod("p", "b1", "db", **wish(5, term()))], pod("new"), (0, 0, 100, 0)),
    "what placed pods require counts a little": (
        [pod("p", "b1", "db", **near(term())), pod("q", "a1", "db", **wish(2, term()))],
        pod("new"),
        (100, 100, 50, 0),
    ),
    "wishes that cancel out leave all equal": (
        [pod("p", "a1", "db")],
        pod("new", **wish(7, term("db")), **wish(7, term("db"), "podAntiAffinity")),
        (0, 0, 0, 0),
    ),
}


@pytest.mark.parametrize("name", PREFERRED)
def test_scores_follow_the_wishes(name: str) -> None:
    pods, new, expected = PREFERRED[name]

    assert tuple(scores(pods, new).values()) == expected


def test_nothing_is_scored_when_no_term_meets_a_pod() -> None:
    assert scores([pod("p", "a1", "db")], pod("new", **wish(10, term("cache")))) == {}
    assert scores([pod("p", "bare", "db")], pod("new", **wish(10, term("db")))) == {}


def test_the_arguments_change_what_placed_pods_are_worth() -> None:
    placed = [pod("p", "b1", "db", **near(term())), pod("q", "a1", "db", **wish(2, term()))]
    without = "{ignorePreferredTermsOfExistingPods: true}"

    assert scores(placed, pod("new"), "{hardPodAffinityWeight: 8}") == {"a1": 25, "a2": 25, "b1": 100, "bare": 0}
    assert scores(placed, pod("new"), "{hardPodAffinityWeight: 0}") == {"a1": 100, "a2": 100, "b1": 0, "bare": 0}
    assert scores(placed, pod("new"), without) == {}
    assert scores(placed, pod("new", **wish(1, term("db"))), without)["a1"] == 100


def test_a_weight_out_of_range_is_named() -> None:
    with pytest.raises(ConfigError, match="hardPodAffinityWeight"):
        build([], "{hardPodAffinityWeight: 101}")


def test_labels_of_namespaces_count_as_they_are_now() -> None:
    cluster, runtime = build([pod("p", "a1", "db", "blue")], namespaces=[space("blue")])
    new = record(cluster, pod("new", **near(term("db", namespaceSelector={"matchLabels": {"team": "b"}}))))
    before = runtime.evaluator.filter(new).feasible.any()
    cluster.store(resources.NAMESPACES).upsert(msgspec.convert(space("blue", team="b"), model.Namespace))

    assert not before
    assert runtime.evaluator.filter(new).feasible.tolist() == [True, True, False, False]


def test_what_if_placements_count_and_are_taken_back() -> None:
    cluster, runtime = build([])
    first, second = (record(cluster, pod(name, **far(term()))) for name in ("one", "two"))
    with cluster.transaction() as attempt:
        attempt.place(first, 0)
        during = runtime.evaluator.filter(second).feasible.tolist()

    assert during == [False, False, True, True]
    assert runtime.evaluator.filter(second).feasible.all()


def hint(runtime: Runtime, kind: str, new: PodInfo, before: Any, after: Any) -> bool:
    plugin = runtime.profile.plugins["InterPodAffinity"]
    (registered,) = [e for e in plugin.events_to_register() if e.event.resource == kind]
    assert registered.event.action & Action.DELETE
    return bool(registered.hint(new, before, after))


def test_pods_wake_it_when_company_comes_or_enemies_go() -> None:
    cluster, runtime = build([])
    new = record(cluster, pod("new", **near(term("db")), **far(term("cache"), term("queue"))))
    db, cache, web = (record(cluster, pod("p", "a1", app)) for app in ("db", "cache", "web"))
    repelling = record(cluster, pod("p", "a1", "other", **far(term("web"))))

    assert hint(runtime, "pods", new, None, db)
    assert hint(runtime, "pods", new, web, db)
    assert hint(runtime, "pods", new, cache, None)
    assert hint(runtime, "pods", new, cache, web)
    assert hint(runtime, "pods", new, repelling, None)
    assert not hint(runtime, "pods", new, None, cache)
    assert not hint(runtime, "pods", new, None, web)
    assert not hint(runtime, "pods", new, web, None)


def test_the_last_of_a_kind_that_goes_wakes_the_next_first() -> None:
    cluster, runtime = build([])
    new = record(cluster, pod("new", **near(term())))

    assert hint(runtime, "pods", new, record(cluster, pod("p", "bare")), None)


def test_nodes_wake_it_when_they_move_between_domains_that_matter() -> None:
    cluster, runtime = build([pod("p", "a1", "db", **far(term("repelled", "rack")))])
    new = record(cluster, pod("new", **near(term("db"))))
    repelled = record(cluster, pod("new", app="repelled"))
    old, moved, bare = (msgspec.convert(n, model.Node) for n in (node("a1", "a"), node("a1", "b"), node("a1")))
    racked = msgspec.convert({"metadata": {"name": "a1", "labels": {HOST: "a1", ZONE: "a", "rack": "r"}}}, model.Node)

    assert hint(runtime, "nodes", new, None, old)
    assert hint(runtime, "nodes", new, old, None)
    assert hint(runtime, "nodes", new, old, moved)
    assert hint(runtime, "nodes", new, bare, old)
    assert hint(runtime, "nodes", repelled, racked, old)
    assert not hint(runtime, "nodes", new, racked, old)
    assert not hint(runtime, "nodes", repelled, old, moved)


def test_namespaces_wake_it_when_their_labels_matter() -> None:
    cluster, runtime = build([])
    selecting = record(cluster, pod("new", **near(term("db", namespaceSelector={"matchLabels": {"team": "b"}}))))
    plain = record(cluster, pod("new"))
    old, new, other = (
        msgspec.convert(s, model.Namespace) for s in (space("red"), space("red", team="b"), space("blue", team="b"))
    )

    assert hint(runtime, "namespaces", selecting, None, other)
    assert hint(runtime, "namespaces", plain, old, new)
    assert not hint(runtime, "namespaces", plain, None, other)
    assert not hint(runtime, "namespaces", selecting, new, new)
