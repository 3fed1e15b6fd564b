"""How close pods have to be, from the annotations of every dialect."""

from __future__ import annotations

import math

import pytest

from gangline.api.pod_group import ANYWHERE, FallbackStep, TopologyConstraint
from gangline.errors import InvalidObject
from gangline.groups import Constraints, constraints_of

FALLBACK = "gangline.dev/topology-fallback"
KUEUE, KAI, VOLCANO = "kueue.x-k8s.io/podset-", "kai.scheduler/", "volcano.sh/network-topology-"
KOORDINATOR = "gang.scheduling.koordinator.sh/network-topology-spec"
ZONE = "topology.kubernetes.io/zone"


def gather(*layers: tuple[str, str]) -> str:
    listed = ",".join(f'{{"layer":"{layer}","strategy":"{strategy}"}}' for layer, strategy in layers)
    return f'{{"gatherStrategy":[{listed}]}}'


@pytest.mark.parametrize(
    ("annotations", "topology"),
    [
        pytest.param({}, TopologyConstraint(), id="nothing"),
        pytest.param({"gangline.dev/topology-required": "rack"}, TopologyConstraint("rack"), id="ours required"),
        pytest.param({"gangline.dev/topology-preferred": "leaf"}, TopologyConstraint("", "leaf"), id="ours preferred"),
        pytest.param({"gangline.dev/topology-required": "any"}, TopologyConstraint(ANYWHERE), id="anywhere"),
        pytest.param({f"{KUEUE}required-topology": ZONE}, TopologyConstraint(ZONE), id="Kueue required"),
        pytest.param({f"{KUEUE}preferred-topology": ZONE}, TopologyConstraint("", ZONE), id="Kueue preferred"),
        pytest.param({f"{KUEUE}unconstrained-topology": "true"}, TopologyConstraint(), id="Kueue unconstrained"),
        pytest.param(
            {f"{KAI}topology-required-placement": "zone", f"{KAI}topology-preferred-placement": "rack"},
            TopologyConstraint("zone", "rack"),
            id="KAI",
        ),
        pytest.param({f"{VOLCANO}mode": "hard"}, TopologyConstraint("tier-1"), id="Volcano hard"),
        pytest.param({f"{VOLCANO}highest-tier": "2"}, TopologyConstraint("tier-2"), id="Volcano without mode"),
        pytest.param({f"{VOLCANO}mode": "soft"}, TopologyConstraint("", "tier-1"), id="Volcano soft"),
        pytest.param(
            {KOORDINATOR: gather(("SpineLayer", "MustGather"))}, TopologyConstraint("spine"), id="Koordinator"
        ),
        pytest.param(
            {KOORDINATOR: gather(("NodeTopologyLayer", "PreferGather"))},
            TopologyConstraint("", "host"),
            id="Koordinator's nodes",
        ),
        pytest.param(
            {"gangline.dev/topology-required": "rack", f"{KUEUE}required-topology": ZONE},
            TopologyConstraint("rack"),
            id="ours before Kueue's",
        ),
    ],
)
def test_each_dialect_names_levels(annotations: dict[str, str], topology: TopologyConstraint) -> None:
    assert constraints_of(annotations) == Constraints(topology)


@pytest.mark.parametrize("layers", [("SpineLayer", "BlockLayer"), ("BlockLayer", "SpineLayer")], ids=["wide", "narrow"])
def test_of_several_layers_the_narrowest_counts(layers: tuple[str, str]) -> None:
    spec = gather(*((layer, "MustGather") for layer in layers), *((layer, "PreferGather") for layer in layers))

    assert constraints_of({KOORDINATOR: spec}).topology == TopologyConstraint("block", "block")


def test_a_fallback_is_a_level_for_each_stretch_of_waiting() -> None:
    topology = constraints_of({FALLBACK: "rack,2m; block,10m ;any"}).topology

    assert topology.fallback == (FallbackStep("rack"), FallbackStep("block", 120.0), FallbackStep(ANYWHERE, 600.0))
    assert [topology.required_at(waited) for waited in (0, 119, 120, 600)] == ["rack", "rack", "block", ANYWHERE]
    assert [topology.next_change(waited) for waited in (0, 120, 600)] == [120.0, 600.0, math.inf]


@pytest.mark.parametrize(
    ("annotations", "size", "topology"),
    [
        pytest.param(
            {f"{KUEUE}slice-size": "4", f"{KUEUE}slice-required-topology": "rack"},
            4,
            TopologyConstraint("rack"),
            id="Kueue",
        ),
        pytest.param(
            {f"{KAI}segment-size": "2", f"{KAI}segment-topology-preferred-placement": "rack"},
            2,
            TopologyConstraint("", "rack"),
            id="KAI",
        ),
    ],
)
def test_slices_have_a_size_and_a_level(annotations: dict[str, str], size: int, topology: TopologyConstraint) -> None:
    found = constraints_of(annotations)

    assert (found.slice_size, found.slice_topology, found.topology) == (size, topology, TopologyConstraint())


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({FALLBACK: "rack,2m"}, '"rack,2m" is the last step, so it has no time'),
        ({FALLBACK: "rack;any"}, 'expected a duration such as "15s"'),
        (
            {FALLBACK: "rack,soon;any"},
            "annotation gangline.dev/topology-fallback: 'rack,soon;any': expected a duration",
        ),
        ({FALLBACK: "rack,10m;block,2m;any"}, '"block,2m": times have to grow from step to step'),
        ({FALLBACK: ""}, '"" is not the name of a level or a label key'),
        ({"gangline.dev/topology-required": "my rack"}, '"my rack" is not the name of a level'),
        ({f"{KUEUE}unconstrained-topology": "yes"}, 'expected "true" or "false"'),
        (
            {f"{KUEUE}unconstrained-topology": "true", f"{KUEUE}required-topology": ZONE},
            "excludes kueue.x-k8s.io/podset-",
        ),
        ({f"{KUEUE}slice-size": "4"}, "needs kueue.x-k8s.io/podset-slice-required-topology too"),
        ({f"{KUEUE}slice-required-topology": "rack"}, "needs kueue.x-k8s.io/podset-slice-size too"),
        ({f"{KAI}segment-size": "1"}, "kai.scheduler/segment-size: '1': expected a whole number from 2"),
        ({f"{KAI}segment-size": "2"}, "needs kai.scheduler/segment-topology-required-placement or"),
        ({f"{KAI}segment-topology-required-placement": "rack"}, "needs kai.scheduler/segment-size too"),
        ({f"{VOLCANO}mode": "firm"}, 'expected "hard" or "soft"'),
        ({f"{VOLCANO}highest-tier": "0"}, "expected a whole number from 1"),
        ({KOORDINATOR: "{"}, f"annotation {KOORDINATOR}: '{{': Input data was truncated"),
        ({KOORDINATOR: gather(("SpineLayer", "MayGather"))}, "Invalid enum value 'MayGather'"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_key(annotations: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        constraints_of(annotations)

    assert says in str(caught.value)
    assert str(caught.value).startswith("annotation ")
