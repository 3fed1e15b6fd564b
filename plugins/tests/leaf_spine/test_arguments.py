"""What LeafSpine takes as arguments: its own, and the seeds' documents."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import ConfigError, InvalidObject
from gangline.testing.configured import decode_args
from gangline_plugins.leaf_spine.arguments import LeafSpineArgs, LeafSpineSettings, settings_of
from gangline_plugins.leaf_spine.documents import Domain, SchedulerConfigSpec, ScoringWeights, read_document

DOCUMENT = {
    "apiVersion": "topology.scheduler/v1alpha1",
    "kind": "SchedulerConfig",
    "metadata": {"name": "default-config", "namespace": "kube-system"},
    "spec": {
        "scoringWeights": {
            "resourceAvailability": 0.1,
            "topologyAlignment": 0.2,
            "domainUtilization": 0.3,
            "historicalPerformance": 0.4,
        },
        "topologyConstraints": {"maxNodesPerLeaf": 4, "maxGPUsPerLeaf": 32},
    },
}
FULL = {
    "apiVersion": "topology.scheduler.k8s.io/v1alpha1",
    "kind": "TopologySchedulerConfig",
    "spec": {
        "topologyConstraints": {
            "maxNodesPerDomain": 2,
            "maxGPUsPerDomain": 16,
            "minDomainsPerSpine": 3,
            "maxDomainsPerSpine": 8,
            "allowCrossDomainScheduling": False,
        },
        "domainConfigs": [
            {
                "metadata": {"name": "leaf-1"},
                "spec": {"type": "leaf", "networkBandwidth": 400, "maxLatency": 2, "gpuTypes": ["H100"]},
            }
        ],
        "enableMetrics": True,
        "updateInterval": "30s",
    },
}


def decoded(args: dict[str, Any]) -> LeafSpineArgs:
    return decode_args("config.yaml", "args", args, LeafSpineArgs)


def test_a_scheduler_config_loads_as_arguments() -> None:
    settings = settings_of(decoded(DOCUMENT))

    assert settings == LeafSpineSettings(ScoringWeights(0.1, 0.2, 0.3, 0.4), max_nodes=4, max_gpus=32)


def test_a_topology_scheduler_config_of_the_other_group_loads_as_arguments() -> None:
    args = decoded(FULL)

    assert settings_of(args) == LeafSpineSettings(max_nodes=2, max_gpus=16, min_leaves=3, max_leaves=8, crosses=False)
    assert args.spec is not None
    assert [each.domain.name for each in args.spec.domain_configs] == ["leaf-1"]


def test_what_a_document_does_not_say_stays_as_it_was() -> None:
    args = decoded({"strict": False, "topologyConstraints": {"maxNodesPerLeaf": 2}})
    later = SchedulerConfigSpec(scoring_weights=ScoringWeights(1, 0, 0, 0))

    assert settings_of(args, [later]) == LeafSpineSettings(ScoringWeights(1, 0, 0, 0), max_nodes=2, strict=False)


def test_weights_that_do_not_sum_to_one_are_refused_with_the_place() -> None:
    with pytest.raises(ConfigError) as error:
        decoded({"scoringWeights": {"resourceAvailability": 0.5}})

    assert str(error.value) == "config.yaml: args.scoringWeights: the weights sum to 1.1; they must sum to 1"


def test_weights_may_be_off_by_rounding() -> None:
    thirds = {"resourceAvailability": 1 / 3, "topologyAlignment": 1 / 3, "domainUtilization": 0.3333333}

    assert decoded({"scoringWeights": {**thirds, "historicalPerformance": 0}})


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"scoringWeights": {"speed": 1}}, "args.scoringWeights.speed: unknown field"),
        ({"topologyConstraints": {"maxNodesPerLeaf": 0}}, "args.topologyConstraints.maxNodesPerLeaf: must be >= 1"),
        ({"domains": [{"name": "a", "type": "rack"}]}, "args.domains[0].type: must be one of leaf, spine"),
        ({"kind": "SchedulerConfig", "spec": {}}, "apiVersion is ''; it must be topology.scheduler/v1alpha1 or"),
        ({**DOCUMENT, "kind": "Pod"}, "kind is 'Pod'; it must be SchedulerConfig or TopologySchedulerConfig"),
    ],
    ids=["unknown weight", "no nodes", "other type", "no version", "other kind"],
)
def test_bad_arguments_are_named(args: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as error:
        decoded(args)

    assert why in str(error.value)


def test_a_domain_config_is_a_domain_with_its_name() -> None:
    document = {
        "apiVersion": "topology.scheduler.k8s.io/v1alpha1",
        "kind": "DomainConfig",
        "metadata": {"name": "spine-1", "namespace": "kube-system"},
        "spec": {
            "type": "spine",
            "networkBandwidth": 800,
            "maxLatency": 5,
            "nodeSelector": {"pod": "1"},
            "maxGPUs": 64,
        },
        "status": {"currentNodes": 4},
    }

    assert read_document(document, "here") == Domain(
        name="spine-1", type="spine", network_bandwidth=800, max_latency=5, node_selector={"pod": "1"}, max_gpus=64
    )


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("text", "here: this is no document with apiVersion, kind and spec"),
        ({"kind": "DomainConfig"}, "here: apiVersion: must be topology.scheduler/v1alpha1 or "),
        ({**DOCUMENT, "kind": "Node"}, "here: kind: 'Node': must be SchedulerConfig, TopologySchedulerConfig or "),
        ({**DOCUMENT, "spec": {"scoringWeights": {"resourceAvailability": 1}}}, "here: spec: the weights sum to 1.6"),
    ],
    ids=["no mapping", "no version", "other kind", "weights"],
)
def test_a_bad_document_is_refused_in_one_line(document: object, why: str) -> None:
    with pytest.raises(InvalidObject) as error:
        read_document(document, "here")

    assert str(error.value).startswith(why)
    assert "\n" not in str(error.value)
