"""Each annotation changes where pods and groups go as documented."""

from __future__ import annotations

import pytest

from gangline import PLACEMENT_STRATEGY, Cycle, custom_resources, model, resources
from gangline.testing import FakeHandle, cluster, make_node, make_pod
from gangline_plugins.leaf_spine.documents import Domain
from gangline_plugins.topology_annotations import TopologyAnnotations
from gangline_plugins.topology_annotations.siblings import Siblings
from gangline_plugins.topology_annotations.wishes import (
    GPU_COUNT,
    LATENCY_SENSITIVE,
    NETWORK_BANDWIDTH,
    PREFERRED_DOMAIN,
)

from .annotation_cases import LEAF, SPINE, Bench, owned

GBPS = "topology.gangline.dev/network-gbps"
SLOW = ("node(s) had less network bandwidth than the workload asks for",)
UNKNOWN = ("node(s) had no known network bandwidth",)


def node(name: str, gbps: int = 0) -> model.Node:
    """A node called s0-l1-n2, in leaf-1 of spine-0."""
    spine, leaf, _ = name.split("-")
    labels = {SPINE: f"spine-{spine[1:]}", LEAF: f"leaf-{leaf[1:]}", **({GBPS: str(gbps)} if gbps else {})}
    return make_node(name, labels=labels)


FABRIC = [node(f"s{s}-l{leaf}-n{n}") for s in range(2) for leaf in range(2) for n in range(2)]


def report(name: str, *gbps: int, state: str = "") -> custom_resources.GpuNodeStatus:
    hcas = [custom_resources.Hca(f"mlx5_{i}", gbps=each, state=state) for i, each in enumerate(gbps)]
    return custom_resources.GpuNodeStatus(
        model.ObjectMeta(name=name),
        status=custom_resources.GpuNodeStatusStatus(fabric=custom_resources.Fabric(hcas=hcas)),
    )


# Bad values


def test_a_bad_value_is_an_event_on_the_pod_and_does_not_keep_it_from_running() -> None:
    bench = Bench(FABRIC)
    pod = owned("p", {GPU_COUNT: "many", NETWORK_BANDWIDTH: "fast"})

    assert set(bench.verdicts(pod).values()) == {()}
    (event,) = bench.handle.fake_recorder.events
    assert (event.pod, event.kind, event.reason) == ("default/p", "Warning", "InvalidTopologyAnnotation")
    assert "gpu-count: 'many' is not a positive whole number" in event.note
    assert "network-bandwidth: 'fast' is not" in event.note


def test_a_bad_value_is_told_once() -> None:
    bench = Bench(FABRIC)
    for _ in range(3):
        bench.verdicts(owned("p", {GPU_COUNT: "0"}))

    assert len(bench.handle.fake_recorder.events) == 1


def test_a_what_if_about_a_pod_that_has_a_node_tells_nothing() -> None:
    bench = Bench(FABRIC)

    bench.verdicts(owned("p", {GPU_COUNT: "0"}, on=FABRIC[0].metadata.name))

    assert not bench.handle.fake_recorder.events


def test_the_filter_itself_tells_nothing() -> None:
    bench = Bench(FABRIC)

    bench.plugin.pre_filter(Cycle(), bench.cache.record(owned("p", {GPU_COUNT: "0"})))

    assert not bench.handle.fake_recorder.events


def test_a_domain_that_does_not_exist_is_told() -> None:
    bench = Bench(FABRIC)

    assert set(bench.scores(owned("p", {PREFERRED_DOMAIN: "leaf-9"})).values()) == {0.0}
    assert "there is no domain 'leaf-9'" in bench.handle.fake_recorder.events[0].note


def test_a_number_of_gpus_for_pods_that_ask_for_none_is_told() -> None:
    bench = Bench(FABRIC)
    nothing = owned("p", {GPU_COUNT: "8"})
    nothing.spec.containers = [model.Container(name="main")]
    by_claim = owned("q", {GPU_COUNT: "8", custom_resources.CLAIM: "pair"})
    by_claim.spec.containers = [model.Container(name="main")]

    assert set(bench.verdicts(nothing).values()) == {()}
    bench.verdicts(by_claim)

    (event,) = bench.handle.fake_recorder.events
    assert (event.pod, event.kind) == ("default/p", "Warning")
    assert event.note == "topology.scheduler/gpu-count: '8', but the pods ask for no GPU"


def test_a_number_of_gpus_that_is_no_multiple_of_those_of_a_pod_is_told() -> None:
    bench = Bench(FABRIC)
    bench.cache.store(resources.GPU_CLAIMS).upsert(
        custom_resources.GpuClaim(
            model.ObjectMeta("three", "default"),
            spec=custom_resources.GpuClaimSpec(devices=custom_resources.ClaimDevices(count=3)),
        )
    )
    by_request, by_claim = owned("p", {GPU_COUNT: "5"}), owned("q", {GPU_COUNT: "8", custom_resources.CLAIM: "three"})
    by_request.spec.containers = make_pod("p", gpus=2).spec.containers

    for pod in (by_request, by_claim, owned("r", {GPU_COUNT: "6"})):
        assert set(bench.verdicts(pod).values()) == {()}

    notes = {event.pod: event.note for event in bench.handle.fake_recorder.events}
    key = "topology.scheduler/gpu-count"
    assert notes == {
        "default/p": f"{key}: '5' is no multiple of the 2 GPUs of a pod: 3 pods start together, with 6 GPUs",
        "default/q": f"{key}: '8' is no multiple of the 3 GPUs of a pod: 3 pods start together, with 9 GPUs",
    }


def test_a_good_gpu_count_is_no_matter_here() -> None:
    bench = Bench(FABRIC)

    assert bench.scores(owned("p", {GPU_COUNT: "8"})) == {}
    assert bench.handle.fake_recorder.events == []


# preferred-domain


@pytest.mark.parametrize(
    ("domain", "nodes"),
    [
        ("spine-1", {"s1-l0-n0", "s1-l0-n1", "s1-l1-n0", "s1-l1-n1"}),
        ("leaf-1", {"s0-l1-n0", "s0-l1-n1", "s1-l1-n0", "s1-l1-n1"}),
        ("spine-1/leaf-1", {"s1-l1-n0", "s1-l1-n1"}),
    ],
)
def test_nodes_of_the_preferred_domain_are_preferred(domain: str, nodes: set[str]) -> None:
    bench = Bench(FABRIC)
    pod = owned("p", {PREFERRED_DOMAIN: domain})

    assert bench.best(pod) == nodes
    assert set(bench.verdicts(pod).values()) == {()}


def test_an_annotation_on_the_workload_counts_for_its_pods_and_theirs_win() -> None:
    bench = Bench(FABRIC)
    meta = model.ObjectMeta("job", "default", "uid-job", annotations={PREFERRED_DOMAIN: "spine-1/leaf-1"})
    bench.cache.store(resources.JOBS).upsert(model.Job(meta))

    assert bench.best(owned("p")) == {"s1-l1-n0", "s1-l1-n1"}
    assert bench.best(owned("q", {PREFERRED_DOMAIN: "spine-0/leaf-0"})) == {"s0-l0-n0", "s0-l0-n1"}


def test_placements_in_the_preferred_domain_are_preferred() -> None:
    bench = Bench(FABRIC)
    group = bench.group({PREFERRED_DOMAIN: "spine-1"})

    assert [bench.placed(group, "s1"), bench.placed(group, "s"), bench.placed(group, "s0")] == [100.0, 50.0, 0.0]


# network-bandwidth


def test_nodes_with_a_slower_or_unknown_network_are_rejected() -> None:
    bench = Bench([node("s0-l0-n0", 400), node("s0-l0-n1", 100), node("s0-l0-n2")])

    verdicts = bench.verdicts(owned("p", {NETWORK_BANDWIDTH: "200Gb"}))

    assert verdicts == {"s0-l0-n0": (), "s0-l0-n1": SLOW, "s0-l0-n2": UNKNOWN}


def test_the_fastest_adapter_that_is_up_counts_where_no_label_says() -> None:
    bench = Bench([node("s0-l0-n0"), node("s0-l0-n1"), node("s0-l0-n2", 400)])
    reports = bench.cache.store(resources.GPU_NODE_STATUSES)
    reports.upsert(report("s0-l0-n0", 100, 400))
    reports.upsert(report("s0-l0-n1", 400, state="down"))
    reports.upsert(report("s0-l0-n2", 100))

    verdicts = bench.verdicts(owned("p", {NETWORK_BANDWIDTH: "200Gb"}))

    assert verdicts == {"s0-l0-n0": (), "s0-l0-n1": UNKNOWN, "s0-l0-n2": ()}


def test_adapters_follow_reports_and_nodes() -> None:
    bench = Bench([node("s0-l0-n0")])
    reports, pod = bench.cache.store(resources.GPU_NODE_STATUSES), owned("p", {NETWORK_BANDWIDTH: "200Gb"})
    reports.upsert(report("s0-l0-n0", 400))
    reports.upsert(report("s0-l0-n0", 100))
    slower = bench.verdicts(pod)["s0-l0-n0"]
    reports.remove("", "s0-l0-n0")
    gone = bench.verdicts(pod)["s0-l0-n0"]
    reports.upsert(report("late", 400))
    bench.cache.remove_node("s0-l0-n0")
    bench.cache.upsert_node(make_node("late"))

    assert (slower, gone) == (SLOW, UNKNOWN)
    assert bench.verdicts(pod) == {"late": ()}


def test_a_domains_bandwidth_counts_for_its_nodes_and_limits_them() -> None:
    slow_leaf = Domain(name="leaf-0", type="leaf", network_bandwidth=100)
    fast_spine = Domain(name="spine-0", type="spine", network_bandwidth=800)
    bench = Bench([node("s0-l0-n0", 400), node("s0-l1-n0"), node("s1-l1-n0")], (), slow_leaf, fast_spine)

    verdicts = bench.verdicts(owned("p", {NETWORK_BANDWIDTH: "200Gb"}))

    assert verdicts == {"s0-l0-n0": SLOW, "s0-l1-n0": (), "s1-l1-n0": UNKNOWN}


# latency-sensitive


def test_leaves_with_a_lower_latency_are_preferred() -> None:
    quick = Domain(name="leaf-0", type="leaf", max_latency=2)
    bench = Bench(FABRIC, (), quick, Domain(name="leaf-1", type="leaf", max_latency=8))

    assert bench.best(owned("p", {LATENCY_SENSITIVE: "true"})) == {"s0-l0-n0", "s0-l0-n1", "s1-l0-n0", "s1-l0-n1"}
    assert bench.scores(owned("q", {LATENCY_SENSITIVE: "false"})) == {}


def test_a_domain_with_the_only_known_latency_is_preferred() -> None:
    bench = Bench(FABRIC, (), Domain(name="leaf-0", type="leaf", max_latency=5))

    assert bench.best(owned("p", {LATENCY_SENSITIVE: "true"})) == {"s0-l0-n0", "s0-l0-n1", "s1-l0-n0", "s1-l0-n1"}


def test_the_narrowest_domain_with_a_latency_counts() -> None:
    bench = Bench(
        FABRIC,
        (),
        Domain(name="spine-1", type="spine", max_latency=1),
        Domain(name="leaf-1", type="leaf", max_latency=9),
    )

    assert bench.best(owned("p", {LATENCY_SENSITIVE: "true"})) == {"s1-l0-n0", "s1-l0-n1"}


def test_a_latency_sensitive_pod_is_few_hops_from_its_siblings() -> None:
    bench = Bench(FABRIC, [owned("a", on="s0-l1-n0")])
    scores = bench.scores(owned("p", {LATENCY_SENSITIVE: "true"}))

    assert scores["s0-l1-n0"] > scores["s0-l1-n1"] > scores["s0-l0-n0"] > scores["s1-l0-n0"]


def test_compact_placements_are_preferred_by_latency_sensitive_groups() -> None:
    bench = Bench(FABRIC)
    group = bench.group({LATENCY_SENSITIVE: "true"})

    assert bench.placed(group, "s0-l0") > bench.placed(group, "s0") > bench.placed(group, "s")


# placement-strategy


def test_consolidated_pods_go_close_to_their_siblings() -> None:
    bench = Bench(FABRIC, [owned("a", on="s0-l1-n0"), owned("other", on="s1-l0-n0", owner="other")])
    scores = bench.scores(owned("p", {PLACEMENT_STRATEGY: "consolidated"}))

    assert scores["s0-l1-n0"] > scores["s0-l1-n1"] > scores["s0-l0-n0"] > scores["s1-l0-n0"] == 0.0


def test_distributed_pods_go_away_from_their_siblings() -> None:
    bench = Bench(FABRIC, [owned("a", on="s0-l1-n0"), owned("b", on="s0-l1-n0"), owned("c", on="s1-l0-n1")])
    scores = bench.scores(owned("p", {PLACEMENT_STRATEGY: "distributed"}))

    assert scores["s1-l1-n0"] > scores["s1-l0-n0"] > scores["s1-l0-n1"] > scores["s0-l1-n1"] > scores["s0-l1-n0"]


def test_balanced_pods_and_first_pods_are_left_to_the_other_scores() -> None:
    bench = Bench(FABRIC, [owned("a", on="s0-l1-n0")])

    assert bench.scores(owned("p", {PLACEMENT_STRATEGY: "balanced"})) == {}
    assert bench.scores(owned("first", {PLACEMENT_STRATEGY: "consolidated"}, owner="new")) == {}


def test_siblings_are_counted_where_they_are_now() -> None:
    bench = Bench(FABRIC, [owned("a", on="s0-l0-n0"), owned("b", on="s1-l1-n1")])
    bench.cache.remove_pod("pod-default-a")

    assert bench.best(owned("p", {PLACEMENT_STRATEGY: "consolidated"})) == {"s1-l1-n1"}


def test_siblings_of_a_transaction_count_until_it_is_undone() -> None:
    bench = Bench(FABRIC)
    pod = owned("p", {PLACEMENT_STRATEGY: "consolidated"})
    with bench.cache.transaction() as tx:
        tx.place(bench.cache.record(owned("a")), 3)
        inside = bench.best(pod)

    assert inside == {"s0-l1-n1"}
    assert bench.scores(pod) == {}


def test_consolidated_groups_prefer_compact_placements_and_distributed_ones_wide_ones() -> None:
    bench = Bench(FABRIC)
    together, apart = (bench.group({PLACEMENT_STRATEGY: each}) for each in ("consolidated", "distributed"))

    assert bench.placed(together, "s0-l0") > bench.placed(together, "s0") > bench.placed(together, "s")
    assert bench.placed(apart, "s0-l0") < bench.placed(apart, "s0") < bench.placed(apart, "s")


def test_groups_without_wishes_get_the_same_score_everywhere() -> None:
    bench = Bench(FABRIC)
    group = bench.group({})

    assert bench.placed(group, "s0-l0") == bench.placed(group, "s") == 0.0


def test_several_wishes_count_alike() -> None:
    bench = Bench(FABRIC, [owned("a", on="s0-l0-n0")])
    scores = bench.scores(owned("p", {PREFERRED_DOMAIN: "spine-1", PLACEMENT_STRATEGY: "consolidated"}))

    assert scores["s0-l0-n0"] == scores["s1-l0-n0"] == 50.0


def test_a_rejected_pod_waits_for_nodes_and_reports_of_adapters() -> None:
    bench = Bench(FABRIC)
    pod = bench.cache.record(owned("p"))
    hints = {hint.event.resource: hint.hint for hint in bench.plugin.events_to_register()}
    other = hints["gpunodestatuses"]

    assert {"nodes", "gpunodestatuses", "domainconfigs", "configmaps"} <= set(hints)
    assert other is not None
    assert other(pod, report("n", 100), report("n", 400))
    assert other(pod, None, report("n", 400))
    assert not other(pod, report("n", 400), report("n", 400))


def test_pods_of_another_namespace_that_name_the_owner_are_no_siblings() -> None:
    tracker = Siblings()
    cache = cluster()
    mine, other = cache.record(owned("a")), owned("b")
    other.metadata.namespace = "elsewhere"
    stranger = cache.record(other)

    tracker.add(stranger, 3)
    tracker.add(mine, 1)

    assert tracker.of(mine) == {1: 1}
    tracker.remove(stranger, 3)
    assert tracker.of(mine) == {1: 1} and tracker.of(stranger) == {}


@pytest.mark.parametrize("owners", [("a", "a", "a"), ("a", "b", "a"), ("", "", "")], ids=["one", "two", "none"])
def test_siblings_that_are_placed_at_once_count_as_one_by_one(owners: tuple[str, ...]) -> None:
    rows, found = [3, 1, 3], []
    for at_once in (True, False):
        cache = cluster([make_node(f"n{row}") for row in range(4)])
        tracker = cache.tracker(Siblings)
        pods = [
            cache.record(owned(f"p{n}", owner=owner) if owner else make_pod(f"p{n}")) for n, owner in enumerate(owners)
        ]
        with cache.transaction() as tx:
            if at_once:
                tx.place_all(pods, rows)
            else:
                for pod, row in zip(pods, rows, strict=True):
                    tx.place(pod, row)
            found.append([dict(tracker.of(pod)) for pod in pods])
        assert not any(tracker.of(pod) for pod in pods)

    assert found[0] == found[1] and any(found[0]) == any(owners)


def test_a_status_of_a_domain_config_that_is_written_wakes_no_pod() -> None:
    hints = [
        each.hint
        for each in TopologyAnnotations(FakeHandle(cluster(FABRIC))).events_to_register()
        if each.event.resource == resources.DOMAIN_CONFIGS.key
    ]
    pod = cluster([]).record(make_pod("p"))
    before = model.Document(model.ObjectMeta(name="leaf-0"), {"type": "leaf"})
    counted = model.Document(before.metadata, before.spec, {"currentNodes": 4})
    faster = model.Document(before.metadata, {"type": "leaf", "networkBandwidth": "400Gb"})

    assert hints
    assert not any(hint(pod, before, counted) for hint in hints if hint)
    assert all(hint is not None and hint(pod, before, faster) for hint in hints)


def test_an_attempt_remembers_wishes_only_of_pods_that_have_some() -> None:
    bench = Bench(FABRIC)
    pods = [owned("p"), owned("q", {LATENCY_SENSITIVE: "true"}, owner="other")]

    filtered = [bench.runtime.evaluator.filter(bench.cache.record(pod)) for pod in pods]

    assert [bool(each.cycle.export()) for each in filtered] == [False, True]
