"""Spreading in small clusters; the verdicts follow from the documented rules and are worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline import Action, ConfigError, PluginError, PodInfo, model
from gangline.testing import Cache, Runtime

from .judging import Object, judged_by, record

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
OK, UNEVEN, UNLABELLED = "ok", "Unschedulable", "UnschedulableAndUnresolvable"


def node(name: str, zone: str | None = None, **more: Any) -> Object:
    labels = {HOST: name, **({ZONE: zone} if zone is not None else {}), **more.pop("labels", {})}
    return {"metadata": {"name": name, "labels": labels}, "spec": more, "status": {"allocatable": {"pods": "110"}}}


def pod(name: str, node: str = "", app: str = "web", space: str = "default", **more: Any) -> Object:
    metadata: Object = {"name": name, "namespace": space, "uid": f"{space}/{name}", "labels": {"app": app}}
    for field in ("deletionTimestamp", "ownerReferences", "labels"):
        if field in more:
            metadata[field] = more.pop(field)
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": [{"name": "c"}], **more}}


def rule(key: str = ZONE, skew: int = 1, soft: bool = False, **more: Any) -> Object:
    when = "ScheduleAnyway" if soft else "DoNotSchedule"
    selector = more.pop("labelSelector", {"matchLabels": {"app": "web"}})
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector, **more}


def waiting(*rules: Object, **more: Any) -> Object:
    return pod("new", topologySpreadConstraints=list(rules), **more)


def build(nodes: list[Object], pods: list[Object], args: str = "", **objects: Any) -> tuple[Cache, Runtime]:
    return judged_by("PodTopologySpread", args, {"nodes": nodes, "pods": pods, **objects})


def verdicts(nodes: list[Object], pods: list[Object], new: Object, args: str = "", **objects: Any) -> dict[str, str]:
    cluster, runtime = build(nodes, pods, args, **objects)
    filtered = runtime.evaluator.filter(record(cluster, new))
    diagnosis = runtime.evaluator.diagnose(filtered)
    result = {}
    for row, name in enumerate(cluster.nodes.names):
        result[name] = OK if filtered.feasible[row] else diagnosis.all_of(row)[0][1].value
    return result


def scores(nodes: list[Object], pods: list[Object], new: Object, args: str = "", **objects: Any) -> dict[str, float]:
    cluster, runtime = build(nodes, pods, args, **objects)
    found = runtime.evaluator.scores(runtime.evaluator.filter(record(cluster, new)))
    column = found.get("PodTopologySpread")
    return {} if column is None else dict(zip(cluster.nodes.names, column.tolist(), strict=True))


A1, A2, B1, C1 = node("a1", "a"), node("a2", "a"), node("b1", "b"), node("c1", "c")
BARE = node("bare")
GONE = "2026-01-01T00:00:00Z"

SITUATIONS = {
    "the fuller zone is refused": ([A1, B1], [pod("p", "a1")], waiting(rule()), {"a1": UNEVEN, "b1": OK}),
    "a larger skew admits it": ([A1, B1], [pod("p", "a1")], waiting(rule(skew=2)), {"a1": OK, "b1": OK}),
    "a zone counts over all of its nodes": (
        [A1, A2, B1],
        [pod("p", "a1")],
        waiting(rule()),
        {"a1": UNEVEN, "a2": UNEVEN, "b1": OK},
    ),
    "hosts count one by one": (
        [A1, A2],
        [pod("p", "a1")],
        waiting(rule(HOST)),
        {"a1": UNEVEN, "a2": OK},
    ),
    "a node without the key is refused for good": ([A1, BARE], [], waiting(rule()), {"a1": OK, "bare": UNLABELLED}),
    "an empty label value is a domain": (
        [A1, node("blank", "")],
        [pod("p", "a1")],
        waiting(rule()),
        {"a1": UNEVEN, "blank": OK},
    ),
    "pods of other namespaces do not count": (
        [A1, B1],
        [pod("p", "a1", space="other")],
        waiting(rule()),
        {"a1": OK, "b1": OK},
    ),
    "pods that are being deleted do not count": (
        [A1, B1],
        [pod("p", "a1", deletionTimestamp=GONE)],
        waiting(rule()),
        {"a1": OK, "b1": OK},
    ),
    "a pod that does not match its own selector adds nothing": (
        [A1, B1],
        [pod("p", "a1")],
        waiting(rule(), app="db"),
        {"a1": OK, "b1": OK},
    ),
    "an absent selector counts nobody": (
        [A1, B1],
        [pod("p", "a1"), pod("q", "a1")],
        waiting(rule(labelSelector=None)),
        {"a1": OK, "b1": OK},
    ),
    "an empty selector counts nobody either": (
        [A1, B1],
        [pod("p", "a1"), pod("q", "a1")],
        waiting(rule(labelSelector={})),
        {"a1": OK, "b1": OK},
    ),
    "too few domains make the minimum 0": (
        [A1, B1],
        [pod("p", "a1"), pod("q", "b1")],
        waiting(rule(minDomains=3)),
        {"a1": UNEVEN, "b1": UNEVEN},
    ),
    "enough domains do not": (
        [A1, B1, C1],
        [pod("p", "a1"), pod("q", "b1"), pod("r", "c1")],
        waiting(rule(minDomains=3)),
        {"a1": OK, "b1": OK, "c1": OK},
    ),
    "nodes that the pod does not select are no domain": (
        [A1, B1],
        [pod("p", "a1")],
        waiting(rule(), nodeSelector={ZONE: "a"}),
        {"a1": OK, "b1": OK},
    ),
    "unless affinity is ignored": (
        [A1, B1],
        [pod("p", "a1")],
        waiting(rule(nodeAffinityPolicy="Ignore"), nodeSelector={ZONE: "a"}),
        {"a1": UNEVEN, "b1": OK},
    ),
    "tainted nodes are domains": (
        [A1, node("t", "t", taints=[{"key": "k", "effect": "NoSchedule"}])],
        [pod("p", "a1")],
        waiting(rule()),
        {"a1": UNEVEN, "t": OK},
    ),
    "unless taints are honoured": (
        [A1, node("t", "t", taints=[{"key": "k", "effect": "NoSchedule"}])],
        [pod("p", "a1")],
        waiting(rule(nodeTaintsPolicy="Honor")),
        {"a1": OK, "t": OK},
    ),
    "honoured taints that are tolerated leave a domain": (
        [A1, node("t", "t", taints=[{"key": "k", "effect": "NoSchedule"}])],
        [pod("p", "a1")],
        waiting(rule(nodeTaintsPolicy="Honor"), tolerations=[{"operator": "Exists"}]),
        {"a1": UNEVEN, "t": OK},
    ),
    "every constraint has to hold": (
        [A1, A2, B1],
        [pod("p", "a1"), pod("q", "b1")],
        waiting(rule(), rule(HOST)),
        {"a1": UNEVEN, "a2": OK, "b1": UNEVEN},
    ),
    "only nodes with all keys count": (
        [A1, B1, BARE],
        [pod("p", "a1"), pod("q", "b1"), pod("r", "bare")],
        waiting(rule(), rule(HOST, skew=5)),
        {"a1": OK, "b1": OK, "bare": UNLABELLED},
    ),
    "match label keys count pods of the same revision": (
        [A1, B1],
        [pod("p", "a1", labels={"app": "web", "rev": "1"}), pod("q", "b1", labels={"app": "web", "rev": "2"})],
        waiting(rule(matchLabelKeys=["rev", "absent"]), labels={"app": "web", "rev": "2"}),
        {"a1": OK, "b1": UNEVEN},
    ),
    "the same constraint twice changes nothing": (
        [A1, B1],
        [pod("p", "a1")],
        waiting(rule(), rule()),
        {"a1": UNEVEN, "b1": OK},
    ),
    "soft constraints refuse nobody": ([A1, BARE], [pod("p", "a1")], waiting(rule(soft=True)), {"a1": OK, "bare": OK}),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_verdicts_follow_the_rules(name: str) -> None:
    nodes, pods, new, expected = SITUATIONS[name]

    assert verdicts(nodes, pods, new) == expected


def test_the_emptier_zone_scores_best() -> None:
    # One pod in zone a, two zones: ln(2 + 2) = 1.386 rounds to 1 against 0, so 100 (1 + 0 - 1) / 1 = 0 and 100.
    assert scores([A1, B1], [pod("p", "a1")], waiting(rule(soft=True))) == {"a1": 0.0, "b1": 100.0}


def test_a_node_without_a_key_scores_nothing() -> None:
    assert scores([A1, B1, BARE], [pod("p", "a1")], waiting(rule(soft=True)))["bare"] == 0.0


def test_hosts_are_scored_by_their_own_pods() -> None:
    # ln(3 + 2) = 1.609 for each pod: 3.2 and 1.6 round to 3 and 2; 100 (3 + 0 - 2) / 3 = 33.
    pods = [pod("p", "a1"), pod("q", "a1"), pod("r", "a2")]

    assert scores([A1, A2, B1], pods, waiting(rule(HOST, soft=True))) == {"a1": 0.0, "a2": 33.0, "b1": 100.0}


def test_all_are_equal_while_nothing_matches() -> None:
    assert scores([A1, B1], [], waiting(rule(soft=True))) == {"a1": 100.0, "b1": 100.0}


SERVICE = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
REPLICAS = {
    "metadata": {"name": "rs", "namespace": "default"},
    "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}},
}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("new", "objects"),
    [
        (pod("new"), {"services": [SERVICE]}),
        (pod("new", ownerReferences=[OWNER]), {"replicasets": [REPLICAS]}),
    ],
    ids=["service", "replica set"],
)
def test_system_defaults_spread_what_a_service_or_controller_selects(new: Object, objects: Any) -> None:
    found = scores([A1, A2, B1, BARE], [pod("p", "a1")], new, **objects)

    # Hosts: 4 domains and skew 3; zones: a, b and the unlabelled as one, and skew 5, for labelled nodes only.
    # a1: 1.79 + 2 + 1.61 + 4 = 9.4; a2: 2 + 5.61 = 7.6; b1: 2 + 4 = 6; bare: 2. Rounded: 9, 8, 6, 2.
    assert found == {"a1": 22.0, "a2": 33.0, "b1": 55.0, "bare": 100.0}


def test_system_defaults_leave_pods_alone_that_nothing_selects() -> None:
    assert scores([A1, B1], [pod("p", "a1")], pod("new"), services=[]) == {}


LISTED = "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: %s, whenUnsatisfiable: DoNotSchedule}]}"


def test_listed_defaults_can_refuse() -> None:
    found = verdicts([A1, B1], [pod("p", "a1")], pod("new"), LISTED % ZONE, services=[SERVICE])

    assert found == {"a1": UNEVEN, "b1": OK}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("{defaultingType: Some}", "System"),
        ("{defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}", "must be List"),
        (LISTED % "a b", "topologyKey"),
        (LISTED.replace("1", "0") % "z", "maxSkew"),
        (LISTED.replace("DoNot", "Never") % "z", "whenUnsatisfiable"),
        (LISTED.replace("maxSkew", "labelSelector: {}, maxSkew") % "z", "labelSelector"),
        (LISTED.replace("maxSkew", "maxSkwe: 2, maxSkew") % "z", "maxSkwe"),
    ],
)
def test_arguments_that_make_no_sense_are_named(args: str, words: str) -> None:
    with pytest.raises((ConfigError, PluginError), match=words):
        build([A1], [], args)


def hint(runtime: Runtime, kind: str, new: PodInfo, before: Any, after: Any) -> bool:
    plugin = runtime.profile.plugins["PodTopologySpread"]
    (registered,) = [e for e in plugin.events_to_register() if e.event.resource == kind]
    assert registered.event.action & Action.ADD
    return bool(registered.hint(new, before, after))


def test_pods_wake_it_when_they_begin_or_cease_to_count() -> None:
    cluster, runtime = build([A1, B1], [])
    new = record(cluster, waiting(rule()))
    matching, other = record(cluster, pod("p", "a1")), record(cluster, pod("p", "a1", app="db"))
    going = record(cluster, pod("p", "a1", deletionTimestamp=GONE))

    assert hint(runtime, "pods", new, matching, None)
    assert hint(runtime, "pods", new, None, matching)
    assert hint(runtime, "pods", new, matching, going)
    assert hint(runtime, "pods", new, matching, other)
    assert not hint(runtime, "pods", new, other, None)
    assert not hint(runtime, "pods", new, matching, matching)
    assert not hint(runtime, "pods", new, record(cluster, pod("p", "a1", space="other")), None)


def test_nodes_wake_it_when_domains_may_change() -> None:
    cluster, runtime = build([A1, B1], [])
    new = record(cluster, waiting(rule()))
    picky = record(cluster, waiting(rule(), nodeSelector={"disk": "ssd"}))
    old, moved, bare, fast = (
        msgspec.convert(n, model.Node) for n in (A1, node("a1", "b"), BARE, node("a1", "a", labels={"disk": "ssd"}))
    )

    assert hint(runtime, "nodes", new, None, old)
    assert hint(runtime, "nodes", new, old, None)
    assert hint(runtime, "nodes", new, old, moved)
    assert hint(runtime, "nodes", new, old, bare)
    assert hint(runtime, "nodes", picky, old, fast)
    assert not hint(runtime, "nodes", new, None, bare)
    assert not hint(runtime, "nodes", new, old, fast)


def test_placements_in_a_row_stay_even() -> None:
    cluster, runtime = build([A1, A2, B1, C1], [])
    for i in range(9):
        new = record(cluster, pod(f"new-{i}", topologySpreadConstraints=[rule(), rule(HOST, skew=3)]))
        cluster.assume(new, runtime.evaluator.choose(runtime.evaluator.filter(new)))
    per_node = [len(on) for on in cluster.nodes.pods_on]

    assert [per_node[0] + per_node[1], per_node[2], per_node[3]] == [3, 3, 3]
