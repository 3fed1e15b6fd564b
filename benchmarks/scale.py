"""A very large cluster: how long `gangline run` takes to start, how much memory it needs, and how long pods wait.

    python benchmarks/scale.py [--nodes 100000] [--pods 500000] [--waiting 100] [--seconds 30] [--unschedulable 100000]

The API server is played by a process that has nodes and pods as bytes: 600,000 objects in a real one, with etcd, need
more than a small machine has. The scheduler is the installed program with the default profile, and everything between
the two is HTTP. See README.md for the lines of the table.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import yaml
from rich.console import Console
from rich.table import Table

from gangline_e2e.ports import free_port
from gangline_e2e.processes import usage
from vs_kube.schedulers import GANGLINE

CHANGED_PER_MINUTE = 0.1
"""The share of the nodes that changes each minute."""
KNOWN, NEW = 100.0, 5.0
"""Pods each second of one class, and of a class of their own."""
Rows = list[tuple[str, str]]


class Played:
    """The process that plays the API server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def order(self, *words: object) -> dict[str, float]:
        """Give an order, and wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        return await self.line()

    async def line(self) -> dict[str, float]:
        """The next line of the process."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the played API server has ended")
        found: dict[str, float] = json.loads(line)
        return found


@asynccontextmanager
async def _process(*command: str, log: Path | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process with pipes, until the block ends; its errors go to a file or to ours."""
    stderr = log.open("ab") if log is not None else None
    pipe, environment = asyncio.subprocess.PIPE, {**os.environ, "OMP_NUM_THREADS": "1"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command), stdin=pipe, stdout=pipe, stderr=stderr, env=environment, cwd=Path(__file__).parent
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if stderr is not None:
            stderr.close()


async def measure(nodes: int, pods: int, waiting: int, seconds: float, unschedulable: int, folder: Path) -> Rows:
    """All rows of the table."""
    sizes = map(str, (nodes, pods, waiting))
    async with _process("-m", "scaling.server", *sizes) as server:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        command = _command(folder, port)
        began = time.monotonic()
        async with _process(*command, log=folder / "gangline.log") as scheduler:
            played, pid = Played(server), scheduler.pid
            rows = _start(began, await played.line(), pid)
            rows += await _churn(played, nodes, seconds, pid)
            began, before = time.monotonic(), usage(pid).cpu_s
            await played.order("unschedulable", unschedulable)
            until_idle = await _idle(pid) - began
            spent = f"{until_idle:.0f} s, {usage(pid).cpu_s - before:.0f} s of CPU"
            rows.append((f"{unschedulable:,} pods come that fit nowhere: until all are told so", spent))
            waits = await played.order("delete", seconds / 3)
            rows.append(("created to bound while they wait, and a pod is deleted each second", _spelt(waits)))
            rows.append(("peak memory", f"{usage(pid).peak_rss_bytes / 2**30:.2f} GiB"))
            return rows


def _command(folder: Path, port: int) -> list[str]:
    """The scheduler's command, with files for it."""
    config, kubeconfig = folder / "config.yaml", folder / "kubeconfig"
    config.write_text(GANGLINE)
    entries = {
        "current-context": "large",
        "contexts": [{"name": "large", "context": {"cluster": "large", "user": "me"}}],
        "clusters": [{"name": "large", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "me", "user": {}}],
    }
    kubeconfig.write_text(yaml.safe_dump(entries))
    files = ["--config", str(config), "--kubeconfig", str(kubeconfig), "--no-leader-elect"]
    return ["-m", "gangline", "run", *files, "--listen", f"127.0.0.1:{free_port()}", "--secure-listen", ""]


def _start(began: float, first: dict[str, float], pid: int) -> Rows:
    used = usage(pid)
    return [
        ("from the start of the process to the first binding", f"{first['at'] - began:.1f} s"),
        ("CPU until then", f"{used.cpu_s:.1f} s"),
        ("memory until then, at its peak", f"{used.peak_rss_bytes / 2**30:.2f} GiB"),
    ]


async def _churn(played: Played, nodes: int, seconds: float, pid: int) -> Rows:
    before, node_rate = usage(pid).cpu_s, nodes * CHANGED_PER_MINUTE / 60
    waits = await played.order("churn", seconds, node_rate, KNOWN, NEW)
    cores = (usage(pid).cpu_s - before) / seconds
    return [
        (f"{node_rate:.0f} nodes change, {KNOWN + NEW:.0f} pods come each second: CPU", f"{cores:.0%} of a core"),
        ("created to bound: p50, p99, max", _spelt(waits)),
    ]


async def _idle(pid: int) -> float:
    """Wait until the scheduler has nothing to do: under a tenth of a core for a second; returns the time then."""
    used = usage(pid).cpu_s
    while True:
        await asyncio.sleep(1)
        before, used = used, usage(pid).cpu_s
        if used - before < 0.1:
            return time.monotonic()


def _spelt(waits: dict[str, float]) -> str:
    return ", ".join(f"{waits[key] * 1e3:.0f} ms" for key in ("p50", "p99", "max"))


@click.command()
@click.option("--nodes", default=100_000, show_default=True)
@click.option("--pods", default=500_000, show_default=True, help="Pods that run.")
@click.option("--waiting", default=100, show_default=True, help="Pods that wait when the scheduler starts.")
@click.option("--seconds", default=30.0, show_default=True, help="How long nodes change and pods come.")
@click.option("--unschedulable", default=100_000, show_default=True, help="Pods that fit nowhere, in the end.")
def main(nodes: int, pods: int, waiting: int, seconds: float, unschedulable: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(nodes, pods, waiting, seconds, unschedulable, Path(folder)))
    table = Table(f"{nodes:,} nodes, {pods:,} pods", "", box=None)
    for row in rows:
        table.add_row(*row)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
