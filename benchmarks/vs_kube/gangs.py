"""The workload `gang`: PodGroups of Kubernetes itself, placed by either scheduler.

The control plane has the gates for PodGroups, and zones of 1,000 nodes. The scheduler runs and has placed one small
gang; all pods of the gang exist and wait for their PodGroup. The clock runs from its creation to the binding of the
last pod, as the API server reports it. A second gang beside the first has to be in one zone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

import gangline_profiles
from gangline_e2e import api, workloads
from gangline_e2e.harness import Options
from gangline_e2e.processes import usage
from vs_kube.figures import Metric
from vs_kube.setting import GPUS, Setting, Workload, check_room, node_names, ready_node

ZONE = "topology.kubernetes.io/zone"
PER_ZONE = 1000
GATES = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling")
FEATURES = f"--feature-gates={','.join(f'{gate}=true' for gate in GATES)}"
OPTIONS = Options(kwok=False, apiserver_args=(FEATURES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"))
GROUP = "scheduling.k8s.io/v1alpha2"
QUIET = 0.05
"""Share of a core below which a scheduler is taken to have nothing to do."""
CASES = {"plain": "", "in one zone": ZONE}
SECONDS, CPU, TOTAL = "s", "CPU s", "CPU s with API server and etcd"


class Bound:
    """Where the pods are that have a node."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self._changed = asyncio.Event()

    async def follow(self, cluster: api.Api) -> None:
        """Follow the pods until cancelled."""
        async with aclosing(cluster.watch(cluster.pods)) as events:  # type: ignore[type-var]  # an async generator
            async for kind, pod in events:
                if kind in ("ADDED", "MODIFIED") and workloads.is_bound(pod):
                    self.nodes[pod["metadata"]["name"]] = pod["spec"]["nodeName"]
                    self._changed.set()

    async def until(self, gang: str, pods: int) -> set[str]:
        """Wait until all pods of a gang have a node; returns the nodes."""
        async with asyncio.timeout(300):
            while len(found := {node for name, node in self.nodes.items() if name.startswith(f"{gang}-")}) < pods:
                self._changed.clear()
                await self._changed.wait()
        return found


async def _prepare(setting: Setting) -> None:
    check_room((GPUS + len(CASES) * setting.pods) * GPUS, setting.nodes)
    zones = ({ZONE: f"zone-{number // PER_ZONE}"} for number in range(setting.nodes))
    await setting.cluster.create_many(map(ready_node, node_names(setting.nodes), zones))


async def measure(setting: Setting) -> Mapping[str, float]:
    """Both cases for one scheduler."""
    found: dict[str, float] = {}
    async with _bound(setting.cluster) as bound:
        pid = setting.start()
        await _gang(setting, [pid], "warm", GPUS, "")
        await bound.until("warm", GPUS)
        for number, (case, key) in enumerate(CASES.items()):
            found |= await _case(setting, bound, pid, f"gang{number}", case, key)
    return found


async def _case(setting: Setting, bound: Bound, pid: int, gang: str, case: str, key: str) -> Mapping[str, float]:
    """One gang, whose nodes have to agree on the label of this key."""
    pids = [pid, *(process.pid for process in setting.plane.processes.values() if process.pid != pid)]
    began, before = await _gang(setting, pids, gang, setting.pods, key)
    where = await bound.until(gang, setting.pods)
    seconds = time.perf_counter() - began
    used = [usage(each).cpu_s - then for each, then in zip(pids, before, strict=True)]
    zones = {int(node.removeprefix("node-")) // PER_ZONE for node in where}
    if len(where) != setting.pods or (key and len(zones) != 1):
        raise AssertionError(f"{setting.scheduler}, {case}: {len(where)} nodes in zones {zones}")
    return {f"{case}: {SECONDS}": seconds, f"{case}: {CPU}": used[0], f"{case}: {TOTAL}": sum(used)}


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
    setting: Setting, pids: Sequence[int], name: str, pods: int, topology_key: str
) -> tuple[float, list[float]]:
    """Create the pods, let the scheduler take note of them, create the group.

    Returns when the group was created, and the CPU seconds of each process by then; the first process is the scheduler.
    """
    of_group = {"schedulingGroup": {"podGroupName": name}}
    await setting.cluster.create_many(
        workloads.gpu_pod(f"{name}-{i:04}", gpus=GPUS, scheduler_name=setting.scheduler, spec=of_group)
        for i in range(pods)
    )
    await idle(pids[0])
    spec: workloads.Manifest = {"schedulingPolicy": {"gang": {"minCount": pods}}}
    if topology_key:
        spec["schedulingConstraints"] = {"topology": [{"key": topology_key}]}
    used, began = [usage(pid).cpu_s for pid in pids], time.perf_counter()
    await setting.cluster.create({"apiVersion": GROUP, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec})
    return began, used


async def idle(pid: int) -> None:
    """Wait until a scheduler has nothing to do."""
    before = usage(pid).cpu_s
    while True:
        await asyncio.sleep(2.0)
        now = usage(pid).cpu_s
        if now - before < 2.0 * QUIET:
            return
        before = now


WORKLOADS = (
    Workload(
        "gang",
        "a PodGroup with 8 GPUs for each pod; Gangline runs its packaged profile for GPUs",
        tuple(Metric(f"{case}: {title}") for case in CASES for title in (SECONDS, CPU, TOTAL)),
        _prepare,
        measure,
        pods=lambda nodes: min(512, nodes // 4),
        options=OPTIONS,
        kube_args=(FEATURES,),
        profile=gangline_profiles.read("gpu-scheduler"),
        serves="gpu-scheduler",
    ),
)
