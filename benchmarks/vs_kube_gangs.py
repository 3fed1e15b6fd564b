"""The workload `gang` of vs_kube_scheduler.py: PodGroups of Kubernetes itself, placed by either scheduler.

For each scheduler a fresh control plane with the gates for PodGroups, and zones of 1,000 nodes. The scheduler runs and
has placed one small gang; all pods of the gang exist and wait for their PodGroup. The clock runs from its creation to
the binding of the last pod, as the API server reports it. A second gang beside the first has to be in one zone.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gangline_e2e import api, workloads
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.processes import usage

ZONE = "topology.kubernetes.io/zone"
PER_ZONE = 1000
GATES = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling")
FEATURES = f"--feature-gates={','.join(f'{gate}=true' for gate in GATES)}"
OPTIONS = Options(kwok=False, apiserver_args=(FEATURES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"))
GROUP = "scheduling.k8s.io/v1alpha2"
QUIET = 0.05
"""Share of a core below which a scheduler is taken to have nothing to do."""
CASES = {"plain": "", "in one zone": ZONE}

Start = Callable[[ControlPlane, Path], int]
"""Starts a scheduler; its process id."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a scheduler needed for each case, until the last pod was bound."""

    seconds: dict[str, float]
    cpu: dict[str, float]
    """Of the scheduler, in seconds."""
    total: dict[str, float]
    """Of the scheduler, the API server and etcd."""


class Bound:
    """How many pods have a node."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self._changed = asyncio.Event()

    async def follow(self, cluster: api.Api) -> None:
        """Keep count until cancelled."""
        async with aclosing(cluster.watch(cluster.pods)) as events:  # type: ignore[type-var]  # an async generator
            async for kind, pod in events:
                if kind in ("ADDED", "MODIFIED") and workloads.is_bound(pod):
                    self.nodes[pod["metadata"]["name"]] = pod["spec"]["nodeName"]
                    self._changed.set()

    async def until(self, gang: str, pods: int) -> set[str]:
        """Wait until all pods of a gang have a node; the nodes."""
        async with asyncio.timeout(300):
            while len(found := {node for name, node in self.nodes.items() if name.startswith(f"{gang}-")}) < pods:
                self._changed.clear()
                await self._changed.wait()
        return found


async def one(plane: ControlPlane, name: str, nodes: int, pods: int, start: Callable[[], int]) -> Result:
    """Both cases for one scheduler."""
    async with api.connect(plane.kubeconfig) as cluster, _bound(cluster) as bound:
        await cluster.create_many(_node(i) for i in range(nodes))
        pid = start()
        await _gang(cluster, [pid], name, "warm", 8, "")
        await bound.until("warm", 8)
        result = Result({}, {}, {})
        for number, (case, key) in enumerate(CASES.items()):
            gang = f"gang{number}"
            servers = [process.pid for process in plane.processes.values() if process.pid != pid]
            began, before = await _gang(cluster, [pid, *servers], name, gang, pods, key)
            where = await bound.until(gang, pods)
            result.seconds[case] = time.perf_counter() - began
            used = [usage(each).cpu_s - then for each, then in zip([pid, *servers], before, strict=True)]
            result.cpu[case], result.total[case] = used[0], sum(used)
            zones = {int(node.removeprefix("node-")) // PER_ZONE for node in where}
            assert len(where) == pods and (not key or len(zones) == 1), f"{name}, {case}: {len(where)} nodes in {zones}"
    return result


def compare(nodes: int, pods: int, runs: int, starts: dict[str, Start]) -> None:
    """Measure and print; the order of the schedulers changes from run to run."""
    results: dict[str, list[Result]] = {name: [] for name in starts}
    for number in range(runs):
        for name in sorted(starts, reverse=bool(number % 2)):
            with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder) / "plane", OPTIONS) as plane:
                result = asyncio.run(one(plane, name, nodes, pods, lambda: starts[name](plane, Path(folder))))  # noqa: B023  # runs at once
            results[name].append(result)
            print(f"run {number + 1}: {name}: {result}", file=sys.stderr)
    kube, ours = results.values()
    table = Table("", "kube-scheduler", "Gangline", "times", box=None)
    for case in CASES:
        for title, field in (("s", "seconds"), ("CPU s", "cpu"), ("CPU s with API server and etcd", "total")):
            theirs, mine = (statistics.median(getattr(result, field)[case] for result in each) for each in (kube, ours))
            table.add_row(f"{case}: {title}", f"{theirs:.3f}", f"{mine:.3f}", f"{theirs / mine:.1f}")
    Console(width=100).print(f"{nodes} nodes, a gang of {pods} pods with 8 GPUs each, {runs} run(s), medians")
    Console(width=100).print(table)


@asynccontextmanager
async def _bound(cluster: api.Api) -> AsyncIterator[Bound]:
    bound = Bound()
    following = asyncio.create_task(bound.follow(cluster))
    try:
        yield bound
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _gang(
    cluster: api.Api, pids: Sequence[int], scheduler: str, name: str, pods: int, topology_key: str
) -> tuple[float, list[float]]:
    """Create the pods, let the scheduler take note of them, create the group.

    Returns when that was, and how much CPU each process had used by then; the first one is the scheduler.
    """
    of_group = {"schedulingGroup": {"podGroupName": name}}
    await cluster.create_many(
        workloads.gpu_pod(f"{name}-{i:04}", gpus=8, scheduler_name=scheduler, spec=of_group) for i in range(pods)
    )
    await _quiet(pids[0])
    spec: workloads.Manifest = {"schedulingPolicy": {"gang": {"minCount": pods}}}
    if topology_key:
        spec["schedulingConstraints"] = {"topology": [{"key": topology_key}]}
    used, began = [usage(pid).cpu_s for pid in pids], time.perf_counter()
    await cluster.create({"apiVersion": GROUP, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec})
    return began, used


async def _quiet(pid: int) -> None:
    """Wait until a scheduler has nothing to do."""
    before = usage(pid).cpu_s
    while True:
        await asyncio.sleep(2.0)
        now = usage(pid).cpu_s
        if now - before < 2.0 * QUIET:
            return
        before = now


def _node(number: int) -> workloads.Manifest:
    node = workloads.kwok_node(f"node-{number:05}", labels={ZONE: f"zone-{number // PER_ZONE}"})
    del node["metadata"]["annotations"]
    node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "Static"}]
    return node
