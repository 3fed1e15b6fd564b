"""Random nodes, pods and histories of a cluster, for property tests with hypothesis, which has to be installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from gangline import model
from gangline.state.cache import Cache
from gangline.testing import make_node, make_pod

NODES = [f"n{i}" for i in range(5)]
PODS = [f"p{i}" for i in range(8)]
LABELS = ["rack", "zone"]
IMAGES = ["app:1", "tool:2"]
EXTENDED = [f"example.com/thing{i}" for i in range(6)]

ANYWHERE = st.sampled_from(NODES)
nodes = st.builds(
    make_node,
    name=st.sampled_from(NODES),
    gpus=st.sampled_from([0, 4, 8]),
    cpu=st.sampled_from(["4", "8500m", 16]),
    memory=st.sampled_from(["8Gi", "64Gi"]),
    pods=st.sampled_from([2, 110]),
    resources=st.dictionaries(st.sampled_from(EXTENDED), st.integers(0, 5), max_size=2),
    labels=st.dictionaries(st.sampled_from(LABELS), st.sampled_from("abc"), max_size=2),
    taints=st.lists(st.sampled_from(["gpu=yes:NoSchedule", "old:PreferNoSchedule", "down:NoExecute"]), max_size=2),
    unschedulable=st.booleans(),
    images=st.dictionaries(st.sampled_from(IMAGES), st.just(700 * 2**20), max_size=2),
)


def pods(node: st.SearchStrategy[str] = ANYWHERE) -> st.SearchStrategy[model.Pod]:
    """Pods of these names, on a node that may not exist."""
    return st.builds(
        _pod,
        name=st.sampled_from(PODS),
        node=node,
        gpus=st.sampled_from([0, 1, 4]),
        cpu=st.sampled_from([0, "100m", 2]),
        memory=st.sampled_from([0, "1Gi", "3.5Gi"]),
        resources=st.dictionaries(st.sampled_from(EXTENDED), st.integers(1, 2), max_size=1),
        labels=st.dictionaries(st.just("app"), st.sampled_from("xy"), max_size=1),
        annotations=st.dictionaries(st.just("devices"), st.sampled_from("01"), max_size=1),
        owner=st.sampled_from(["", "", "set"]),
        port=st.sampled_from([0, 0, 80, 443]),
        terminating=st.booleans(),
    )


def _pod(name: str, port: int, terminating: bool, owner: str, **fields: Any) -> model.Pod:
    pod = make_pod(name, **fields)
    if owner:
        pod.metadata.owner_references = [model.OwnerReference("ReplicaSet", owner, owner, "apps/v1", controller=True)]
    if port:
        pod.spec.containers[0].ports = [model.ContainerPort(host_port=port)]
    if terminating:
        pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    return pod


Step = Callable[[Cache], None]
"""One change of a cluster."""


def steps() -> st.SearchStrategy[Step]:
    """Nodes and pods come, change and go."""
    return st.one_of(
        nodes.map(lambda node: lambda cache: _ignore(cache.upsert_node(node))),
        pods().map(lambda pod: lambda cache: cache.upsert_pod(cache.record(pod))),
        st.sampled_from(NODES).map(lambda name: lambda cache: cache.remove_node(name)),
        st.sampled_from(PODS).map(lambda name: lambda cache: _ignore(cache.remove_pod(f"pod-default-{name}"))),
    )


def _ignore(_: object) -> None:
    """Drop a result, so that a method with a result can be a step."""
