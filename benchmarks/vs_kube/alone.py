"""The workloads `pods`, `fill`, `spread` and `claims`: many pods that all exist before the scheduler is started.

The clock runs from the start of the process to the last binding that the API server reports, and in `fill` to the last
pod that is said to be unschedulable, if that is later.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial

from gangline_e2e import api, workloads
from gangline_e2e.processes import usage
from vs_kube import claims
from vs_kube.figures import Metric
from vs_kube.setting import GPUS, Setting, Workload, check_room, node_names, ready_node, told

PODS, CPU, RSS = (
    Metric("pods/s", "{:.0f}", less_is_better=False),
    Metric("CPU ms per pod"),
    Metric("peak RSS MiB", "{:.0f}"),
)
OF_PLANE = Metric("CPU ms per pod of API server and etcd")
CEILING = Metric("pods/s if the scheduler cost nothing", "{:.0f}", less_is_better=False)
"""What API server and etcd could serve with all cores for themselves."""
TOO_MANY = 200
"""How many pods of `fill` find no room."""
ZONES, APPS = 10, 10
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
LONGEST_S = 1800

Pod = Callable[[Setting, int], workloads.Manifest]
"""Makes the pod of a number."""


def gpu_pod(setting: Setting, number: int) -> workloads.Manifest:
    """A pod for one GPU."""
    return workloads.gpu_pod(_name(setting, number), gpus=1, scheduler_name=setting.scheduler)


def spread_pod(setting: Setting, number: int) -> workloads.Manifest:
    """A pod for one GPU of one of ten applications, each spread over zones, and over nodes where possible."""
    selector = {"matchLabels": {"app": f"app-{number % APPS}"}}
    spec = {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        ],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "podAffinityTerm": {"topologyKey": HOST, "labelSelector": selector}}
                ]
            }
        },
    }
    return workloads.gpu_pod(
        _name(setting, number), scheduler_name=setting.scheduler, labels=selector["matchLabels"], spec=spec
    )


def _name(setting: Setting, number: int) -> str:
    return f"{setting.scheduler}-{number:05}"


async def _prepare(
    setting: Setting,
    pod: Pod = gpu_pod,
    unschedulable: int = 0,
    before: Callable[[api.Api, list[str]], Awaitable[None]] | None = None,
    after: Callable[[api.Api, workloads.Manifests], Awaitable[None]] | None = None,
) -> None:
    """Create the nodes and the pods, something before the pods and something for them."""
    check_room(setting.pods - unschedulable, setting.nodes)
    names = node_names(setting.nodes)
    zones = ({ZONE: f"zone-{number % ZONES}"} for number in range(setting.nodes))
    await setting.cluster.create_many(map(ready_node, names, zones))
    if before is not None:
        await before(setting.cluster, names)
    created = await setting.cluster.create_many(pod(setting, number) for number in range(setting.pods))
    if after is not None:
        await after(setting.cluster, created)


async def measure(setting: Setting, unschedulable: int = 0) -> Mapping[str, float]:
    """Start the scheduler, and wait until all pods are bound or unschedulable, and until no more events come."""
    watching = asyncio.create_task(_placed(setting.cluster, setting.pods - unschedulable, unschedulable))
    try:
        began, before = time.perf_counter(), _plane_seconds(setting)
        pid = setting.start()
        async with asyncio.timeout(LONGEST_S):
            seconds = await watching - began
    finally:
        watching.cancel()
    await told(setting.cluster)
    used, of_plane = usage(pid), _plane_seconds(setting, without=pid) - before
    return {
        PODS.title: setting.pods / seconds,
        CPU.title: used.cpu_s / setting.pods * 1e3,
        RSS.title: used.peak_rss_bytes / 2**20,
        OF_PLANE.title: of_plane / setting.pods * 1e3,
        CEILING.title: setting.pods * len(os.sched_getaffinity(0)) / of_plane,
    }


def _plane_seconds(setting: Setting, without: int = 0) -> float:
    """CPU seconds that the processes of the control plane have used, without the scheduler's."""
    return sum(usage(each.pid).cpu_s for each in setting.plane.processes.values() if each.pid != without)


async def _placed(cluster: api.Api, pods: int, unschedulable: int) -> float:
    """Wait until so many pods have a node, and at least so many others have been reported as unschedulable; returns
    when.
    """
    bound: set[str] = set()
    told_so: set[str] = set()
    async with aclosing(cluster.watch(cluster.pods)) as events:  # type: ignore[type-var]  # an async generator
        async for kind, pod in events:
            if kind not in ("ADDED", "MODIFIED"):
                continue
            if workloads.is_bound(pod):
                bound.add(pod["metadata"]["name"])
            elif unschedulable and workloads.is_unschedulable(pod):
                told_so.add(pod["metadata"]["name"])
            if len(bound) == pods and len(told_so - bound) >= unschedulable:
                return time.perf_counter()
    raise AssertionError("a watch does not end")


async def _fill(setting: Setting) -> Mapping[str, float]:
    return await measure(setting, unschedulable=TOO_MANY)


_METRICS = (PODS, CPU, RSS, OF_PLANE, CEILING)
WORKLOADS = (
    Workload("pods", "pods for one GPU each", _METRICS, _prepare, measure),
    Workload(
        "fill",
        f"pods for one GPU each, {TOO_MANY} more than there are GPUs",
        _METRICS,
        partial(_prepare, unschedulable=TOO_MANY),
        _fill,
        nodes=1000,
        pods=lambda nodes: nodes * GPUS + TOO_MANY,
        takes_pods=False,
    ),
    Workload(
        "spread",
        "pods for one GPU, spread over zones, with a preferred anti-affinity to their like on one node",
        _METRICS,
        partial(_prepare, pod=spread_pod),
        measure,
    ),
    *(
        Workload(
            name,
            says,
            _METRICS,
            partial(
                _prepare,
                pod=lambda setting, number: claims.pod(_name(setting, number), setting.scheduler),
                before=claims.prepare,
                after=partial(claims.give_claims, match=match),
            ),
            measure,
        )
        for name, says, match in (
            ("claims", "pods with a ResourceClaim for one device", False),
            ("claims-match", "pods with a ResourceClaim for two devices behind one root", True),
        )
    ),
)
