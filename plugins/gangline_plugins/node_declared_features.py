"""NodeDeclaredFeatures: a pod that needs a kubelet feature gets only nodes that declare it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gangline import (
    NODE,
    SKIP,
    Action,
    CodeColumn,
    EventHint,
    NodeView,
    PodClass,
    PodInfo,
    Reason,
    Status,
    codes,
    hookimpl,
    model,
    on,
)


class NodeDeclaredFeatures:
    """Derives the features that a pod needs from its spec, and compares them with status.declaredFeatures."""

    name = "NodeDeclaredFeatures"
    reads = NODE
    ignores_requests = True
    reasons = (Reason("node(s) didn't match Pod's required features", resolvable=False),)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Nodes with other declared features, or a pod that now needs other features."""
        return (
            on("nodes", Action.ADD | Action.UPDATE_OTHER, _declares_more),
            on("pods", Action.UPDATE, _needs_less),
        )

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Skip the filter for pods that need no feature."""
        return None if needed_features(pod.cls) else SKIP

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Nodes that lack a feature."""
        needed = needed_features(pod.cls)
        lacking = nodes.full(False)
        # Node by node: hardly any pod gets here.
        for i in range(len(nodes)):
            node = nodes.node(i)
            lacking[i] = node is not None and not needed.issubset(node.status.declared_features)
        return codes(lacking)


def needed_features(cls: PodClass) -> frozenset[str]:
    """The names of the features that a pod of the class needs to run as it says."""
    found: frozenset[str] | None = cls.memo.get(NodeDeclaredFeatures)
    if found is None:
        found = frozenset(name for name, is_needed in FEATURES.items() if is_needed(cls.spec))
        cls.memo[NodeDeclaredFeatures] = found
    return found


def _restarts_all_containers(spec: model.PodSpec) -> bool:
    return any(
        rule.action == "RestartAllContainers"
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    )


def _shares_host_network_only(spec: model.PodSpec) -> bool:
    return spec.host_network and spec.host_users is False


FEATURES: Mapping[str, Callable[[model.PodSpec], bool]] = {
    "RestartAllContainersOnContainerExits": _restarts_all_containers,
    "UserNamespacesHostNetworkSupport": _shares_host_network_only,
}
"""The features that decide where a pod can run; other declared features concern changes of a running pod."""


def _declares_more(pod: PodInfo, old: model.Node | None, new: model.Node) -> bool:
    return old is None or not set(new.status.declared_features).issubset(old.status.declared_features)


def _needs_less(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
    if old is None or new is None or new.uid != pod.uid:
        return False
    return needed_features(old.cls) != needed_features(new.cls)
