"""Settings and domains follow custom resources and the ConfigMap while the scheduler runs."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from gangline import Level, Named, model, resources
from gangline.testing import make_node
from gangline_plugins.leaf_spine.arguments import LeafSpineArgs
from gangline_plugins.leaf_spine.configured import configured, described_levels
from gangline_plugins.leaf_spine.documents import Domain, ScoringWeights, TopologyConstraints

from .leaf_cases import HOME, Bench, fabric

SYSTEM = "kube-system"


def put(
    bench: Bench,
    kind: resources.Resource[model.Document],
    name: str,
    spec: dict[str, Any],
    namespace: str = HOME,
    version: str = "1",
) -> None:
    meta = model.ObjectMeta(name=name, namespace=namespace, uid=f"{namespace}/{name}", resource_version=version)
    bench.cache.store(kind).upsert(model.Document(meta, spec))


def put_text(bench: Bench, text: str, namespace: str = HOME) -> None:
    meta = model.ObjectMeta(name="topology-scheduler-config", namespace=namespace, uid=f"uid-{namespace}")
    bench.cache.store(resources.CONFIG_MAPS).upsert(model.ConfigMap(meta, {"config.yaml": text}))


def told_by(bench: Bench) -> list[str]:
    return [f"{each.pod} {each.reason}: {each.note}" for each in bench.handle.fake_recorder.events]


def settings(bench: Bench) -> Any:
    found = configured(bench.handle)
    found.refresh()
    return found.settings


def test_a_scheduler_config_takes_effect_at_once_and_leaves_with_its_object() -> None:
    bench = Bench(fabric(), args=LeafSpineArgs(topology_constraints=TopologyConstraints(max_nodes_per_leaf=3)))
    before = settings(bench).max_nodes
    put(bench, resources.SCHEDULER_CONFIGS, "any", {"topologyConstraints": {"maxNodesPerLeaf": 2}})
    during = settings(bench).max_nodes
    bench.cache.store(resources.SCHEDULER_CONFIGS).remove(HOME, "any")

    assert (before, during, settings(bench).max_nodes) == (3, 2, 3)


def test_the_config_named_like_the_profile_counts_and_the_fuller_kind_before_the_other() -> None:
    bench = Bench(fabric())
    put(bench, resources.SCHEDULER_CONFIGS, "a", {"topologyConstraints": {"maxNodesPerLeaf": 1}})
    put(bench, resources.SCHEDULER_CONFIGS, "default-scheduler", {"topologyConstraints": {"maxNodesPerLeaf": 2}})
    by_name = settings(bench).max_nodes
    put(bench, resources.TOPOLOGY_SCHEDULER_CONFIGS, "z", {"topologyConstraints": {"maxNodesPerDomain": 3}})

    assert (by_name, settings(bench).max_nodes) == (2, 3)


def test_objects_in_other_namespaces_do_not_count() -> None:
    bench = Bench(fabric())
    put(bench, resources.SCHEDULER_CONFIGS, "a", {"topologyConstraints": {"maxNodesPerLeaf": 1}}, namespace="team")

    assert settings(bench).max_nodes is None
    assert told_by(bench) == []


def test_objects_in_kube_system_count_after_those_beside_the_scheduler() -> None:
    bench = Bench(fabric())
    put(bench, resources.SCHEDULER_CONFIGS, "a", {"topologyConstraints": {"maxNodesPerLeaf": 1}}, namespace=SYSTEM)
    put(bench, resources.DOMAIN_CONFIGS, "leaf-0", {"type": "leaf", "networkBandwidth": 100}, namespace=SYSTEM)
    theirs = settings(bench).max_nodes
    put(bench, resources.SCHEDULER_CONFIGS, "z", {"topologyConstraints": {"maxNodesPerLeaf": 2}})
    put(bench, resources.DOMAIN_CONFIGS, "leaf-0", {"type": "leaf", "networkBandwidth": 200})

    assert (theirs, settings(bench).max_nodes) == (1, 2)
    assert configured(bench.handle).domains["leaf-0"].network_bandwidth == 200


def test_the_config_map_is_found_in_kube_system_too() -> None:
    bench = Bench(fabric())
    head = "apiVersion: topology.scheduler/v1alpha1\nkind: SchedulerConfig\n"
    text = head + "spec: {topologyConstraints: {maxNodesPerLeaf: %d}}"
    put_text(bench, text % 1, SYSTEM)
    theirs = settings(bench).max_nodes
    put_text(bench, text % 2)

    assert (theirs, settings(bench).max_nodes) == (1, 2)


def test_what_was_made_without_a_namespace_is_told_where_it_would_count() -> None:
    bench = Bench(fabric())
    put(bench, resources.SCHEDULER_CONFIGS, "a", {"topologyConstraints": {"maxNodesPerLeaf": 1}}, namespace="default")
    put_text(bench, "", "default")
    put(bench, resources.SCHEDULER_CONFIGS, "b", {}, namespace="team")

    assert [settings(bench).max_nodes for _ in range(3)] == [None] * 3
    note = f"it does not count in the namespace default, only in {HOME} and kube-system: make it there"
    assert told_by(bench) == [f"default/{name} NotUsed: {note}" for name in ("a", "topology-scheduler-config")]


def test_an_invalid_config_keeps_what_was_valid_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(fabric())
    put(bench, resources.SCHEDULER_CONFIGS, "a", {"topologyConstraints": {"maxNodesPerLeaf": 2}})
    settings(bench)
    with caplog.at_level(logging.WARNING):
        put(bench, resources.SCHEDULER_CONFIGS, "a", {"scoringWeights": {"resourceAvailability": 0.9}}, version="2")
        kept = settings(bench).max_nodes
        put(bench, resources.DOMAIN_CONFIGS, "leaf-0", {"type": "leaf"})
        settings(bench)

    assert kept == 2
    assert [record.message for record in caplog.records] == [
        f"SchedulerConfig {HOME}/a: spec: the weights sum to 1.5; they must sum to 1 - at $.scoringWeights; "
        "what was valid before stays in use"
    ]
    (told,) = told_by(bench)
    assert told.startswith(f"{HOME}/a InvalidConfiguration: SchedulerConfig {HOME}/a: spec: the weights sum to 1.5")


def test_the_config_map_counts_before_the_arguments_and_after_custom_resources() -> None:
    bench = Bench(fabric(), args=LeafSpineArgs(topology_constraints=TopologyConstraints(max_nodes_per_leaf=1)))
    head = "apiVersion: topology.scheduler/v1alpha1\nkind: SchedulerConfig\n"
    put_text(bench, head + "spec: {topologyConstraints: {maxNodesPerLeaf: 2, maxGPUsPerLeaf: 9}}\n")
    mapped = settings(bench)
    put(bench, resources.SCHEDULER_CONFIGS, "a", {"topologyConstraints": {"maxNodesPerLeaf": 3}})

    assert (mapped.max_nodes, mapped.max_gpus) == (2, 9)
    assert (settings(bench).max_nodes, settings(bench).max_gpus) == (3, 9)


@pytest.mark.parametrize("text", ["a: [", "just text", "- 1"], ids=["no YAML", "text", "a list"])
def test_a_config_map_that_cannot_be_read_changes_nothing(text: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(fabric())
    put_text(bench, text)

    assert settings(bench).weights == ScoringWeights()
    assert f"ConfigMap {HOME}/topology-scheduler-config" in caplog.text


def test_described_leaves_and_spines_become_levels_of_the_topology() -> None:
    nodes = [make_node(f"n{n}", labels={"row": str(n // 4), "switch": str(n // 2)}) for n in range(8)]
    domains = [Domain(name=f"spine-{s}", type="spine", node_selector={"row": str(s)}) for s in range(2)]
    domains += [Domain(name=f"leaf-{leaf}", type="leaf", node_selector={"switch": str(leaf)}) for leaf in range(4)]
    bench = Bench(nodes, args=LeafSpineArgs(domains=domains))

    assert bench.names(bench.gang(4)) == ["leaves spine-0/leaf-0 to leaf-1", "leaves spine-1/leaf-2 to leaf-3"]


def test_domain_configs_of_the_api_server_come_and_go() -> None:
    nodes = [make_node(f"n{n}", labels={"switch": str(n // 2)}) for n in range(4)]
    bench = Bench(nodes)
    without = bench.generate(bench.gang(2))
    for leaf in range(2):
        put(bench, resources.DOMAIN_CONFIGS, f"leaf-{leaf}", {"type": "leaf", "nodeSelector": {"switch": str(leaf)}})
    during = bench.names(bench.gang(2))
    for leaf in range(2):
        bench.cache.store(resources.DOMAIN_CONFIGS).remove(HOME, f"leaf-{leaf}")

    assert without is None
    assert during == ["leaf leaf-0", "leaf leaf-1"]
    assert bench.generate(bench.gang(2)) is None


def test_levels_that_are_described_stand_where_labelled_ones_were() -> None:
    levels = (Level("zone", "zone"), Level("leaf", "leaf"), Level("host", "kubernetes.io/hostname"))
    leaf, spine = (
        Domain(name="l", type="leaf", node_selector={"a": "b"}),
        Domain(name="s", type="spine", node_selector={"c": "d"}),
    )
    unlabelled = Domain(name="leaf-7", type="leaf", max_latency=3)

    found = described_levels(levels, [leaf, spine, unlabelled])

    assert [level.name for level in found] == ["zone", "spine", "leaf", "host"]
    assert [level.domains for level in found] == [(), (Named("s", {"c": "d"}),), (Named("l", {"a": "b"}),), ()]


def test_described_domains_are_levels_for_every_plugin_before_anything_is_decided() -> None:
    nodes = [make_node(f"n{n}", labels={"switch": str(n // 2)}) for n in range(4)]
    bench = Bench(nodes, args=LeafSpineArgs(domains=[Domain(name="l", type="leaf", node_selector={"switch": "0"})]))
    before = bench.handle.topology.find("leaf")
    bench.plugin.pre_cycle()

    assert before is None
    assert bench.handle.topology.find("leaf") is not None


def test_a_group_that_waits_is_tried_again_when_the_configuration_changes() -> None:
    bench = Bench(fabric())

    wanted = {hint.event.resource for hint in bench.plugin.events_to_register()}

    assert wanted == {"nodes", "pods", "schedulerconfigs", "topologyschedulerconfigs", "domainconfigs", "configmaps"}


def test_all_kinds_are_watched_where_they_count_and_where_they_land_without_a_namespace() -> None:
    bench = Bench(fabric())

    watched = {(each.resource.plural, each.namespace, each.field_selector) for each in bench.plugin.watches}

    kinds = [(kind, "") for kind in ("schedulerconfigs", "topologyschedulerconfigs", "domainconfigs")]
    kinds.append(("configmaps", "metadata.name=topology-scheduler-config"))
    assert watched == {(kind, where, only) for kind, only in kinds for where in (HOME, SYSTEM, "default")}


def test_a_scheduler_in_kube_system_watches_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", SYSTEM)

    assert len(Bench(fabric()).plugin.watches) == 8
