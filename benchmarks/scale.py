"""A very large cluster: how long `gangline run` takes to start, how much memory it needs, and how long pods wait.

    python benchmarks/scale.py [--nodes 100000] [--pods 500000] [--waiting 100] [--seconds 30] [--unschedulable 100000]
                               [--no-process] [--no-decisions] [--profile-cpu FILE]

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
from dataclasses import dataclass
from pathlib import Path

import click
import yaml
from rich.console import Console
from rich.table import Table

from gangline.process.memory import keep_memory
from gangline_e2e.ports import free_port
from gangline_e2e.processes import usage
from scaling.deciding import decisions, gangs
from scaling.waiting import deletions
from scaling.watched import turns
from vs_kube.schedulers import GANGLINE

CHANGED_PER_MINUTE = 0.1
"""The share of the nodes that changes each minute."""
KNOWN, NEW = 100.0, 5.0
"""Pods each second of one class, and of a class of their own."""
AT_REST = 10.0
"""Seconds for which a scheduler is watched that has nothing to do."""
TURNS = "turns"
"""The file with the long turns of the loop."""
Rows = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the cluster has."""

    nodes: int
    pods: int
    waiting: int
    unschedulable: int


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


class Watched:
    """The scheduler's process: what it has used, and how long the turns of its loop took."""

    def __init__(self, pid: int, long_turns: Path) -> None:
        self._pid = pid
        self._long_turns = long_turns
        self._since = 0.0
        self._cpu = 0.0

    def begin(self) -> None:
        """Measure from now on."""
        self._since, self._cpu = time.monotonic(), self.cpu

    @property
    def cpu(self) -> float:
        """The CPU seconds of the process."""
        return usage(self._pid).cpu_s

    @property
    def spent(self) -> float:
        """The CPU seconds since `begin`."""
        return self.cpu - self._cpu

    @property
    def memory(self) -> str:
        """The most memory of the process until now."""
        return f"{usage(self._pid).peak_rss_bytes / 2**30:.2f} GiB"

    def longest(self) -> tuple[str, str]:
        """A row: the longest turns since `begin`."""
        found = sorted(turns(self._long_turns, self._since), reverse=True)[:3]
        return "    longest turns of the loop, in CPU time", ", ".join(f"{each * 1e3:.0f} ms" for each in found) or "-"

    async def until_idle(self) -> float:
        """Wait until the scheduler has nothing to do: under a tenth of a core for a second; returns the time then."""
        used = self.cpu
        while True:
            await asyncio.sleep(1)
            before, used = used, self.cpu
            if used - before < 0.1:
                return time.monotonic()


async def measure(cluster: Sizes, seconds: float, folder: Path, profile_cpu: Path | None) -> Rows:
    """The rows about a whole process."""
    sizes = map(str, (cluster.nodes, cluster.pods, cluster.waiting))
    async with _process("-m", "scaling.server", *sizes) as server:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        command = _command(folder, port, profile_cpu)
        began = time.monotonic()
        async with _process(*command, log=folder / "gangline.log") as scheduler:
            played, watched = Played(server), Watched(scheduler.pid, folder / TURNS)
            rows = _start(began, await played.line(), watched)
            rows += await _churn(played, cluster.nodes, seconds, watched)
            rows += await _unschedulable(played, cluster.unschedulable, seconds, watched)
            return [*rows, ("peak memory", watched.memory)]


def _command(folder: Path, port: int, profile_cpu: Path | None) -> list[str]:
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
    (folder / TURNS).touch()
    files += ["--profile-cpu", str(profile_cpu)] if profile_cpu else []
    run = ["-m", "scaling.watched", str(folder / TURNS), "run", *files]
    return [*run, "--listen", f"127.0.0.1:{free_port()}", "--secure-listen", ""]


def _start(began: float, first: dict[str, float], watched: Watched) -> Rows:
    return [
        ("from the start of the process to the first binding", f"{first['at'] - began:.1f} s"),
        ("    CPU until then", f"{watched.cpu:.1f} s"),
        ("    memory until then, at its peak", watched.memory),
        watched.longest(),
    ]


async def _churn(played: Played, nodes: int, seconds: float, watched: Watched) -> Rows:
    watched.begin()
    node_rate = nodes * CHANGED_PER_MINUTE / 60
    waits = await played.order("churn", seconds, node_rate, KNOWN, NEW)
    cores = watched.spent / seconds
    return [
        (f"{node_rate:.0f} nodes change, {KNOWN + NEW:.0f} pods come each second: CPU", f"{cores:.0%} of a core"),
        ("    created to bound: p50, p99, max", _spelt(waits)),
        watched.longest(),
    ]


async def _unschedulable(played: Played, pods: int, seconds: float, watched: Watched) -> Rows:
    watched.begin()
    began = time.monotonic()
    await played.order("unschedulable", pods)
    until_idle = await watched.until_idle() - began
    rows = [
        (f"{pods:,} pods come that fit nowhere: until all are told so", f"{until_idle:.0f} s"),
        ("    CPU until then", f"{watched.spent:.0f} s"),
        watched.longest(),
    ]
    watched.begin()
    await asyncio.sleep(AT_REST)
    rows += [("at rest while they wait: CPU", f"{watched.spent / AT_REST:.1%} of a core"), watched.longest()]
    watched.begin()
    waits = await played.order("delete", seconds / 3)
    cores = watched.spent / (seconds / 3)
    return [
        *rows,
        ("a pod is deleted each second, and 20 others come: CPU", f"{cores:.0%} of a core"),
        ("    pods that got the room of a deleted pod", f"{waits['filled']:.0f} of {waits['deleted']:.0f}"),
        ("    created to bound: p50, p99, max", _spelt(waits)),
        watched.longest(),
    ]


def _spelt(waits: dict[str, float]) -> str:
    return ", ".join(f"{waits[key] * 1e3:.0f} ms" for key in ("p50", "p99", "max"))


@click.command()
@click.option("--nodes", default=100_000, show_default=True)
@click.option("--pods", default=500_000, show_default=True, help="Pods that run.")
@click.option("--waiting", default=100, show_default=True, help="Pods that wait when the scheduler starts.")
@click.option("--seconds", default=30.0, show_default=True, help="How long nodes change and pods come.")
@click.option("--unschedulable", default=100_000, show_default=True, help="Pods that fit nowhere, in the end.")
@click.option("--profile-cpu", type=click.Path(path_type=Path), help="See the option of gangline run.")
@click.option("--process/--no-process", "whole", default=True, help="Measure a whole process, too.")
@click.option("--decisions/--no-decisions", "parts", default=True, help="Measure decisions alone, too.")
def main(
    nodes: int,
    pods: int,
    waiting: int,
    seconds: float,
    unschedulable: int,
    profile_cpu: Path | None,
    whole: bool,
    parts: bool,
) -> None:
    """Measure and print."""
    keep_memory()  # as `gangline run` does
    rows: Rows = [*decisions(nodes), *gangs(), *deletions(unschedulable)] if parts else []
    if whole:
        with tempfile.TemporaryDirectory() as folder:
            sizes = Sizes(nodes, pods, waiting, unschedulable)
            rows += asyncio.run(measure(sizes, seconds, Path(folder), profile_cpu))
    table = Table(f"{nodes:,} nodes, {pods:,} pods", "", box=None)
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
