"""What the tests of leases share: a cluster on the in-memory API server, and any number of schedulers on it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from gangline import Term, config, model
from gangline.config import LeaderElection
from gangline.errors import LeadershipLost
from gangline.kube.resources import GPU_CLAIMS, GPU_NODE_STATUSES, LEASES, NODES, PODS
from gangline.loop.scheduler import Options, Scheduler
from gangline.process.leading import Elector
from gangline.process.tenure import Tenure
from gangline.profile.registry import Catalog
from gangline.simulate import Faults, SimulatedClient, SimulatedCluster
from gangline.simulate.client import no_faults
from gangline.simulate.cluster import running
from gangline.testing import make_node, make_pod
from gangline.wire.custom_resources import ALLOCATED, CLAIM, MANAGED
from gangline.wire.texts import device_ids
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
            self.create(NODES, make_node(name))
            self.create(GPU_NODE_STATUSES, report(name))

    def add_claim(self, name: str = "claim", **fields: Any) -> None:
        """A claim; fields are those of `gpu_cases.claim`."""
        self.create(GPU_CLAIMS, claim(name, **fields))

    def add_pod(
        self, name: str, uses: str = "claim", scheduler: str = "gpus", annotations: Mapping[str, str] | None = None
    ) -> str:
        """A pod that waits for a scheduler; uses a claim unless `uses` is empty. Returns its UID."""
        notes = {**({CLAIM: uses} if uses else {}), **(annotations or {})}
        pod = make_pod(name, annotations=notes, scheduler_name=scheduler)
        self.create(PODS, pod)
        return pod.metadata.uid

    def add_lease(self, lease: model.Lease) -> None:
        """A lease as it is."""
        self.create(LEASES, lease)

    def set_phase(self, pod: str, phase: str) -> None:
        """What its kubelet says of a pod."""
        self.server.patch(PODS, pod, {"status": {"phase": phase}}, subresource="status")

    def pod(self, name: str) -> model.Pod:
        """A pod as it is now."""
        return self.get(PODS, name)

    def pods(self) -> Sequence[model.Pod]:
        """All pods."""
        return self.list(PODS)

    def leases(self) -> dict[str, model.Lease]:
        """All leases that lock devices, by name."""
        leases = self.list(LEASES, NAMESPACE, label_selector=f"{MANAGED}=true")
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
                for id in device_ids((pod.metadata.annotations or {})[ALLOCATED]):
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
        tenure = tenure or Tenure(self.clock)
        scheduler = Scheduler(
            config.load(text, "configuration"),
            client,
            self.clock,
            Catalog.discover(),
            Options(concurrency, identity or "gangline", lambda: tenure.term if tenure.term.name else term, seed=seed),
        )
        elector = self._elector(client, identity, tenure)
        async with running(_while_elected(scheduler, elector) if identity else scheduler.run()):
            try:
                yield scheduler
            finally:
                await client.close()

    def _elector(self, client: SimulatedClient, identity: str, tenure: Tenure) -> Elector:
        namespace, _, name = ELECTION.partition("/")
        settings = LeaderElection(resource_namespace=namespace, resource_name=name)
        return Elector(client, self.clock, settings, identity, random.Random(1), tenure=tenure)


async def _while_elected(scheduler: Scheduler, elector: Elector) -> None:
    """Run a scheduler with an election, as `gangline run` does: a process that loses its Lease ends."""
    try:
        await scheduler.run(elector.run)
    except* LeadershipLost:
        pass  # the task has ended


def plain(obj: Any) -> Any:
    """An object as JSON data."""
    return msgspec.json.decode(msgspec.json.encode(obj))
