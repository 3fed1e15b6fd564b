"""The built-in plugins that declare `ignores_requests` answer alike for pods that differ in their requests alone."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from framework.tests.profile import differing_pods
from hypothesis import given
from hypothesis import strategies as st

from gangline import SKIP_CLASS, config, model
from gangline.api.cycle_state import Cycle
from gangline.profile.assembly import judging_runtimes
from gangline.profile.implementations import Implementation
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.testing import cluster
from gangline.testing import random_clusters as some

DEFAULT = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
AMOUNTS = st.fixed_dictionaries(
    {}, optional={name: st.integers(1, 9) for name in ("cpu", "memory", "nvidia.com/gpu", *some.EXTENDED[:2])}
)


def asking(pod: model.Pod, amounts: dict[str, Any]) -> model.Pod:
    """The pod with other requests of its containers, of its own, and as overhead."""
    wanted = model.ResourceRequirements(requests=amounts)
    containers = [msgspec.structs.replace(each, resources=wanted) for each in pod.spec.containers]
    spec = msgspec.structs.replace(pod.spec, containers=containers, resources=wanted, overhead=dict(amounts))
    return msgspec.structs.replace(pod, spec=spec)


def answers(impls: dict[str, list[Implementation]], pod: PodInfo, cache: Cache) -> dict[str, Any]:
    found: dict[str, Any] = {}
    view, cycle = cache.nodes.view(), Cycle()
    for impl in impls["pre_filter"]:
        said = impl.call(cycle, pod, view)
        found[f"pre_filter {impl.name}"] = said if impl.reads is not None else said is SKIP_CLASS
    for point in ("filter", "score"):
        for impl in impls[point]:
            if impl.reads is not None and found.get(f"pre_filter {impl.name}") is None:
                found[f"{point} {impl.name}"] = np.asarray(impl.call(cycle, pod, view)).tolist()
    found |= {f"pre_score {i.name}": i.call(cycle, pod, view) for i in impls["pre_score"] if i.reads is not None}
    return found


@given(st.data(), st.lists(some.nodes, min_size=1, max_size=4), st.lists(some.steps(), max_size=4), AMOUNTS, AMOUNTS)
def test_plugins_that_ignore_requests_answer_alike(
    data: st.DataObject, nodes: list[model.Node], steps: list[some.Step], some_of: Any, others: Any
) -> None:
    pod = data.draw(st.sampled_from(data.draw(differing_pods.families())))
    cache = cluster(nodes)
    for step in steps:
        step(cache)
    (runtime,) = judging_runtimes(config.load(DEFAULT, "default"), cache).values()
    impls = {
        point: [each for each in runtime.profile.points.get(point, ()) if each.ignores_requests]
        for point in ("pre_filter", "filter", "pre_score", "score")
    }
    assert {"TaintToleration", "NodeAffinity"} <= runtime.evaluator.kept.common.names

    first, second = (answers(impls, cache.record(asking(pod, amounts)), cache) for amounts in (some_of, others))

    assert first == second
