"""Replicas of the scheduler behind their gates: this module starts them, says who leads, and starts those that end."""

from __future__ import annotations

import asyncio
import re
import signal
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path

import yaml

from gangline.errors import LeadershipLost
from gangline_chaos import skewing
from gangline_chaos.network import Gate
from gangline_e2e import processes
from gangline_e2e.errors import StartFailed
from gangline_e2e.processes import NO_ENV
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest

LEADS = re.compile(r"^leader_election_master_status\{.*\} 1\.0$", re.MULTILINE)
PATIENCE_S = 0.5
RESTART_S = 0.3
"""Seconds between two looks at the processes."""
STOP_S = 15.0
FULL = Path("/dev/full")
"""A file to which each write fails, as on a full disk."""
Ended = Callable[[str, str], None]
"""Called with the name of a replica that has ended by itself, and how it has ended."""


class Replica:
    """One scheduler."""

    def __init__(self, name: str, scheduler: Gangline, gate: Gate, clock: Path) -> None:
        self.name = name
        self.gate = gate
        self.clock = clock
        """The file that says how far its wall clock is off."""
        self.scheduler = scheduler
        self.is_expected_to_end = False
        """The process is stopped or killed, or kills itself at a failpoint."""

    def leads(self) -> bool:
        """Whether the process says in its metrics that it leads; False if it does not answer."""
        if not self.scheduler.alive():
            return False
        try:
            with urllib.request.urlopen(f"{self.scheduler.url}/metrics", timeout=PATIENCE_S) as answer:
                return LEADS.search(answer.read().decode()) is not None
        except (OSError, HTTPException):
            return False

    def is_ready(self) -> bool:
        """Whether it has listed everything that it watches."""
        if not self.scheduler.alive():
            return False
        try:
            with urllib.request.urlopen(f"{self.scheduler.url}/readyz", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except (OSError, HTTPException):
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        self.scheduler.process.signal(number)

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self.is_expected_to_end = True
        self.signal(signal.SIGKILL)
        self.scheduler.process.wait(STOP_S)

    def start(self, env: Mapping[str, str] = NO_ENV, is_full: bool = False) -> None:
        """Start the process; with failpoints in its environment it may end by SIGKILL. `is_full`: it cannot log."""
        self.scheduler.env = {**env, skewing.VARIABLE: str(self.clock)}
        self.scheduler.output = FULL if is_full else self.scheduler.log_file
        self.is_expected_to_end = bool(env)
        self.scheduler.launch()

    def ending(self) -> str:
        """How the process has ended by itself; "" if that is in order."""
        process = self.scheduler.process
        code = process.popen.returncode if process.popen is not None else None
        is_full = self.scheduler.output == FULL
        last = "it could not log" if is_full else processes.last_lines(self.scheduler.log_file, 1).strip()
        if code == LeadershipLost.exit_code or (self.is_expected_to_end and code in (0, -signal.SIGKILL)):
            return ""
        return f"exit {code}: {last[:500]}"


class Replicas:
    """All schedulers."""

    def __init__(
        self, kubeconfig: Path, folder: Path, config: Manifest, gates: list[Gate], ended: Ended, elect: bool = True
    ) -> None:
        startup = skewing.prepare(folder / "startup")
        self.each = [
            _replica(f"scheduler-{n}", kubeconfig, folder, config, gate, startup, elect) for n, gate in enumerate(gates)
        ]
        self.restarts = 0
        self._elect = elect
        self._ended = ended
        self._held: set[str] = set()
        """Replicas that a fault keeps from being started."""

    async def run(self) -> None:
        """Start them, and start anew what ends, as a kubelet does, until cancelled."""
        try:
            for replica in self.each:
                if replica.name not in self._held:
                    replica.start()
            while True:
                await asyncio.sleep(RESTART_S)
                for replica in self.each:
                    if replica.name not in self._held and not replica.scheduler.alive():
                        self.ended(replica)
                        replica.start()
                        self.restarts += 1
        finally:
            running = [replica.scheduler.process for replica in self.each if replica.scheduler.alive()]
            for process in running:
                process.signal(signal.SIGCONT)
            await asyncio.to_thread(processes.stop, running, STOP_S)

    def ended(self, replica: Replica) -> None:
        """A process has ended: report this, unless it was expected."""
        if why := replica.ending():
            self._ended(replica.name, why)

    def hold(self, replica: Replica) -> None:
        """Do not start this replica again while a fault keeps it down."""
        self._held.add(replica.name)

    def release(self, replica: Replica) -> None:
        """Start this replica again, now or whenever it ends."""
        self._held.discard(replica.name)

    async def leader(self, within_s: float = 60.0, among: Sequence[Replica] | None = None) -> Replica:
        """The replica that leads, once one does; without an election the first one that is ready."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    for replica in among or self.each:
                        if await asyncio.to_thread(replica.leads if self._elect else replica.is_ready):
                            return replica
                    await asyncio.sleep(RESTART_S)
        except TimeoutError as error:
            logs = [processes.last_lines(replica.scheduler.log_file) for replica in self.each]
            raise StartFailed(f"no scheduler leads after {within_s:g} s; their logs end with: {logs}") from error

    async def pair(self) -> tuple[Replica, Replica]:
        """The replica that leads, and one that does not."""
        leader = await self.leader()
        return leader, next(replica for replica in self.each if replica is not leader)

    def tracebacks(self) -> dict[str, str]:
        """The last traceback in the log of each replica that has one."""
        found = {}
        for replica in self.each:
            before, mark, after = replica.scheduler.logs().rpartition("Traceback (most recent call last)")
            if mark:
                found[replica.name] = f"{before[-300:]}{mark}{after[:3000]}"
        return found


def _replica(
    name: str, kubeconfig: Path, folder: Path, config: Manifest, gate: Gate, startup: Path, elect: bool
) -> Replica:
    """A scheduler that reaches the API server through a gate, and whose clock can be shifted."""
    access = yaml.safe_load(kubeconfig.read_text())
    for cluster in access["clusters"]:
        cluster["cluster"]["server"] = f"https://127.0.0.1:{gate.port}"
    path = folder / f"{name}.kubeconfig"
    path.write_text(yaml.safe_dump(access))
    path.chmod(0o600)
    clock = folder / f"{name}.clock"
    skewing.shift(clock, 0.0)
    scheduler = Gangline(path, folder / name, config, leader_elect=elect, python_path=startup)
    return Replica(name, scheduler, gate, clock)
