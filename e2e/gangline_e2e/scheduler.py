"""Run `gangline run` as a program of its own against a cluster: start, wait until ready, stop, kill."""

from __future__ import annotations

import http.client
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from gangline_e2e import processes
from gangline_e2e.api import Api
from gangline_e2e.errors import HarnessError, StartFailed
from gangline_e2e.ports import free_ports
from gangline_e2e.processes import NO_ENV, Process
from gangline_e2e.workloads import Manifest

START_S = 90.0
STOP_S = 30.0
POLL_S = 0.05
METRICS_S = 30.0
NAME = "gangline"
KNOWN_NODES = re.compile(r'^scheduler_scheduler_cache_size\{type="nodes"\} (\d+)', re.MULTILINE)


class Gangline:
    """One scheduler process, whose configuration file and log are in ``folder``.

    ``more`` are further options for the process, and ``env`` further variables. The process has to be ready within
    ``start_s`` seconds.

    As a context manager it starts on entry, and on exit it stops, if it runs still.
    """

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        config: Manifest,
        *,
        leader_elect: bool = False,
        python_path: Path | None = None,
        more: Sequence[str] = (),
        start_s: float = START_S,
        env: Mapping[str, str] = NO_ENV,
    ) -> None:
        self.config_file = folder / "config.yaml"
        self.log_file = folder / "gangline.log"
        self.output = self.log_file
        """The file to which the next process prints."""
        self._kubeconfig = kubeconfig
        self._leader_elect = leader_elect
        self._more = more
        self._start_s = start_s
        self.env = env
        """Environment variables for the next process."""
        self._python_path = python_path
        self._process: Process | None = None
        self.url = ""
        self.secure_url = ""
        folder.mkdir(parents=True, exist_ok=True)
        self.configure(config)

    def configure(self, config: Manifest | str) -> None:
        """Replace the configuration file at once, as the mount of a ConfigMap is replaced; text is written as it is."""
        text = config if isinstance(config, str) else yaml.safe_dump(config)
        new = self.config_file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.config_file)

    def start(self) -> None:
        """Start it and wait until /readyz answers 200; StartFailed shows the end of its log."""
        process = self.launch()
        deadline = time.monotonic() + self._start_s
        while not _answers(f"{self.url}/readyz"):
            if not process.alive() or time.monotonic() > deadline:
                why = "not ready in time" if process.alive() else "ended before it was ready"
                self.stop()
                raise StartFailed(f"{NAME}: {why}; {self.log_file} ends with:{processes.last_lines(self.log_file)}")
            time.sleep(POLL_S)

    def launch(self) -> Process:
        """Start it, and do not wait for anything."""
        if self.alive():
            raise HarnessError(f"{NAME}: runs already")
        listen, secure = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.url, self.secure_url = f"http://{listen}", f"https://{secure}"
        self._process = processes.start(NAME, self._command(listen, secure), self.output, self.env)
        return self._process

    def stop(self) -> None:
        """Stop it as a pod is stopped: SIGTERM, and SIGKILL if that does not end it. Fine if it has ended."""
        if self._process is not None:
            processes.stop([self._process], STOP_S)

    def kill(self) -> None:
        """End it by SIGKILL: it can tidy up nothing."""
        process = self._started()
        process.signal(signal.SIGKILL)
        if not process.wait(STOP_S):
            raise HarnessError(f"{NAME}: process {process.pid} survived SIGKILL for {STOP_S:g} s")

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.alive()

    @property
    def process(self) -> Process:
        """The process that was started last."""
        return self._started()

    def logs(self) -> str:
        """All that it has printed, over all starts."""
        return self.log_file.read_text(errors="replace") if self.log_file.is_file() else ""

    def metrics(self) -> str:
        """What it says at /metrics now."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=METRICS_S) as answer:
            text: str = answer.read().decode()
            return text

    def nodes(self) -> int:
        """How many nodes it knows of, as its metrics say."""
        found = KNOWN_NODES.search(self.metrics())
        return int(found[1]) if found is not None else 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _started(self) -> Process:
        if self._process is None:
            raise HarnessError(f"{NAME}: was not started")
        return self._process

    def _command(self, listen: str, secure: str) -> list[str]:
        env = ["env", f"PYTHONPATH={self._python_path}"] if self._python_path else []
        elect = "--leader-elect" if self._leader_elect else "--no-leader-elect"
        ports = ["--listen", listen, "--plain-metrics", "--secure-listen", secure]
        return [*env, *command(self.config_file, self._kubeconfig), *ports, *self._more, elect]


def command(config: Path, kubeconfig: Path) -> list[str]:
    """The words that run the scheduler of the interpreter at hand, without where it listens."""
    return [sys.executable, "-m", "gangline", "run", "--config", str(config), "--kubeconfig", str(kubeconfig)]


def configuration(*profiles: Manifest, **settings: Any) -> Manifest:
    """A KubeSchedulerConfiguration; ``settings`` are top-level fields by their names in the file."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": list(profiles),
        **settings,
    }


def election(api: Api, name: str, lease_s: float, retry_s: float = 1.0, renew_s: float | None = None) -> Manifest:
    """Settings of a leader election for the lease of this name in the namespace of ``api``; a leader tries to renew it
    for three quarters of its time unless ``renew_s`` says otherwise.
    """
    return {
        "leaderElect": True,
        "leaseDuration": f"{lease_s:g}s",
        "renewDeadline": f"{0.75 * lease_s if renew_s is None else renew_s:g}s",
        "retryPeriod": f"{retry_s:g}s",
        "resourceNamespace": api.namespace,
        "resourceName": name,
    }


def profile(name: str, *, enabled: Sequence[Manifest] = (), args: Mapping[str, Manifest] | None = None) -> Manifest:
    """A profile with the default plugins, more that are ``enabled`` at every point, and arguments by plugin."""
    made: Manifest = {"schedulerName": name}
    if enabled:
        made["plugins"] = {"multiPoint": {"enabled": [dict(plugin) for plugin in enabled]}}
    if args:
        made["pluginConfig"] = [{"name": plugin, "args": dict(values)} for plugin, values in args.items()]
    return made


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False
