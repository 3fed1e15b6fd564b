"""`gangline webhook`: build the parts and serve until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import uvloop

from gangline import logs
from gangline.errors import GanglineError
from gangline.health import Listener
from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline.version import version_option
from gangline_webhook.certificates import Certificates
from gangline_webhook.claims import Claims, NoClaims, WatchedClaims
from gangline_webhook.injecting import Options
from gangline_webhook.serving import Metrics, Reviewer, health

log = logging.getLogger(__name__)

CONNECTIONS = 32  # to the API server: one watch, and a few questions at a time


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says; ``kubeconfig`` counts only with ``claims``."""

    certificate: Path
    key: Path
    addr: str
    listen: str
    options: Options
    claims: bool
    kubeconfig: str | None


@click.command()
@click.option("--tls-cert-file", type=click.Path(path_type=Path), default=Path("/certs/tls.crt"), show_default=True)
@click.option(
    "--tls-private-key-file", type=click.Path(path_type=Path), default=Path("/certs/tls.key"), show_default=True
)
@click.option("--addr", default=":8443", show_default=True, help="Reviews, over TLS.")
@click.option("--listen", default="0.0.0.0:8080", show_default=True, help="Health and metrics, over plain HTTP.")
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    envvar="SCHEDULER_NAME",
    default=["gpu-scheduler"],
    help="Pods of this scheduler have their map read; may be repeated. Default: $SCHEDULER_NAME or gpu-scheduler.",
)
@click.option(
    "--nvidia-visible-devices", is_flag=True, help="Inject NVIDIA_VISIBLE_DEVICES too, with the UUIDs of the devices."
)
@click.option(
    "--claims/--no-claims",
    default=True,
    show_default=True,
    help="Follow GpuClaims: for the variables of NCCL and cuFile, and for the UUIDs of MIG instances.",
)
@click.option("--kubeconfig", type=click.Path(), default=None, help="Default: as kubectl, then in-cluster.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", default=lambda: logs.level_from(os.environ), help="Default: $LOG_LEVEL or info.")
@version_option("gangline-webhook")
def webhook(
    tls_cert_file: Path,
    tls_private_key_file: Path,
    addr: str,
    listen: str,
    scheduler_names: Sequence[str],
    nvidia_visible_devices: bool,
    claims: bool,
    kubeconfig: str | None,
    log_format: logs.Form,
    log_level: str,
) -> None:
    """Serve admission reviews until SIGTERM: pods get their GPU variables, claims are checked."""
    logs.configure(log_level, log_format)
    options = Options(frozenset(scheduler_names), nvidia_visible_devices)
    settings = Settings(tls_cert_file, tls_private_key_file, addr, listen, options, claims, kubeconfig)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings))


async def serve(settings: Settings) -> None:
    """Run until a signal; raises GanglineError when it cannot start."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    certificates = Certificates(settings.certificate, settings.key)
    async with AsyncExitStack() as stack:
        watched = None
        if settings.claims:
            credentials = auth.load(settings.kubeconfig)
            watched = WatchedClaims(await stack.enter_async_context(HttpClient(credentials, connections=CONNECTIONS)))
        await _listen(settings, certificates, watched or NoClaims(), stack)
        gc.collect()
        gc.freeze()  # what is there now stays; collections need not walk it
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(certificates.run())]
            if watched:
                tasks.append(group.create_task(watched.run()))
            await stop.wait()
            log.info("stopping")
            for task in tasks:
                task.cancel()


async def _listen(settings: Settings, certificates: Certificates, claims: Claims, stack: AsyncExitStack) -> None:
    """Starts both servers, and leaves their end to the stack."""
    metrics = Metrics()
    reviewer = Reviewer(claims, settings.options, metrics)
    reviews = Listener(reviewer.application(), settings.addr, "--addr", certificates.context)
    beside = Listener(health(metrics.registry, lambda: reviews.listening), settings.listen, "--listen")
    await beside.start()
    stack.push_async_callback(beside.stop)
    await reviews.start()
    stack.push_async_callback(reviews.stop)
    log.info("reviews on port %d, health on port %d", reviews.port, beside.port)


def main() -> None:
    """The program gangline-webhook: exit 0 on success, 1 with one line on a failure, 2 on wrong usage."""
    try:
        webhook()
    except GanglineError as error:
        click.echo(f"gangline-webhook: {error}", err=True)
        sys.exit(1)
