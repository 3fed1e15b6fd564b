"""The setting that a workload gets, the description of a workload, and functions that several workloads need."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from gangline_e2e import api, workloads
from gangline_e2e.harness import ControlPlane, Options
from vs_kube.figures import Metric
from vs_kube.schedulers import GANGLINE

SETTLE = 2.0
"""Seconds without a new event after which a scheduler counts as having written all events."""
GPUS = 8
"""The GPUs of each node."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A control plane, the size of the workload, and one scheduler, which is not started yet."""

    cluster: api.Api
    plane: ControlPlane
    scheduler: str
    """The schedulerName of the pods."""
    start: Callable[[], int]
    """Starts the scheduler, and returns its process id."""
    nodes: int
    pods: int
    rate: float
    """Pods per second, for workloads whose pods come at a rate."""
    seconds: float
    """Seconds for which pods come."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Something to do for both schedulers."""

    name: str
    says: str
    """A description of the workload in one line."""
    metrics: tuple[Metric, ...]
    prepare: Callable[[Setting], Awaitable[None]]
    """Creates the objects that exist before the scheduler starts."""
    measure: Callable[[Setting], Awaitable[Mapping[str, float]]]
    """Starts the scheduler, and returns the figures by the titles of the metrics."""
    nodes: int = 5000
    pods: Callable[[int], int] = lambda nodes: 5000
    """The number of pods for a number of nodes, unless a user gives one."""
    takes_pods: bool = True
    """Whether a user may give the number of pods."""
    options: Options = field(default_factory=lambda: Options(kwok=False))
    kube_args: tuple[str, ...] = ()
    profile: str = GANGLINE
    """The configuration of Gangline."""
    serves: str = "gangline"
    """The schedulerName of Gangline in this configuration."""


class TooFewGpus(ValueError):
    """The nodes have no room for the pods."""


def check_room(gpus: int, nodes: int) -> None:
    """Raise TooFewGpus if so many nodes have fewer GPUs than pods ask for: the last binding would never come."""
    if gpus > nodes * GPUS:
        raise TooFewGpus(f"the pods ask for {gpus} GPUs, and {nodes} nodes have {nodes * GPUS}")


def ready_node(name: str, labels: Mapping[str, str] | None = None) -> workloads.Manifest:
    """A node that nobody plays: what a kubelet does after a binding would cost more CPU than both schedulers."""
    node = workloads.kwok_node(name, gpus=GPUS, labels=labels)
    del node["metadata"]["annotations"]
    node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "Static"}]
    return node


def node_names(nodes: int) -> list[str]:
    """Names of so many nodes."""
    return [f"node-{number:05}" for number in range(nodes)]


async def told(cluster: api.Api) -> None:
    """Wait until the number of events no longer grows."""
    path = cluster.pods.replace("/api/v1/", "/apis/events.k8s.io/v1/").replace("/pods", "/events")
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < SETTLE:
        answer = await cluster.request("GET", path, limit="1")
        number = len(answer["items"]) + answer["metadata"].get("remainingItemCount", 0)
        if number != seen:
            seen, since = number, time.monotonic()
        await asyncio.sleep(0.5)
