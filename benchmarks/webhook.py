"""Latency of the webhook over TLS at a fixed rate of requests, from several client connections.

    python benchmarks/webhook.py [--rate 500] [--seconds 10] [--clients 8] [--runs 5]

The load is open: each request has its time, and its latency counts from then on, so that a server that falls behind is
not spared the requests that it delays. Half of the reviews are pods with a claim, half pods with a map, each of two
containers and an init container, as large as the API server sends them. The server is a process of its own; client and
server share the machine. The last line is the median of the runs.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import ssl
import statistics
import sys
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click
import uvloop
from rich.console import Console
from rich.table import Table

from gangline_e2e import processes
from gangline_e2e.certificates import Authority
from gangline_e2e.errors import StartFailed
from gangline_e2e.ports import free_ports

WARM_UP = 200
START_S = 30.0
FIELDS = [
    {"manager": "kube-controller-manager", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}}
]


@dataclass(frozen=True, slots=True)
class Run:
    """Latencies in seconds, sorted; how many failed; how long it took; what the server used."""

    latencies: list[float]
    failed: int
    seconds: float
    cpu_s: float
    peak_rss_bytes: int

    def quantile(self, part: float) -> float:
        """In milliseconds."""
        return self.latencies[min(int(len(self.latencies) * part), len(self.latencies) - 1)] * 1e3

    def row(self) -> list[float]:
        """Requests per second; p50, p90, p99 and the longest in milliseconds; the server's cores and MiB; failures."""
        quantiles = [self.quantile(part) for part in (0.5, 0.9, 0.99, 1.0)]
        server = [self.cpu_s / self.seconds, self.peak_rss_bytes / 2**20]
        return [len(self.latencies) / self.seconds, *quantiles, *server, float(self.failed)]


def reviews() -> list[bytes]:
    """One of a pod with a claim, one of a pod with a map."""
    annotations = [{"gpu.scheduling/claim": "train"}, {"gpu-scheduling-map": "0=node1:0,1\n1=node2:2\n2=node3:0,1,2"}]
    return [json.dumps(review(number, each)).encode() for number, each in enumerate(annotations)]


def review(number: int, annotations: dict[str, str]) -> dict[str, Any]:
    """A review of a new pod."""
    mounts = [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}]
    container = {
        "image": "registry.example.com/team/train:1.2.3",
        "args": ["--epochs", "10", "--data", "/data"],
        "env": [{"name": f"SETTING_{i}", "value": "a value of ordinary length"} for i in range(12)],
        "resources": {"limits": {"cpu": "8", "memory": "64Gi"}, "requests": {"cpu": "8", "memory": "64Gi"}},
        "volumeMounts": mounts,
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"train-{number}",
            "namespace": "team",
            "creationTimestamp": None,
            "labels": {f"example.com/label-{i}": "value" for i in range(6)},
            "annotations": annotations,
            "managedFields": FIELDS,
        },
        "spec": {
            "schedulerName": "gpu-scheduler",
            "containers": [{"name": "main", **container}, {"name": "side", **container}],
            "initContainers": [{"name": "setup", **container}],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        },
        "status": {},
    }
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {
        "uid": f"705ab4f5-6393-11e8-b7cc-42010a80000{number}",
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": kind,
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:job-controller",
            "groups": ["system:authenticated"],
        },
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


class Load:
    """Clients of one webhook, and what they have seen: latencies in seconds, and how many requests failed."""

    def __init__(self, url: str, tls: ssl.SSLContext, clients: int) -> None:
        self.latencies: list[float] = []
        self.failed = 0
        self._url = url
        self._sessions = [
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, limit=4)) for _ in range(clients)
        ]
        self._bodies = reviews()
        self._clock = asyncio.get_running_loop().time

    async def warm_up(self) -> None:
        """Every connection is open and every code path has run; what was seen is forgotten."""
        async with asyncio.TaskGroup() as group:
            for number in range(WARM_UP):
                group.create_task(self._ask(number, self._clock()))
        self.latencies.clear()
        gc.collect()
        gc.freeze()

    async def run(self, rate: float, seconds: float) -> float:
        """Requests at the times of a Poisson process; returns how many seconds that took."""
        started = due = self._clock()
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                due += random.expovariate(rate)
                await asyncio.sleep(due - self._clock())
                group.create_task(self._ask(number, due))
        return self._clock() - started

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions:
            await session.close()

    async def _ask(self, number: int, due: float) -> None:
        body = self._bodies[number % len(self._bodies)]
        async with self._sessions[number % len(self._sessions)].post(self._url, data=body) as answer:
            text = await answer.read()
            self.failed += answer.status != 200 or b'"patch"' not in text
        self.latencies.append(self._clock() - due)


async def measure(folder: Path, rate: float, seconds: float, clients: int) -> Run:
    """One run against a webhook of its own."""
    authority = Authority(folder / "pki", "authority")
    pair = authority.server("webhook")
    port, health = free_ports(2)
    files = [f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}", "--no-claims"]
    places = [f"--addr=127.0.0.1:{port}", f"--listen=127.0.0.1:{health}", "--secure-listen="]
    command = [sys.executable, "-m", "gangline", "webhook", *files, *places]
    process = processes.start("webhook", command, folder / "webhook.log")
    try:
        await until_ready(process, f"http://127.0.0.1:{health}/readyz", folder / "webhook.log")
        tls = ssl.create_default_context(cafile=authority.certificate)
        load = Load(f"https://127.0.0.1:{port}/mutate", tls, clients)
        await load.warm_up()
        before = process.usage().cpu_s
        took = await load.run(rate, seconds)
        used = process.usage()
        await load.close()
        return Run(sorted(load.latencies), load.failed, took, used.cpu_s - before, used.peak_rss_bytes)
    finally:
        processes.stop([process], 10)


async def until_ready(process: processes.Process, url: str, log: Path) -> None:
    """Returns when the server answers; StartFailed if it does not."""
    async with asyncio.timeout(START_S):
        while True:
            if await asyncio.to_thread(answers, url):
                return
            if not process.alive():
                raise StartFailed(f"webhook: ended{processes.last_lines(log)}")
            await asyncio.sleep(0.05)


def answers(url: str) -> bool:
    """Whether it answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@click.command()
@click.option("--rate", default=500.0, show_default=True, help="Requests per second.")
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--clients", default=8, show_default=True, help="Clients with connections of their own.")
@click.option("--runs", default=5, show_default=True)
def main(rate: float, seconds: float, clients: int, runs: int) -> None:
    """Measure and print."""
    table = Table("run", "requests/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "cores", "MiB", "failed", box=None)
    rows = []
    for number in range(runs):
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows.append(runner.run(measure(Path(folder), rate, seconds, clients)).row())
        table.add_row(str(number + 1), *formatted(rows[-1]))
    table.add_row("median", *formatted([statistics.median(column) for column in zip(*rows, strict=True)]))
    Console(width=100).print(table)


def formatted(row: list[float]) -> list[str]:
    """The numbers of a row as text."""
    return [f"{row[0]:.0f}", *(f"{value:.2f}" for value in row[1:6]), *(f"{value:.0f}" for value in row[6:])]


if __name__ == "__main__":
    main()
