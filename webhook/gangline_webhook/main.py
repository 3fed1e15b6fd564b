"""`gangline webhook`: build the parts and serve until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from gangline.commands import options
from gangline.commands.reaching import component_credentials
from gangline.errors import ClusterError, GanglineError
from gangline.kube.client import HttpClient
from gangline.process import logs
from gangline.process.certificate_files import Certificates
from gangline.process.endpoints import Endpoints, Served
from gangline.process.lines import Lines
from gangline.process.listening import Listener, ListeningLimits
from gangline.process.loops import new_event_loop
from gangline.process.version import version_option
from gangline_webhook.bodies import PATIENCE
from gangline_webhook.claims import Claims, NoClaims, WatchedClaims
from gangline_webhook.enforcing import ENFORCEMENTS, Enforcement
from gangline_webhook.injecting import Options
from gangline_webhook.requesting import MODES, Mode
from gangline_webhook.serving import DEADLINE, MOST_CONNECTIONS, Metrics, Reviewer, pages
from gangline_webhook.workloads import AskedWorkloads, NoWorkloads

log = logging.getLogger(__name__)

CONNECTIONS = 32  # to the API server: one watch, and a few questions at a time


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the command line; ``claims`` and metrics over TLS need credentials."""

    certificates: Certificates
    addr: str
    endpoints: Endpoints
    options: Options
    claims: bool
    ranks: bool
    kubeconfig: str | None


@click.command()
@click.option("--tls-cert-file", type=click.Path(path_type=Path), default=Path("/certs/tls.crt"), show_default=True)
@click.option(
    "--tls-private-key-file", type=click.Path(path_type=Path), default=Path("/certs/tls.key"), show_default=True
)
@click.option(
    "--addr", default=":8443", show_default=True, callback=options.address, help="Address for reviews, over TLS."
)
@options.LISTEN
@click.option(
    "--secure-listen",
    default="0.0.0.0:10259",
    show_default=True,
    callback=options.address,
    help="Address for metrics and health, over TLS; the API server authorizes users. Empty: none.",
)
@click.option("--plain-metrics", is_flag=True, help="Serve metrics on --listen too, to every client.")
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    envvar="SCHEDULER_NAME",
    default=["gpu-scheduler"],
    help="schedulerName of pods whose claims, maps and requests the webhook reads; may be repeated. "
    "Default: $SCHEDULER_NAME or gpu-scheduler.",
)
@click.option(
    "--enforcement",
    type=click.Choice(ENFORCEMENTS),
    default="device-plugin",
    show_default=True,
    help="Who enforces which GPUs a container sees: the device plugin, the container runtime by "
    "NVIDIA_VISIBLE_DEVICES, or only CUDA_VISIBLE_DEVICES in the environment.",
)
@click.option(
    "--claims/--no-claims",
    default=True,
    show_default=True,
    help="Watch GpuClaims, for the variables of NCCL and cuFile and the UUIDs of MIG instances.",
)
@click.option(
    "--ranks/--no-ranks",
    default=True,
    show_default=True,
    help="Give pods of indexed Jobs with gangline.dev/ranks the variables of PyTorch.",
)
@click.option(
    "--claim-requests",
    type=click.Choice(MODES),
    default="add",
    show_default=True,
    help="For a pod whose claim gives whole GPUs and that requests none: add the request, refuse it, or ignore it.",
)
@options.KUBECONFIG
@options.LOG_FORMAT
@options.LOG_LEVEL
@version_option("gangline-webhook")
def webhook(
    tls_cert_file: Path,
    tls_private_key_file: Path,
    addr: str,
    listen: str,
    secure_listen: str,
    plain_metrics: bool,
    scheduler_names: Sequence[str],
    enforcement: Enforcement,
    claims: bool,
    ranks: bool,
    claim_requests: Mode,
    kubeconfig: str | None,
    log_format: logs.Form,
    log_level: str,
) -> None:
    """Serve admission reviews until SIGTERM: give pods their GPU variables, and check claims."""
    logs.configure(log_level, log_format)
    options = Options(frozenset(scheduler_names), enforcement, claim_requests)
    certificates = Certificates(tls_cert_file, tls_private_key_file)
    endpoints = Endpoints(listen, secure_listen, certificates, plain_metrics)
    settings = Settings(certificates, addr, endpoints, options, claims, ranks, kubeconfig)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(settings))


async def serve(settings: Settings) -> None:
    """Run until a signal; raises GanglineError when it cannot start."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        client = await _client(settings, stack)
        watched = WatchedClaims(client) if settings.claims and client else None
        await _listen(settings, client, watched or NoClaims(), stack)
        gc.collect()
        gc.freeze()  # these objects stay; the garbage collector need not look at them again
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(settings.certificates.run())]
            if watched:
                tasks.append(group.create_task(watched.run()))
            await stop.wait()
            log.info("stopping")
            for task in tasks:
                task.cancel()


async def _client(settings: Settings, stack: AsyncExitStack) -> HttpClient | None:
    """Raises ClusterError without credentials, unless nothing but metrics needs them."""
    try:
        credentials = component_credentials(settings.kubeconfig)
    except ClusterError as error:
        if settings.claims:
            raise
        log.info("no metrics over TLS: %s", error)
        return None
    return await stack.enter_async_context(HttpClient(credentials, connections=CONNECTIONS))


async def _listen(settings: Settings, client: HttpClient | None, claims: Claims, stack: AsyncExitStack) -> None:
    """Starts both servers, and leaves their end to the stack."""
    metrics = Metrics()
    workloads = AskedWorkloads(client) if settings.ranks and client else NoWorkloads()
    reviewer = Reviewer(claims, settings.options, metrics, workloads=workloads)
    limits = ListeningLimits(connections=MOST_CONNECTIONS, head=PATIENCE, request=PATIENCE + DEADLINE)
    certificates = settings.certificates
    reviews = Listener(reviewer.application(), settings.addr, "--addr", lambda: certificates.context, limits)
    beside = Served(settings.endpoints, pages(metrics.registry, lambda: reviews.listening), client)
    await beside.open()
    stack.push_async_callback(beside.close)
    await reviews.start()
    stack.push_async_callback(reviews.stop)
    log.info("reviews on port %d, health on port %d", reviews.port, beside.port)


def main() -> None:
    """The program gangline-webhook: exit 0 on success, 2 on wrong usage, with one line and the code of the error on a
    failure.
    """
    try:
        webhook()
    except GanglineError as error:
        Lines(sys.stderr).write(f"gangline-webhook: {error}")  # waits a moment at most, so the process ends in any case
        sys.exit(error.exit_code)
