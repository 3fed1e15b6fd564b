"""What the tests of leases share: a cluster on the in-memory API server, and any number of schedulers on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from gangline import Term, custom_resources, model, resources, texts
from gangline.simulate import (
    Election,
    Faults,
    Options,
    Scheduler,
    SimulatedClient,
    SimulatedCluster,
    Tenure,
    make_scheduler,
    no_faults,
    running,
)
from gangline.testing import make_node, make_pod
from gangline_plugins.gpu.leases.holds import holders_of, node_of, uid_of

from .gpu_cases import claim, report

NAMESPACE = "locks"
NO_TERM = Term()
ELECTION = "kube-system/gangline"
LATENCY = {"create": 0.004, "replace": 0.004, "delete": 0.004, "bind": 0.006, "get": 0.002}
PROFILE = """\
- schedulerName: {name}
  plugins:
    multiPoint:
      enabled: [{gangs}{{name: GpuClaim}}, {{name: GpuSchedulingMap}}, {{name: DeviceLease}}]
  pluginConfig:
  - name: DeviceLease
    args: {{namespace: locks, granularity: {granularity}}}
"""


class LeaseCluster(SimulatedCluster):
    """Nodes of 8 GPUs with their reports, and what happens on them in virtual time."""

    def __init__(self, nodes: int = 2, prefix: str = "node") -> None:
        super().__init__()
        self.allow("scheduling-map")
        for name in (f"{prefix}-{number}" for number in range(nodes)):
            self.create(resources.NODES, make_node(name))
            self.create(resources.GPU_NODE_STATUSES, report(name))

    def add_claim(self, name: str = "claim", **fields: Any) -> None:
        """A claim; fields are those of `gpu_cases.claim`."""
        self.create(resources.GPU_CLAIMS, claim(name, **fields))

    def add_pod(
        self, name: str, uses: str = "claim", scheduler: str = "gpus", annotations: Mapping[str, str] | None = None
    ) -> str:
        """A pod that waits for a scheduler; uses a claim unless `uses` is empty. Returns its UID."""
        notes = {**({custom_resources.CLAIM: uses} if uses else {}), **(annotations or {})}
        pod = make_pod(name, annotations=notes, scheduler_name=scheduler)
        self.create(resources.PODS, pod)
        return pod.metadata.uid

    def add_lease(self, lease: model.Lease) -> None:
        """A lease as it is."""
        self.create(resources.LEASES, lease)

    def set_phase(self, pod: str, phase: str) -> None:
        """What its kubelet says of a pod."""
        self.server.patch(resources.PODS, pod, {"status": {"phase": phase}}, subresource="status")

    def pod(self, name: str) -> model.Pod:
        """A pod as it is now."""
        return self.get(resources.PODS, name)

    def pods(self) -> Sequence[model.Pod]:
        """All pods."""
        return self.list(resources.PODS)

    def leases(self) -> dict[str, model.Lease]:
        """All leases that lock devices, by name."""
        leases = self.list(resources.LEASES, NAMESPACE, label_selector=f"{custom_resources.MANAGED}=true")
        return {lease.metadata.name: lease for lease in leases}

    def held(self) -> dict[tuple[str, int], list[str]]:
        """Node and device to the UIDs of those that the leases name."""
        held: dict[tuple[str, int], list[str]] = {}
        for lease in self.leases().values():
            for holder, hold in holders_of(lease).items():
                for id in hold.ids:
                    held.setdefault((node_of(lease), id), []).append(uid_of(holder))
        return held

    def allocated(self) -> dict[tuple[str, int], list[str]]:
        """Node and device to the UIDs of the pods whose annotations name them."""
        allocated: dict[tuple[str, int], list[str]] = {}
        for pod in self.pods():
            if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
                for id in texts.device_ids((pod.metadata.annotations or {})[custom_resources.ALLOCATED]):
                    allocated.setdefault((pod.spec.node_name, id), []).append(pod.metadata.uid)
        return allocated

    async def until_bound(self, *names: str, seconds: float = 60.0) -> None:
        """Wait until these pods have a node."""
        await self.until(lambda: all(self.pod(name).spec.node_name for name in names), seconds)

    @asynccontextmanager
    async def scheduler(
        self,
        *names: str,
        seed: int = 0,
        granularity: str = "device",
        faults: Faults = no_faults,
        latency: Mapping[str, float] = LATENCY,
        gangs: bool = False,
        concurrency: int = 64,
        term: Term = NO_TERM,
        client: SimulatedClient | None = None,
        identity: str = "",
        tenure: Tenure | None = None,
    ) -> AsyncIterator[Scheduler]:
        """A scheduler that runs until the block ends, then is cut off as by SIGKILL: it does nothing more.

        With an identity it takes part in the election by the Lease ELECTION, and leads when it is elected.
        """
        more = "{name: GangPermit}, " if gangs else ""
        profiles = "".join(
            PROFILE.format(name=name, granularity=granularity, gangs=more) for name in names or ("gpus",)
        )
        text = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n{profiles}"
        client = client or SimulatedClient(self.server, latency=latency, faults=faults)
        election = Election(client, self.clock, identity, ELECTION, tenure)
        tenure = election.tenure
        options = Options(
            concurrency, identity or "gangline", lambda: tenure.term if tenure.term.name else term, seed=seed
        )
        scheduler = make_scheduler(text, client, self.clock, options=options)
        async with running(election.lead(scheduler) if identity else scheduler.run()):
            try:
                yield scheduler
            finally:
                await client.close()


def plain(obj: Any) -> Any:
    """An object as JSON data."""
    return msgspec.json.decode(msgspec.json.encode(obj))
