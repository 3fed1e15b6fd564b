"""Random pods that wait, and pods that differ from them in one thing: a field of the spec, a label, a claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st

from gangline import model
from gangline.testing import GPU, make_pod
from gangline.testing import random_clusters as some
from gangline.wire.custom_resources import CLAIM, SCHEDULING_MAP

PURPOSE = "example.com/purpose"
GPU_CLAIMS = [f"c{number}" for number in range(3)]
CLAIMS = [f"r{number}" for number in range(3)]
"""The names of ResourceClaims."""
SCHEDULING_MAPS = ("0=n0:0,1\n1=n1:0", "0=n0:0,1\n1=n2:0", "nonsense")


def _container(image: str = "app:1", requests: Mapping[str, Any] | None = None, port: int = 0) -> model.Container:
    limits = {key: amount for key, amount in (requests or {}).items() if "/" in key}
    wanted = model.ResourceRequirements(requests=dict(requests or {}), limits=limits or None)
    ports = [model.ContainerPort(host_port=port)] if port else []
    return model.Container(name="main", image=image, resources=wanted, ports=ports)


def _near(app: str, against: bool = False) -> model.Affinity:
    term = model.PodAffinityTerm("rack", model.LabelSelector(match_labels={"app": app}))
    if against:
        return model.Affinity(pod_anti_affinity=model.PodAffinity(required=[term]))
    return model.Affinity(pod_affinity=model.PodAffinity(required=[term]))


def _on(rack: str) -> model.Affinity:
    term = model.NodeSelectorTerm(match_expressions=[model.Requirement("rack", "In", [rack])])
    preferred = [model.PreferredSchedulingTerm(10, term)]
    required = model.NodeSelector([term]) if rack == "a" else None
    return model.Affinity(node_affinity=model.NodeAffinity(required=required, preferred=preferred))


SPEC: Mapping[str, tuple[Any, ...]] = {
    "containers": (
        [_container(requests={"cpu": 1})],
        [_container(requests={GPU: 4})],
        [_container(requests={"example.com/thing1": 1})],
        [_container(port=80)],
        [_container("tool:2"), _container("other:3")],
    ),
    "init_containers": ([_container(requests={"cpu": 6})],),
    "scheduler_name": ("other-scheduler",),
    "node_name": ("n1", "n2"),
    "node_selector": ({"rack": "a"}, {"zone": "b"}),
    "affinity": (_on("a"), _on("b"), _near("x"), _near("y"), _near("x", against=True)),
    "tolerations": (
        [model.Toleration(operator="Exists")],
        [model.Toleration("gpu", "Equal", "yes")],
        [model.Toleration("node.kubernetes.io/unschedulable", "Exists")],
    ),
    "topology_spread_constraints": (
        [model.TopologySpreadConstraint(1, "rack", "DoNotSchedule", model.LabelSelector(match_labels={"app": "x"}))],
    ),
    "priority": (7,),
    "priority_class_name": ("high",),
    "preemption_policy": ("Never",),
    "overhead": ({"cpu": "3"},),
    "resources": (model.ResourceRequirements(requests={"cpu": "6"}),),
    "volumes": ([model.Volume("token")], [model.Volume("data", ephemeral=model.EphemeralVolume())]),
    "scheduling_gates": ([model.LocalName("wait")],),
    "scheduling_group": (model.SchedulingGroup("group"),),
    "resource_claims": (
        [model.PodResourceClaim("devices", None, "template")],
        *([model.PodResourceClaim("devices", name)] for name in CLAIMS),
    ),
    "host_network": (True,),
    "host_users": (True, False),
    "termination_grace_period_seconds": (5,),
    "active_deadline_seconds": (60,),
}
"""By field of the spec: other values than the default."""


def _labels(**labels: str) -> Callable[[model.Pod], None]:
    return lambda pod: pod.metadata.labels.update(labels) if pod.metadata.labels is not None else None


def _annotated(key: str, value: str) -> Callable[[model.Pod], None]:
    return lambda pod: pod.metadata.annotations.update({key: value}) if pod.metadata.annotations is not None else None


def _owned(uid: str) -> Callable[[model.Pod], None]:
    def own(pod: model.Pod) -> None:
        pod.metadata.owner_references = [model.OwnerReference("ReplicaSet", "set", uid, "apps/v1", controller=True)]

    return own


def _named(name: str) -> Callable[[model.Pod], None]:
    def rename(pod: model.Pod) -> None:
        pod.metadata.name = name

    return rename


def _moved(pod: model.Pod) -> None:
    pod.metadata.namespace = "other"


def _made(name: str) -> Callable[[model.Pod], None]:
    def make(pod: model.Pod) -> None:
        pod.status.resource_claim_statuses = [model.PodResourceClaimStatus("devices", name)]

    return make


BEYOND: Mapping[str, tuple[Callable[[model.Pod], None], ...]] = {
    "labels": (_labels(app="x"), _labels(app="y"), _labels(unread="x")),
    "annotations": (_annotated("unread", "x"), *(_annotated(PURPOSE, purpose) for purpose in "ab")),
    "claim": tuple(_annotated(CLAIM, name) for name in GPU_CLAIMS),
    "wishes": (
        _annotated("topology.scheduler/gpu-type", "H100"),
        _annotated("topology.scheduler/network-bandwidth", "100Gb"),
        _annotated("topology.scheduler/preferred-domain", "a"),
        _annotated("topology.scheduler/latency-sensitive", "true"),
    ),
    "map": tuple(_annotated(SCHEDULING_MAP, text) for text in SCHEDULING_MAPS),
    "owner": (_owned("0"), _owned("1")),
    "name": (_named("web-0"), _named("web-1"), _named("unread")),
    "namespace": (_moved,),
    "claim that was made": tuple(_made(name) for name in CLAIMS),
}
"""By name of a thing outside of the spec: changes of a pod in this thing."""

DIFFERENCES = (*SPEC, *BEYOND)


def pod(name: str, differences: Mapping[str, Any]) -> model.Pod:
    """A pod with these values of fields of its spec, and with these changes beyond."""
    made = make_pod(name)
    made.spec = msgspec.structs.replace(made.spec, **{each: differences[each] for each in SPEC if each in differences})
    made.metadata.uid = f"waiting-{name}"
    for what in BEYOND:
        if what in differences:
            differences[what](made)
    return made


def _values(difference: str) -> tuple[Any, ...]:
    return SPEC[difference] if difference in SPEC else BEYOND[difference]


@st.composite
def families(draw: st.DrawFn) -> list[model.Pod]:
    """A pod, and for each field of the spec and each thing beyond one pod that differs from it there alone."""
    chosen = draw(st.sets(st.sampled_from(DIFFERENCES), max_size=4))
    base = {difference: draw(st.sampled_from(_values(difference))) for difference in sorted(chosen)}
    found = [pod("base", base)]
    for difference in DIFFERENCES:
        values = [value for value in _values(difference) if value is not base.get(difference)]
        changed = {**base, difference: draw(st.sampled_from(values))} if values else _without(base, difference)
        found.append(pod(difference.replace("_", "-").replace(" ", "-"), changed))
    return found


def _without(differences: Mapping[str, Any], difference: str) -> dict[str, Any]:
    return {each: value for each, value in differences.items() if each != difference}


def placed() -> st.SearchStrategy[model.Pod]:
    """Pods on nodes, some of which keep pods with a label away."""
    return st.tuples(some.pods(), st.sampled_from((None, None, _near("x", against=True)))).map(
        lambda found: msgspec.structs.replace(found[0], spec=msgspec.structs.replace(found[0].spec, affinity=found[1]))
    )
