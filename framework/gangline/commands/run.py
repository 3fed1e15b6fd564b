"""`gangline run`: schedule on a cluster until told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from gangline import config, failpoints
from gangline.clock import SystemClock
from gangline.commands import old_options, options, profiles
from gangline.commands.feature_gates import EXPECTED_NODES, FEATURE_GATES
from gangline.commands.reaching import component_credentials
from gangline.deadline import GANG_SECONDS, POD_SECONDS
from gangline.kube.client import HttpClient
from gangline.kube.interface import Client
from gangline.loop.room import Rests
from gangline.loop.scheduler import Options, Scheduler
from gangline.process import logs
from gangline.process.beside import Beside
from gangline.process.ending import LastResort
from gangline.process.endpoints import Endpoints, Pages, add_process
from gangline.process.leading import Elector
from gangline.process.loops import LoopThread, across, new_event_loop
from gangline.process.memory import collect_rarely, keep_memory, settle_when
from gangline.process.reloading import Reloader
from gangline.process.server_tls import pair_of_files
from gangline.process.tenure import Heartbeat, Tenure
from gangline.profile.assembly import load_plugins
from gangline.profile.registry import Catalog
from gangline.telemetry.exposition import Exposition
from gangline.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from gangline.page.live import LivePage  # the page is loaded only if it is served
    from gangline.process.guarding import Handler

log = logging.getLogger(__name__)


@click.command()
@options.CONFIG
@old_options.add_to
@options.KUBECONFIG
@click.option("--leader-elect/--no-leader-elect", default=None, help="Overrides leaderElection.leaderElect.")
@click.option("--lock-object-name", "lock_name", default="", hidden=True)
@click.option("--lock-object-namespace", "lock_namespace", default="", hidden=True)
@options.LISTEN
@click.option(
    "--secure-listen",
    default="0.0.0.0:10259",
    show_default=True,
    callback=options.address,
    help="Address for metrics, configuration and health, over TLS; the API server authorizes users. Empty: none.",
)
@click.option(
    "--tls-cert-file",
    type=click.Path(path_type=Path),
    default=None,
    help="Certificate of --secure-listen; a changed file is read again. Default: a self-signed one, made when needed.",
)
@click.option(
    "--tls-private-key-file", type=click.Path(path_type=Path), default=None, help="Private key of the certificate."
)
@click.option("--plain-metrics", is_flag=True, help="Serve metrics on --listen too, to every client.")
@click.option(
    "--ui/--no-ui",
    default=True,
    show_default=True,
    help="Serve the page /ui on --secure-listen, which shows the cluster live to users that may get it.",
)
@click.option(
    "--hang-limit",
    type=click.FloatRange(min=1.0),
    default=60.0,
    show_default=True,
    help="Seconds for which the event loop may hang; then the scheduler gives up its Lease, and /livez fails.",
)
@click.option(
    "--concurrency",
    default=64,
    show_default=True,
    help="Bindings of each profile at the same time; one that takes longer than a second does not count any more.",
)
@click.option(
    "--pod-deadline",
    type=click.FloatRange(min=0.01),
    default=POD_SECONDS,
    show_default=True,
    help="Seconds of CPU time that the decision on one pod may take.",
)
@click.option(
    "--gang-deadline",
    type=click.FloatRange(min=0.01),
    default=GANG_SECONDS,
    show_default=True,
    help="Seconds of CPU time that the decision on a whole pod group may take.",
)
@click.option(
    "--profile-cpu",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="Write where CPU time is spent, each minute and at the end, for speedscope or a flame graph.",
)
@FEATURE_GATES
@options.LOG_FORMAT
@options.LOG_LEVEL
def run(
    files: Sequence[str],
    kubeconfig: str | None,
    leader_elect: bool | None,
    lock_name: str,
    lock_namespace: str,
    listen: str,
    secure_listen: str,
    tls_cert_file: Path | None,
    tls_private_key_file: Path | None,
    plain_metrics: bool,
    ui: bool,
    hang_limit: float,
    concurrency: int,
    pod_deadline: float,
    gang_deadline: float,
    profile_cpu: Path | None,
    gates: Mapping[str, bool],
    log_format: logs.Form,
    log_level: str,
) -> None:
    """Schedule pods until SIGTERM.

    Without --config the command serves the packaged profiles (`gangline profiles list`), or only the schedulerName in
    $SCHEDULER_NAME. It leaves pods that name no scheduler to kube-scheduler, unless a file says otherwise.
    """
    _prepare(log_level, log_format)
    configuration = load(files)
    election = elected(configuration.leader_election, leader_elect, lock_name, lock_namespace)
    endpoints = Endpoints(listen, secure_listen, pair_of_files(tls_cert_file, tls_private_key_file), plain_metrics, ui)
    settings = Options(
        concurrency,
        _identity(),
        pod_deadline=pod_deadline,
        gang_deadline=gang_deadline,
        tells_expected_nodes=gates[EXPECTED_NODES],
        rest=Rests(time.sleep),
    )
    connection = kubeconfig or configuration.client_connection.kubeconfig or None
    program = RunProgram(configuration, [*map(Path, files)], election, connection, endpoints, hang_limit, settings)
    _play(program, profile_cpu)


def _play(program: RunProgram, profile_cpu: Path | None) -> None:
    """Run the program to its end, in an event loop of its own."""
    program.load()
    with (
        LastResort() as last_resort,
        _profiled(profile_cpu),
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        runner.run(program.run(last_resort))


def _profiled(file: Path | None) -> AbstractContextManager[None]:
    """A block during which a profile of the CPU time is written to the file; without a file nothing is done."""
    if file is None:
        return nullcontext()
    from gangline.process.profiling import profiled

    return profiled(file)


def _prepare(log_level: str, log_format: logs.Form) -> None:
    """Set up logging, failpoints and memory, which concern the whole process."""
    logs.configure(log_level, log_format)
    failpoints.arm(os.environ.get(failpoints.VARIABLE, ""))
    keep_memory()
    collect_rarely()


def _identity() -> str:
    """A name that no other process has."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def load(files: Sequence[str]) -> config.SchedulerConfiguration:
    """The configuration in files; without files the packaged profiles, or the name in $SCHEDULER_NAME."""
    return config.load_files([Path(file) for file in files]) if files else profiles.served()


def elected(
    election: config.LeaderElection, leader_elect: bool | None, name: str, namespace: str
) -> config.LeaderElection:
    """The settings of leader election: options override the file, None and "" keep the file's value."""
    given = {"leader_elect": leader_elect, "resource_name": name or None, "resource_namespace": namespace or None}
    return msgspec.structs.replace(election, **{field: value for field, value in given.items() if value is not None})


class RunProgram:
    """The running parts of `gangline run`.

    The main loop watches the cluster, decides and binds. A second thread elects the leader and serves health and
    metrics, because neither may wait for a long decision.
    """

    def __init__(
        self,
        configuration: config.SchedulerConfiguration,
        files: Sequence[Path],
        election: config.LeaderElection,
        kubeconfig: str | None,
        endpoints: Endpoints,
        hang_limit: float,
        options: Options,
    ) -> None:
        self._configuration = configuration
        self._files = files
        self._election = election
        self._kubeconfig = kubeconfig
        self._endpoints = endpoints
        self._catalog = Catalog.discover()
        self._clock = SystemClock()
        tenure = self._tenure = Tenure(self._clock)
        self._options = msgspec.structs.replace(
            options, term=lambda: tenure.term, handed_over=lambda: tenure.handed_over
        )
        self._heartbeat = Heartbeat(self._clock, hang_limit)
        self._stop_trying: Callable[[], None] = lambda: None
        """Kills a process that tries changes for the page."""

    def load(self) -> None:
        """Import what `run` needs; in its event loop that would be a pause of 0.2 s."""
        load_plugins(self._configuration, self._catalog)
        if self._endpoints.ui:
            import gangline.page.live  # noqa: F401  # used by `_ui`

    async def run(self, last_resort: LastResort) -> None:
        """Run until a signal; raises GanglineError if a part fails."""
        metrics = Metrics()
        may_write = self._tenure.holds if self._election.leader_elect else lambda: True
        async with (
            LoopThread("beside", new_event_loop) as thread,
            HttpClient(
                component_credentials(self._kubeconfig),
                connections=self._options.concurrency * len(self._configuration.profiles) + 64,
                may_write=may_write,
                on_written=self._options.writes.note,
            ) as client,
        ):
            options = msgspec.structs.replace(self._options, stop_writing=client.stop_writing)
            scheduler = Scheduler(self._configuration, client, self._clock, self._catalog, options, metrics)
            self._tenure.hands_over = scheduler.hands_over
            beside = Beside(
                lambda: component_credentials(self._kubeconfig),
                self._endpoints,
                self._pages(scheduler, metrics),
                lambda leases: self._elector(leases, metrics),
            )
            await thread.call(beside.open)
            try:
                await self._until_signal(scheduler, beside, thread, last_resort)
            finally:
                await thread.call(beside.close)

    def _pages(self, scheduler: Scheduler, metrics: Metrics) -> Pages:
        add_process(metrics.registry)
        page = self._ui(scheduler)
        return Pages(
            live={"deciding": self._heartbeat.complaint},
            ready={"informers": lambda: ", ".join(scheduler.unsynced()) or None},
            exposition=Exposition(metrics.registry, metrics.families),
            guarded=lambda: _guarded(scheduler, page),
            at_end=page.end if page else None,
        )

    def _ui(self, scheduler: Scheduler) -> LivePage | None:
        """The page, if it is served."""
        if not self._endpoints.ui:
            return None
        from gangline.commands.trying_apart import TryingApart
        from gangline.page.live import live_page

        leads = self._tenure.holds if self._election.leader_elect else lambda: True
        trying = TryingApart(lambda: scheduler.config, self._kubeconfig)
        self._stop_trying = trying.close
        return live_page(scheduler, self._clock, leads, scheduler.decisions.of, trying.of, asyncio.get_running_loop())

    def _elector(self, leases: Client, metrics: Metrics) -> Elector:
        leading = metrics.is_leader.labels(self._election.resource_name)
        return Elector(
            leases,
            self._clock,
            self._election,
            self._options.identity,
            random.Random(),
            lambda yes: leading.set(int(yes)),
            self._tenure,
            self._heartbeat.complaint,
        )

    async def _until_signal(
        self, scheduler: Scheduler, beside: Beside, thread: LoopThread, last_resort: LastResort
    ) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        work = asyncio.create_task(self._work(scheduler, beside, thread))
        stopping = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
        last_resort.start()
        self._stop_trying()
        if work in done:
            stopping.cancel()
            _raise_first(work)
        log.info("stopping")
        finishing = asyncio.create_task(scheduler.finish())
        await asyncio.wait((work, finishing), return_when=asyncio.FIRST_COMPLETED)
        self._tenure.is_clean = finishing.done() and finishing.result()
        finishing.cancel()
        work.cancel()
        await asyncio.wait((work,))

    async def _work(self, scheduler: Scheduler, beside: Beside, thread: LoopThread) -> None:
        here = asyncio.get_running_loop()

        async def while_leading(lead: Callable[[], Awaitable[None]]) -> None:
            """Run the election in the second thread, and the leader's work in this one."""
            await thread.call(lambda: beside.elector.run(lambda: across(here, lead)))

        async with asyncio.TaskGroup() as group:
            group.create_task(self._heartbeat.run())
            group.create_task(Reloader(self._files, scheduler.use).run())
            group.create_task(settle_when(scheduler.synced))
            await scheduler.run(while_leading if self._election.leader_elect else None)


def _guarded(scheduler: Scheduler, page: LivePage | None) -> Mapping[str, Handler]:
    """The paths for users that the API server allows; what serves them is loaded now."""
    from gangline.process.serving import pages

    of_scheduler = pages(lambda: scheduler.config, scheduler.decisions.of)
    return {**of_scheduler, **(page.handlers() if page is not None else {})}


def _raise_first(work: asyncio.Task[None]) -> None:
    """The first error that ended the work, without the groups around it."""
    error = work.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
