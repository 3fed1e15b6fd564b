"""kube-scheduler and Gangline on the same control plane, with the same nodes and pods, one after the other.

    python benchmarks/vs_kube_scheduler.py [--workload pods] [--nodes 5000] [--pods 5000] [--runs 1]

Needs the control plane (`make control-plane`). For each scheduler: a fresh one, all pods created first, then the
scheduler is started; the clock runs from its start to the binding of the last pod, as read from the API server. Both
write events; kube-scheduler runs with QPS and burst 5000. CPU is of the scheduler process alone, until everything is
written (events too); RSS is its peak. Both show a ServiceAccount's token, as in a pod. The order of the two is swapped
from run to run. Nodes are objects and nothing more, so that no kubelet takes part. The workload `gang` is described in
vs_kube_gangs.py, and the workloads `claims` and `claims-match` in vs_kube_claims.py.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import credentials
import gangline_profiles
import vs_kube_claims
import vs_kube_gangs
from gangline_e2e import api, workloads
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.ports import free_port
from gangline_e2e.processes import usage

KUBE_SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: {kubeconfig}, qps: 5000, burst: 5000}}
profiles:
- schedulerName: kube
"""
GANGLINE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: gangline
"""
SETTLE = 2.0
"""Seconds without a new event after which a scheduler is taken to have told everything."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one scheduler needed."""

    scheduler: str
    seconds: float
    cpu: float
    rss: int


async def schedule(
    cluster: api.Api,
    name: str,
    manifests: workloads.Manifests,
    start: Callable[[], int],
    complete: Callable[[api.Api, workloads.Manifests], Awaitable[None]] | None = None,
) -> Result:
    """Create the pods and complete them, start the scheduler, wait until all are bound and told."""
    pods = len(manifests)
    created = await cluster.create_many(manifests)
    if complete is not None:
        await complete(cluster, created)
    bound: set[str] = set()
    last = asyncio.Event()

    async def follow() -> None:
        async for kind, pod in cluster.watch(cluster.pods):
            if kind in ("ADDED", "MODIFIED") and workloads.is_bound(pod):
                bound.add(pod["metadata"]["name"])
                if len(bound) == pods:
                    last.set()

    watching = asyncio.create_task(follow())
    began = time.perf_counter()
    pid = start()
    async with asyncio.timeout(900):
        await last.wait()
    seconds = time.perf_counter() - began
    watching.cancel()
    await told(cluster)
    used = usage(pid)
    return Result(name, seconds, used.cpu_s, used.peak_rss_bytes)


async def told(cluster: api.Api) -> None:
    """Wait until the number of events no longer grows."""
    path = cluster.pods.replace("/api/v1/", "/apis/events.k8s.io/v1/").replace("/pods", "/events")
    seen, since = -1, time.perf_counter()
    while time.perf_counter() - since < SETTLE:
        number = len(await cluster.list(path))
        if number != seen:
            seen, since = number, time.perf_counter()
        await asyncio.sleep(0.5)


def start_kube_scheduler(plane: ControlPlane, kubeconfig: Path, folder: Path, *args: str) -> Callable[[], int]:
    """A function that starts kube-scheduler and returns its process id."""
    config = folder / "kube-scheduler.yaml"
    config.write_text(KUBE_SCHEDULER.format(kubeconfig=kubeconfig))
    return lambda: (
        plane.start_component("kube-scheduler", [f"--config={config}", f"--secure-port={free_port()}", *args]).pid
    )


def start_gangline(
    kubeconfig: Path, folder: Path, processes: list[subprocess.Popen[bytes]], profile: str = GANGLINE
) -> Callable[[], int]:
    """A function that starts Gangline and returns its process id."""
    config = folder / "gangline.yaml"
    config.write_text(profile)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its byte code
    command = [sys.executable, "-m", "gangline", "run", "--config", str(config), "--kubeconfig", str(kubeconfig)]

    def start() -> int:
        log = (folder / "gangline.log").open("ab")
        process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{free_port()}", "--secure-listen", "127.0.0.1:0"],
            stderr=log,
            stdout=log,
            env=environment,
        )
        processes.append(process)
        return process.pid

    return start


async def one_run(workload: str, nodes: int, pods: int, first: str, folder: Path) -> list[Result]:
    """Both schedulers once, on a fresh control plane each."""
    results = []
    order = ["kube", "gangline"] if first == "kube" else ["gangline", "kube"]
    for name in order:
        own = folder / name
        own.mkdir(parents=True)
        processes: list[subprocess.Popen[bytes]] = []
        with ControlPlane(own, Options(kwok=False)) as plane:
            try:
                async with api.connect(plane.kubeconfig) as cluster:
                    config = await credentials.service_account(cluster, plane.kubeconfig)
                    if name == "kube":
                        start = start_kube_scheduler(plane, config, own)
                    else:
                        start = start_gangline(config, own, processes)
                    results.append(await on_plane(cluster, workload, name, nodes, pods, start))
            finally:
                for process in processes:
                    process.terminate()
                    process.wait(30)
    return results


def ready_node(name: str) -> workloads.Manifest:
    """A node that nobody plays: what a kubelet does after a binding would cost more CPU than both schedulers."""
    node = workloads.kwok_node(name)
    del node["metadata"]["annotations"]
    node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "Static"}]
    return node


async def on_plane(
    cluster: api.Api, workload: str, name: str, nodes: int, pods: int, start: Callable[[], int]
) -> Result:
    """Fill a control plane with nodes and let one scheduler work on it."""
    there, mine = [f"node-{i:05}" for i in range(nodes)], [f"{name}-{i:05}" for i in range(pods)]
    await cluster.create_many(map(ready_node, there))
    if workload == "pods":
        manifests, complete = [workloads.gpu_pod(each, gpus=1, scheduler_name=name) for each in mine], None
    else:
        await vs_kube_claims.prepare(cluster, there)
        manifests = [vs_kube_claims.pod(each, name) for each in mine]
        complete = partial(vs_kube_claims.give_claims, match=workload == "claims-match")
    return await schedule(cluster, name, manifests, start, complete)


def compare_gangs(nodes: int, pods: int, runs: int) -> None:
    """The workload `gang`; Gangline runs its packaged profile for GPUs."""
    processes: list[subprocess.Popen[bytes]] = []

    def kube(plane: ControlPlane, folder: Path) -> int:
        return start_kube_scheduler(plane, plane.kubeconfig, folder, vs_kube_gangs.FEATURES)()

    def gangline(plane: ControlPlane, folder: Path) -> int:
        return start_gangline(plane.kubeconfig, folder, processes, gangline_profiles.read("gpu-scheduler"))()

    try:
        vs_kube_gangs.compare(nodes, pods, runs, {"kube": kube, "gpu-scheduler": gangline})
    finally:
        for process in processes:
            process.terminate()
            process.wait(30)


@click.command()
@click.option(
    "--workload", type=click.Choice(["pods", "gang", "claims", "claims-match"]), default="pods", show_default=True
)
@click.option("--nodes", default=5000, show_default=True)
@click.option("--pods", type=int, help="5000, or 512 in the gang.")
@click.option("--runs", default=1, show_default=True)
def main(workload: str, nodes: int, pods: int | None, runs: int) -> None:
    """Measure and print."""
    if workload == "gang":
        compare_gangs(nodes, pods or 512, runs)
    else:
        compare_pods(workload, nodes, pods or 5000, runs)


def compare_pods(workload: str, nodes: int, pods: int, runs: int) -> None:
    """Many pods that have nothing to do with each other."""
    results: dict[str, list[Result]] = {"kube": [], "gangline": []}
    for number in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            pair = asyncio.run(one_run(workload, nodes, pods, ("kube", "gangline")[number % 2], Path(folder)))
            for result in pair:
                results[result.scheduler].append(result)
                print(f"run {number + 1}: {result}", file=sys.stderr)
    table = Table("", "kube-scheduler", "Gangline", "ratio", box=None)
    for title, of, form in (
        ("pods/s", lambda r: pods / r.seconds, "{:.0f}"),
        ("CPU ms per pod", lambda r: r.cpu / pods * 1e3, "{:.3f}"),
        ("peak RSS MiB", lambda r: r.rss / 2**20, "{:.0f}"),
    ):
        kube, ours = (statistics.median(map(of, results[name])) for name in ("kube", "gangline"))
        table.add_row(title, form.format(kube), form.format(ours), f"{ours / kube:.3f}")
    Console(width=100).print(f"{workload}: {nodes} nodes, {pods} pods, {runs} run(s), medians")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
