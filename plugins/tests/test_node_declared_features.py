"""NodeDeclaredFeatures: what a pod needs against what nodes declare."""

from __future__ import annotations

import pytest

from gangline import Code, PodInfo, model
from gangline_plugins.node_declared_features import NodeDeclaredFeatures, needed_features

from .volume_cases import VolumeCluster, node, pod

USERS, RESTART = "UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits"
LACKS = ("node(s) didn't match Pod's required features",)


def cluster() -> VolumeCluster:
    declaring = {**node("declares"), "status": {"declaredFeatures": ["Another", USERS]}}
    return VolumeCluster(NodeDeclaredFeatures, nodes=[node("old"), declaring])


def record(spec: model.PodSpec) -> PodInfo:
    return cluster().cache.record(model.Pod(model.ObjectMeta(name="p", namespace="default", uid="1"), spec))


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        pytest.param(model.PodSpec(host_network=True, host_users=False), {USERS}, id="own users on the host's network"),
        pytest.param(model.PodSpec(host_network=True), set(), id="users not asked for"),
        pytest.param(model.PodSpec(host_users=False), set(), id="own network"),
        pytest.param(
            model.PodSpec(
                containers=[model.Container(restart_policy_rules=[model.RestartRule("RestartAllContainers")])]
            ),
            {RESTART},
            id="a container that restarts all",
        ),
        pytest.param(
            model.PodSpec(
                init_containers=[model.Container(restart_policy_rules=[model.RestartRule("RestartAllContainers")])]
            ),
            {RESTART},
            id="an init container that restarts all",
        ),
        pytest.param(
            model.PodSpec(containers=[model.Container(restart_policy_rules=[model.RestartRule("Restart")])]),
            set(),
            id="a container that restarts itself",
        ),
    ],
)
def test_a_pod_needs_the_features_that_its_spec_uses(spec: model.PodSpec, needed: set[str]) -> None:
    assert needed_features(record(spec).cls) == needed


def test_a_node_that_does_not_declare_what_the_pod_needs_is_rejected() -> None:
    verdicts = cluster().verdicts(record(model.PodSpec(host_network=True, host_users=False)))

    assert verdicts == {"old": (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, LACKS)}


def test_a_pod_that_needs_nothing_goes_anywhere() -> None:
    assert cluster().rejected(pod()) == {}


@pytest.mark.parametrize(("declared", "wakes"), [([USERS], True), ([], False)], ids=["more", "the same"])
def test_a_node_that_declares_more_wakes_pods(declared: list[str], wakes: bool) -> None:
    (hint,) = [e.hint for e in cluster().plugin.events_to_register() if e.event.resource == "nodes"]
    old = model.Node(model.ObjectMeta(name="a"))
    new = model.Node(model.ObjectMeta(name="a"), status=model.NodeStatus(declared_features=declared))

    assert hint(None, old, new) is wakes
