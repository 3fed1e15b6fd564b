"""A fragmented cluster for the tests of defragmentation, and plans on it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from gangline import PodInfo, model, resources
from gangline.testing import make_pod
from gangline.testing.deciding import WaitingGangs
from gangline.testing.gangs import GROUP, REQUIRED, Gangs, fabric
from gangline_plugins.defragmentation import DefragmentationArgs, MovePlan, Planner

HOUR = 3600.0


class Fragmented:
    """Leaves of four nodes with eight GPUs each, and pods that controllers made, all of which have run for an hour."""

    def __init__(self, spines: int = 1, leaves: int = 2, **args: Any) -> None:
        self.cache = fabric(spines=spines, leaves=leaves)
        now = 1_800_000_000.0
        self._waiting = WaitingGangs(self.cache, now)
        self.gangs = Gangs(self.cache, pending=self._waiting)
        self.handle = self.gangs.handle
        self.handle.fake_clock.seconds = now
        self._waiting.serve(self.gangs.runtime)
        self.args = DefragmentationArgs(**args)

    def occupy(
        self,
        name: str,
        node: str,
        gpus: int = 1,
        owner: str | None = None,
        kind: str = "ReplicaSet",
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        ran: float = HOUR,
        **spec: Any,
    ) -> PodInfo:
        """A pod that runs on a node; its controller is called as it is, unless one is named ("" for none)."""
        pod = make_pod(name, gpus=gpus, cpu=1, node=node, annotations=annotations, labels=labels, **spec)
        owner = name if owner is None else owner
        if owner:
            references = [model.OwnerReference(kind=kind, name=owner, uid=f"uid-{owner}", controller=True)]
            pod = msgspec.structs.replace(
                pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=references)
            )
        started = datetime.fromtimestamp(self.handle.clock.now() - ran, UTC).isoformat()
        pod = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, start_time=started))
        record = self.cache.record(pod)
        self.cache.upsert_pod(record)
        return record

    def run_gang(self, name: str, nodes: list[str], gpus: int = 1, min_member: int | None = None, **more: Any) -> None:
        """A group that runs, one member on each of these nodes."""
        self.gangs.define(name, min_member or len(nodes))
        for number, node in enumerate(nodes):
            self.occupy(f"{name}-{number}", node, gpus, owner=name, kind="Job", labels={GROUP: name}, **more)

    def budget(self, allowed: int, **labels: str) -> None:
        """A disruption budget for the pods with some labels."""
        self.cache.store(resources.PDBS).upsert(
            model.PodDisruptionBudget(
                metadata=model.ObjectMeta(name="budget", namespace="default"),
                spec=model.PodDisruptionBudgetSpec(selector=model.LabelSelector(match_labels=labels)),
                status=model.PodDisruptionBudgetStatus(disruptions_allowed=allowed),
            )
        )

    def wants(self, size: int, gpus: int = 8, required: str = "leaf", **spec: Any) -> MovePlan:
        """The plan for a gang that waits."""
        annotations = {REQUIRED: required} if required else {}
        pods = self.gangs.gang("big", size, gpus, annotations=annotations, **spec)
        attempt = self.handle.attempt(self._waiting.add(self.gangs.runtime, pods))
        assert attempt is not None
        return self.planner.for_group(attempt)

    @property
    def planner(self) -> Planner:
        """With the arguments of this cluster."""
        return Planner(self.handle, self.args)


def moved(plan: MovePlan) -> dict[str, str]:
    """The name of each pod that moves, and the leaf that it goes to."""
    assert not plan.message, plan.message
    return {step.name: step.destination.rsplit("-", 1)[0] for step in plan.steps}
