"""`gangline run`: schedule on a cluster until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import uuid
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
import uvloop

from gangline import config, logs
from gangline.clock import SystemClock
from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline.leading import Elector
from gangline.memory import keep_memory, settle_memory
from gangline.metrics import Metrics
from gangline.registry import Catalog
from gangline.reloading import Reloader
from gangline.scheduler import Options, Scheduler
from gangline.serving import Server

log = logging.getLogger(__name__)


@click.command()
@click.option(
    "--config", "files", type=click.Path(), multiple=True, help="KubeSchedulerConfiguration; may be repeated."
)
@click.option("--kubeconfig", type=click.Path(), default=None, help="Default: as kubectl, then in-cluster.")
@click.option("--leader-elect/--no-leader-elect", default=None, help="Overrides leaderElection.leaderElect.")
@click.option("--listen", default="0.0.0.0:8080", show_default=True, help="Health and metrics.")
@click.option("--concurrency", default=64, show_default=True, help="Bindings under way at the same time.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", default=lambda: os.environ.get("LOG_LEVEL", "info"), help="Default: $LOG_LEVEL or info.")
def run(
    files: Sequence[str],
    kubeconfig: str | None,
    leader_elect: bool | None,
    listen: str,
    concurrency: int,
    log_format: logs.Form,
    log_level: str,
) -> None:
    """Schedule pods until SIGTERM."""
    logs.configure(log_level, log_format)
    keep_memory()
    configuration = load(files)
    election = configuration.leader_election
    if leader_elect is not None:
        election = msgspec.structs.replace(election, leader_elect=leader_elect)
    program = Program(
        configuration,
        [Path(file) for file in files],
        election,
        kubeconfig or configuration.client_connection.kubeconfig or None,
        listen,
        Options(concurrency=concurrency, identity=f"{socket.gethostname()}_{uuid.uuid4()}"),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(program.run())


def load(files: Sequence[str]) -> config.SchedulerConfiguration:
    """The configuration in files, or the default one without files."""
    if files:
        return config.load_files([Path(file) for file in files])
    return config.load(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n", "the default configuration"
    )


class Program:
    """Everything that `gangline run` keeps going."""

    def __init__(
        self,
        configuration: config.SchedulerConfiguration,
        files: Sequence[Path],
        election: config.LeaderElection,
        kubeconfig: str | None,
        listen: str,
        options: Options,
    ) -> None:
        self._configuration = configuration
        self._files = files
        self._election = election
        self._kubeconfig = kubeconfig
        self._listen = listen
        self._options = options

    async def run(self) -> None:
        """Run until a signal; raises GanglineError when something cannot go on."""
        metrics = Metrics()
        clock = SystemClock()
        async with HttpClient(auth.load(self._kubeconfig), connections=self._options.concurrency + 64) as client:
            scheduler = Scheduler(self._configuration, client, clock, Catalog.discover(), self._options, metrics)
            leading = metrics.is_leader.labels(self._election.resource_name)
            elector = Elector(
                client,
                clock,
                self._election,
                self._options.identity,
                random.Random(),
                lambda yes: leading.set(int(yes)),
            )
            server = Server(
                self._listen,
                live={},
                ready={"informers": lambda: ", ".join(scheduler.unsynced()) or None},
                registry=metrics.registry,
                configuration=lambda: scheduler.config,
            )
            await server.start()
            try:
                await self._until_signal(scheduler, elector)
            finally:
                await server.stop()

    async def _until_signal(self, scheduler: Scheduler, elector: Elector) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        work = asyncio.create_task(self._work(scheduler, elector))
        stopping = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
        if work in done:
            stopping.cancel()
            _raise_first(work)
        log.info("stopping")
        work.cancel()
        await asyncio.wait((work,))

    async def _work(self, scheduler: Scheduler, elector: Elector) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(Reloader(self._files, scheduler.use).run())
            group.create_task(_settle_memory(scheduler))
            await scheduler.run(elector.run if self._election.leader_elect else None)


async def _settle_memory(scheduler: Scheduler) -> None:
    """Once everything is listed."""
    await scheduler.synced()
    settle_memory()


def _raise_first(work: asyncio.Task[None]) -> None:
    """The first error that ended the work, without the groups around it."""
    error = work.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
