"""Run a real control plane on 127.0.0.1: etcd, kube-apiserver, kwok and, if asked, the controllers.

Everything it makes stands in one folder: pki/ (keys and certificates), etcd/ (the data), logs/ (one
file per component) and kubeconfig files. It stops what it started and nothing else, also when a
start fails halfway.
"""

from __future__ import annotations

import http.client
import shutil
import signal
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import NoReturn, Self

from gangline_e2e import binaries, certificates, commands, kubeconfig, processes
from gangline_e2e.errors import HarnessError, StartFailed
from gangline_e2e.ports import free_port, free_ports
from gangline_e2e.processes import NO_ENV, Process

START_S = 120.0
STOP_S = 30.0
POLL_S = 0.05
ADMINS = "system:masters"
CORE = ("etcd", "kube-apiserver")
LARGE_HEAP: Mapping[str, str] = MappingProxyType({"GOGC": "300", "GOMEMLIMIT": "4GiB"})
"""Makes Go collect garbage less often: there is enough memory, and the two cores have other work."""
LARGEST_HEAP: Mapping[str, str] = MappingProxyType({"GOGC": "800", "GOMEMLIMIT": "6GiB"})
"""For one large cluster that is alone on the machine, and then takes some 8 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The components that run beside etcd and kube-apiserver, and further arguments for each command line.

    A flag given again overrides the harness's value: feature gates, for example, are
    ``apiserver_args=("--feature-gates=GenericWorkload=true",)``.
    """

    kwok: bool = True
    controller_manager: bool = False
    etcd_args: tuple[str, ...] = ()
    apiserver_args: tuple[str, ...] = ()
    controller_manager_args: tuple[str, ...] = ()
    kwok_args: tuple[str, ...] = ()
    heap: Mapping[str, str] = field(default_factory=lambda: LARGE_HEAP, hash=False)
    """Environment variables for the garbage collector of Go."""


class ControlPlane:
    """One control plane in ``folder``, which must not hold another one's data.

    As a context manager it starts on entry, and on exit stops and drops the data; logs stay.
    """

    def __init__(
        self,
        folder: Path,
        options: Options | None = None,
        programs: binaries.Binaries | None = None,
    ) -> None:
        self.folder = folder
        self.options = options or Options()
        self.kubeconfig = folder / "kubeconfig"
        self.has_service_accounts = self.options.controller_manager
        self._programs = programs or binaries.find()
        self._ports = commands.Ports(*free_ports(5))
        self._authority: certificates.Authority | None = None
        self._secrets: commands.Secrets | None = None
        self._running: dict[str, Process] = {}

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self._ports.apiserver}"

    @property
    def etcd_url(self) -> str:
        """Where etcd listens; `tls_for` has the certificate that it asks for."""
        return f"https://127.0.0.1:{self._ports.etcd}"

    @property
    def processes(self) -> dict[str, Process]:
        """What was started and not stopped, by name, in the order of starting."""
        return dict(self._running)

    def start(self) -> None:
        """Start every component and wait until each is ready; StartFailed shows the end of its log.

        After ``stop`` it starts again on the same ports with the same data.
        """
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._prepare()
            for component in self._wanted():
                self._start_core(component)
            undo.pop_all()

    def stop(self) -> None:
        """Stop everything that was started: the clients first, then the API server, then etcd."""
        clients = [process for name, process in self._running.items() if name not in CORE]
        core = [self._running[name] for name in reversed(CORE) if name in self._running]
        try:
            processes.stop(clients, STOP_S)
            for process in core:
                processes.stop([process], STOP_S)
        finally:
            self._running = {name: left for name, left in self._running.items() if left.alive()}

    def close(self) -> None:
        """Stop, and drop the data, the keys and the kubeconfig files; the logs stay."""
        self.stop()
        drop_data(self.folder)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def kill(self, name: str) -> None:
        """Kill a component with SIGKILL and wait until it is gone."""
        process = self._running.pop(name)
        process.signal(signal.SIGKILL)
        if not process.wait(STOP_S):
            raise HarnessError(f"{name}: process {process.pid} survived SIGKILL for {STOP_S:g} s")

    def restart_apiserver(self) -> None:
        """Kill the API server, if it runs, and start it on the same port with the same data."""
        self.restart("kube-apiserver")

    def restart(self, name: str) -> None:
        """Kill a component of the control plane, if it runs, and start it on the same port with the same data."""
        if name in self._running:
            self.kill(name)
        self._start_core(name)

    def start_component(
        self, name: str, args: Sequence[str], ready_url: str | None = None, env: Mapping[str, str] = NO_ENV
    ) -> Process:
        """Start one of the built programs, for example a kube-scheduler, until ``stop``.

        With ``ready_url`` it waits until that address answers 200. ``env`` is that of `processes.start`.
        """
        if name in self._running:
            raise HarnessError(f"{name}: runs already")
        command = [str(self._programs.path(name)), *args]
        process = processes.start(name, command, self._log(name), env)
        self._running[name] = process
        if ready_url is not None:
            self._await(process, lambda: self._answers(ready_url))
        return process

    def start_scheduler(self, args: Sequence[str] = ()) -> Process:
        """Start kube-scheduler under its own identity and wait until it is healthy."""
        port = free_port()
        config = self.kubeconfig_for("system:kube-scheduler")
        words = [*commands.scheduler(config, port, self._made()), *args]
        return self.start_component("kube-scheduler", words, f"https://127.0.0.1:{port}/healthz")

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """The path of a new kubeconfig for a user with a fresh client certificate."""
        if self._authority is None:
            raise HarnessError(f"{self.folder}: the control plane was not started")
        name = user.replace("/", "-").replace(":", "-")
        client = self._authority.client(name, user, groups)
        path = self.kubeconfig if groups == (ADMINS,) else self.folder / f"{name}.kubeconfig"
        kubeconfig.write(path, self.url, self._authority.certificate, client, user)
        return path

    def logs(self, name: str) -> str:
        """All that a component has printed so far."""
        log = self._log(name)
        return log.read_text(errors="replace") if log.is_file() else ""

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def _prepare(self) -> None:
        """Make the keys and the admin's kubeconfig, once."""
        if self._authority is not None:
            return
        pki = self.folder / "pki"
        if pki.exists():
            raise HarnessError(f"{self.folder}: holds another control plane's data")
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        pki.mkdir(mode=0o700)
        self._authority = certificates.Authority(pki, "kubernetes-ca")
        etcd_authority = certificates.Authority(pki, "etcd-ca")
        self._secrets = commands.Secrets(
            etcd_authority=etcd_authority.certificate,
            etcd=etcd_authority.server("etcd"),
            authority=self._authority.certificate,
            server=self._authority.server("server"),
            service_accounts=certificates.signing_key(pki, "service-accounts"),
        )
        self.kubeconfig_for("admin", (ADMINS,))

    def _wanted(self) -> list[str]:
        wanted: list[str] = [*CORE]
        if self.options.controller_manager:
            wanted.append("kube-controller-manager")
        if self.options.kwok:
            wanted.append("kwok")
        return wanted

    def _start_core(self, name: str) -> None:
        """Start one component of our own and wait until it is ready."""
        args, ready = self._command(name)
        process = self.start_component(name, args, ready, self.options.heap)
        if name == "kube-apiserver":
            namespace = f"{self.url}/api/v1/namespaces/default"
            self._await(process, lambda: self._answers(namespace))

    def _command(self, name: str) -> tuple[list[str], str]:
        """The arguments of one of our components, and the address that answers when it is ready."""
        secrets, ports, options = self._made(), self._ports, self.options
        match name:
            case "etcd":
                args = [*commands.etcd(self.folder / "etcd", ports, secrets), *options.etcd_args]
                return args, f"https://127.0.0.1:{ports.etcd}/health"
            case "kube-apiserver":
                args = commands.apiserver(ports, secrets, service_accounts=self.has_service_accounts)
                return [*args, *options.apiserver_args], f"{self.url}/readyz"
            case "kube-controller-manager":
                config = self.kubeconfig_for("system:kube-controller-manager")
                args = commands.controller_manager(config, ports, secrets)
                ready = f"https://127.0.0.1:{ports.controller_manager}/healthz"
                return [*args, *options.controller_manager_args], ready
            case "kwok":
                args = [*commands.kwok(self.kubeconfig, ports), *options.kwok_args]
                return args, f"http://127.0.0.1:{ports.kwok}/healthz"
        raise HarnessError(f"{name}: not a component of the control plane")

    def _made(self) -> commands.Secrets:
        if self._secrets is None:
            raise HarnessError(f"{self.folder}: the control plane was not started")
        return self._secrets

    def _await(self, process: Process, ready: Callable[[], bool]) -> None:
        """Wait until a started component is ready; StartFailed if it ends or takes too long."""
        deadline = time.monotonic() + START_S
        while not ready():
            if not process.alive():
                self._give_up(process, "ended before it was ready")
            if time.monotonic() > deadline:
                self._give_up(process, f"not ready after {START_S:g} s")
            time.sleep(POLL_S)

    def _give_up(self, process: Process, why: str) -> NoReturn:
        log = self._log(process.name)
        end = processes.last_lines(log)
        raise StartFailed(f"{process.name}: {why}; {log} ends with:{end}")

    def _answers(self, url: str) -> bool:
        """Whether an address answers 200 to this control plane's administrator."""
        try:
            context = None if url.startswith("http:") else self.tls_for(url)
            with urllib.request.urlopen(url, timeout=2, context=context) as answer:
                return bool(answer.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def tls_for(self, url: str) -> ssl.SSLContext:
        """How this control plane's administrator connects to one of its addresses; to etcd as the API server does."""
        secrets = self._made()
        pki = self.folder / "pki"
        if url.startswith(f"{self.etcd_url}/") or url == self.etcd_url:
            context = ssl.create_default_context(cafile=secrets.etcd_authority)
            context.load_cert_chain(secrets.etcd.certificate, secrets.etcd.key)
        else:
            context = ssl.create_default_context(cafile=secrets.authority)
            context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        return context

    def server_tls(self) -> ssl.SSLContext:
        """With the API server's certificate, for a server that stands in for it."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        pair = self._made().server
        context.load_cert_chain(pair.certificate, pair.key)
        return context


def drop_data(folder: Path) -> None:
    """Remove what a stopped control plane leaves in its folder, except the logs."""
    for name in ("etcd", "pki"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for file in [folder / "kubeconfig", *folder.glob("*.kubeconfig")]:
        file.unlink(missing_ok=True)
