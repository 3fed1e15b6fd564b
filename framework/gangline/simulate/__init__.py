"""A cluster in memory and in virtual time, on which the scheduler runs as it does on a real one.

    clock = VirtualClock()
    server = InMemoryServer(clock)
    server.load(["cluster.yaml", "jobs/"])

    async def story() -> list[model.Pod]:
        client = SimulatedClient(server, latency={"bind": 0.002})
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(Kubelet(server, clock).run()),
                tasks.create_task(Workloads(server).run()),
            ]
            await asyncio.sleep(3600)  # an hour passes in an instant
            for task in background:
                task.cancel()
        return (await client.list(PODS)).items

    pods = run(story(), clock)

Tests that tell a story with schedulers say it shorter with a `SimulatedCluster`.

Everything in it is decided by the manifests and the code: there is no I/O, no thread and no wall clock.
"""

from gangline.simulate.claim_controller import ClaimController
from gangline.simulate.client import Faults, SimulatedClient
from gangline.simulate.cluster import SimulatedCluster, running
from gangline.simulate.controller import Workloads
from gangline.simulate.fleet import gpu_nodes
from gangline.simulate.kubelet import Kubelet
from gangline.simulate.manifests import RUN_SECONDS
from gangline.simulate.server import InMemoryServer
from gangline.simulate.time import EPOCH, Deadlock, VirtualClock, VirtualLoop, looping, run

__all__ = [
    "EPOCH",
    "RUN_SECONDS",
    "ClaimController",
    "Deadlock",
    "Faults",
    "InMemoryServer",
    "Kubelet",
    "SimulatedClient",
    "SimulatedCluster",
    "VirtualClock",
    "VirtualLoop",
    "Workloads",
    "gpu_nodes",
    "looping",
    "run",
    "running",
]
