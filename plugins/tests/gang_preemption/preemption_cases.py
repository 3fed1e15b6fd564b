"""What the tests of GangPreemption share: a cluster of leaves, gangs that run on it, and gangs that come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gangline import GroupAttempt, NodeView, PodInfo, Status, custom_resources, model, resources
from gangline.testing import Cache, FakeHandle, Groups, cluster, make_node, make_pod, make_runtime
from gangline.testing.deciding import GroupDecision, GroupRejection, decide_group
from gangline_plugins.gang_permit import GangPermit
from gangline_plugins.gang_preemption import GangPreemption
from gangline_plugins.gang_preemption.plugin import EvictionPlan
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.taint_toleration import TaintToleration
from gangline_plugins.topology_placement import TopologyPlacement

SPINE, LEAF = "topology.gangline.dev/spine", "topology.gangline.dev/leaf"
GROUP, REQUIRED = "scheduling.x-k8s.io/pod-group", "gangline.dev/topology-required"
ONE_LEAF = {REQUIRED: "leaf"}
NOW = 10_000.0
"""Seconds since the epoch at which everything is decided."""


def at(age: float) -> str:
    """The time stamp of so many seconds ago."""
    seconds = int(NOW - age)
    return f"1970-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


class Bench:
    """Leaves of some nodes of 8 GPUs each; node l1-n2 is in leaf-1."""

    def __init__(
        self, leaves: int = 2, nodes: int = 2, taints: Mapping[str, str] | None = None, *plugins: type[Any]
    ) -> None:
        self.cache: Cache = cluster(
            make_node(
                f"l{leaf}-n{n}",
                labels={SPINE: "spine-0", LEAF: f"leaf-{leaf}"},
                taints=[taint] if (taint := (taints or {}).get(f"l{leaf}-n{n}")) else [],
            )
            for leaf in range(leaves)
            for n in range(nodes)
        )
        self.handle = FakeHandle(self.cache, grouping=Groups(self.cache))
        self.handle.fake_clock.seconds = NOW
        self.allow("*")
        self.plans: list[EvictionPlan | Status] = []
        bench = self

        class Watched(GangPreemption):
            """Keeps what was decided."""

            def decide(self, attempt: GroupAttempt, nodes: NodeView) -> EvictionPlan | Status:
                bench.plans.append(super().decide(attempt, nodes))
                return bench.plans[-1]

        self.runtime = make_runtime(
            self.cache,
            NodeResourcesFit,
            TaintToleration,
            GangPermit,
            TopologyPlacement,
            Watched,
            *plugins,
            handle=self.handle,
        )

    def allow(self, permissions: str) -> None:
        """What the namespace lets its pods ask for."""
        meta = model.ObjectMeta(name="default", annotations={custom_resources.ALLOW: permissions})
        self.cache.store(resources.NAMESPACES).upsert(model.Namespace(meta))

    # What runs

    def gang(
        self, name: str, nodes: Iterable[str], priority: int = 0, min_member: int | None = None, **pod: Any
    ) -> None:
        """A gang with a member on each of these nodes, by default of the whole node."""
        named = list(nodes)
        self.define(name, min_member or len(named))
        for i, node in enumerate(named):
            self.run(f"{name}-{i}", node, priority, labels={GROUP: name}, **pod)

    def upstream_gang(self, name: str, nodes: Iterable[str], **spec: Any) -> None:
        """The same with a PodGroup of scheduling.k8s.io that lets pods start one by one; their own priority is 0."""
        meta = model.ObjectMeta(name=name, namespace="default")
        group = model.PodGroup(meta, model.PodGroupSpec(scheduling_policy=model.PodGroupPolicy(basic={}), **spec))
        self.cache.store(resources.POD_GROUPS_V1BETA1).upsert(group)
        for i, node in enumerate(nodes):
            self.run(f"{name}-{i}", node, scheduling_group=model.SchedulingGroup(pod_group_name=name))

    def run(
        self,
        name: str,
        node: str,
        priority: int = 0,
        gpus: int = 8,
        age: float = 3600.0,
        gone: bool = False,
        **pod: Any,
    ) -> PodInfo:
        """A pod on a node, started so long ago; `gone` when it is being deleted."""
        obj = make_pod(name, gpus, cpu=1, node=node, priority=priority, **pod)
        obj.status.start_time = at(age)
        obj.metadata.deletion_timestamp = at(0) if gone else None
        record = self.cache.record(obj)
        self.cache.upsert_pod(record)
        return record

    def protect(self, name: str, allowed: int, **labels: str) -> None:
        """A disruption budget over the pods with these labels."""
        self.cache.store(resources.PDBS).upsert(
            model.PodDisruptionBudget(
                model.ObjectMeta(name=name, namespace="default"),
                model.PodDisruptionBudgetSpec(selector=model.LabelSelector(match_labels=labels)),
                model.PodDisruptionBudgetStatus(disruptions_allowed=allowed),
            )
        )

    def define(self, name: str, min_member: int) -> None:
        """The PodGroup object of a gang."""
        self.cache.store(resources.SCHEDULER_PLUGINS_POD_GROUPS).upsert(
            model.PodGroup(
                model.ObjectMeta(name=name, namespace="default", uid=f"group-{name}"),
                model.PodGroupSpec(min_member=min_member),
            )
        )

    # What comes

    def members(
        self, name: str, size: int, priority: int = 10, min_member: int | None = None, gpus: int = 8, **pod: Any
    ) -> list[PodInfo]:
        """The pods of a gang that waits, required to be in one leaf unless annotations say otherwise."""
        self.define(name, min_member or size)
        pod.setdefault("annotations", ONE_LEAF)
        ranks = [{GROUP: name, "apps.kubernetes.io/pod-index": str(i)} for i in range(size)]
        return [
            self.cache.record(make_pod(f"{name}-{i}", gpus, cpu=1, labels=labels, priority=priority, **pod))
            for i, labels in enumerate(ranks)
        ]

    def decide(self, pods: Sequence[PodInfo]) -> GroupDecision | GroupRejection:
        """One cycle for these members of one gang."""
        return decide_group(self.runtime, pods)

    def preempt(self, pods: Sequence[PodInfo]) -> list[str]:
        """The victims that are chosen for a gang that has no room, by name."""
        decided = self.decide(pods)
        assert isinstance(decided, GroupRejection) and not decided.is_error, decided
        assert self.plans, decided.message
        plan = self.plans[-1]
        assert isinstance(plan, EvictionPlan), plan.message
        assert set(decided.nominated) == set(plan.placed)
        return sorted(pod.name for pod in plan.victims)

    def refusal(self, pods: Sequence[PodInfo]) -> str:
        """What is said when nothing helps."""
        decided = self.decide(pods)
        assert isinstance(decided, GroupRejection) and not decided.is_error, decided
        assert not decided.nominated and not self.handle.background.spawned
        plan = self.plans[-1]
        assert isinstance(plan, Status), plan
        return plan.message

    def remove(self, names: Iterable[str]) -> None:
        """These pods are gone."""
        for name in names:
            self.cache.remove_pod(f"pod-default-{name}")


def leaf(number: int, nodes: int = 2) -> list[str]:
    """The nodes of a leaf."""
    return [f"l{number}-n{n}" for n in range(nodes)]
