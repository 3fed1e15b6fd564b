"""Of all nodes that will do, the chosen one is best in what is asked for, and among those best in everything else."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangline import config, model
from gangline.groups import Groups
from gangline.profile.assembly import judging_runtimes
from gangline.profile.ranking import outranking
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache
from gangline.testing import cluster, make_node, make_pod
from gangline_profiles import names

from .placing import LEAF, SPINE, loaded

HOST = "kubernetes.io/hostname"
CHART = Path(__file__).parents[2] / "charts" / "gpu-scheduler" / "values.yaml"
WISHES = {"TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity", "TopologyAnnotations", "GpuClaim"}
FOR_GPUS = [name for name in names() if name != "default"]
OF_CHART = {"the chart's first": 0, "the chart's second": 1}


@functools.cache
def configuration(profile: str) -> config.SchedulerConfiguration:
    """A packaged profile, or one of the chart."""
    if profile not in OF_CHART:
        return loaded(profile)
    found = yaml.safe_load(CHART.read_text())["profiles"][OF_CHART[profile]]
    made = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    text = yaml.dump({**made, "profiles": [{"schedulerName": "chart", **found}]}, Dumper=yaml.CSafeDumper)
    return config.load(text, profile)


def runtime_of(profile: str, cache: Cache) -> Runtime:
    (runtime,) = judging_runtimes(configuration(profile), cache, ties=random.Random(1), grouping=Groups(cache)).values()
    return runtime


@pytest.mark.parametrize("profile", [*FOR_GPUS, *OF_CHART])
def test_what_users_ask_for_outranks_the_rest_in_every_profile_for_gpus(profile: str) -> None:
    weights = runtime_of(profile, Cache()).evaluator.weights()

    assert outranking(weights) == WISHES


def test_the_default_profile_sums_up_as_kube_scheduler_does() -> None:
    weights = runtime_of("default", Cache()).evaluator.weights()

    assert outranking(weights) == frozenset()
    assert {name: weight for name, weight in weights.items() if weight > 1} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
    }


def nodes(draw: st.DrawFn) -> list[model.Node]:
    taints = ("slow=yes:PreferNoSchedule",)
    return [
        make_node(f"n{i}", labels={SPINE: "s0", LEAF: f"leaf-{i % 3}"}, taints=taints if draw(st.booleans()) else ())
        for i in range(6)
    ]


def affinity(draw: st.DrawFn) -> model.Affinity:
    leaf = draw(st.sampled_from(["leaf-0", "leaf-2"]))
    preference = {"matchExpressions": [{"key": LEAF, "operator": "In", "values": [leaf]}]}
    selector = {"matchLabels": {"app": draw(st.sampled_from("ab"))}}
    term = {"labelSelector": selector, "topologyKey": draw(st.sampled_from([HOST, LEAF]))}
    kinds = {
        "nodeAffinity": {"weight": draw(st.integers(1, 100)), "preference": preference},
        "podAntiAffinity": {"weight": draw(st.integers(1, 100)), "podAffinityTerm": term},
    }
    asked = {
        kind: {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}
        for kind, wish in kinds.items()
        if draw(st.booleans())
    }
    return msgspec.convert(asked, model.Affinity)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Cache, model.Pod]:
    """A cluster in use, and a pod that asks for this and that."""
    running = [
        make_pod(f"p{i}", gpus=draw(st.integers(0, 2)), node=f"n{draw(st.integers(0, 5))}", labels={"app": app})
        for i, app in enumerate(draw(st.lists(st.sampled_from("ab"), max_size=8)))
    ]
    asked: dict[str, Any] = draw(
        st.dictionaries(
            st.just("topology.scheduler/preferred-domain"), st.sampled_from(["leaf-1", "leaf-2"]), max_size=1
        )
    )
    pod = make_pod("new", gpus=1, labels={"app": "a"}, annotations=asked, affinity=affinity(draw))
    return cluster(nodes(draw), running), pod


@pytest.mark.parametrize("profile", [*FOR_GPUS, *OF_CHART])
@given(problem=problems())
def test_the_chosen_node_is_best_in_what_is_asked_for_and_then_in_the_rest(
    profile: str, problem: tuple[Cache, model.Pod]
) -> None:
    cache, pod = problem
    runtime = runtime_of(profile, cache)
    evaluator = runtime.evaluator

    filtered = evaluator.filter(cache.record(pod))
    chosen = evaluator.choose(filtered)

    scores, weights = evaluator.scores(filtered), evaluator.weights()
    index = np.flatnonzero(filtered.feasible).tolist()
    ranks = {
        row: tuple(
            sum(weights[name] * float(each[at]) for name, each in scores.items() if (name in WISHES) is wished)
            for wished in (True, False)
        )
        for at, row in enumerate(index)
    }
    assert ranks[chosen] == max(ranks.values())
