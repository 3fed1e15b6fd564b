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

A `SimulatedCluster` makes tests with schedulers shorter.

Only the manifests and the code decide what happens: there is no I/O, no thread and no wall clock.
"""

from gangline.loop.scheduler import Options, Scheduler
from gangline.simulate.claim_controller import ClaimController
from gangline.simulate.client import Faults, SimulatedClient, no_faults
from gangline.simulate.cluster import SimulatedCluster, make_scheduler, running
from gangline.simulate.controller import Workloads
from gangline.simulate.electing import Election, Tenure
from gangline.simulate.fleet import gpu_nodes
from gangline.simulate.kubelet import Kubelet
from gangline.simulate.manifests import RUN_SECONDS
from gangline.simulate.server import InMemoryServer
from gangline.simulate.session import simulate
from gangline.simulate.time import EPOCH, Deadlock, VirtualClock, VirtualLoop, looping, run

__all__ = [
    "EPOCH",
    "RUN_SECONDS",
    "ClaimController",
    "Deadlock",
    "Election",
    "Faults",
    "InMemoryServer",
    "Kubelet",
    "Options",
    "Scheduler",
    "SimulatedClient",
    "SimulatedCluster",
    "Tenure",
    "VirtualClock",
    "VirtualLoop",
    "Workloads",
    "gpu_nodes",
    "looping",
    "make_scheduler",
    "no_faults",
    "run",
    "running",
    "simulate",
]
