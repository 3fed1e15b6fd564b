"""The command `gangline agent`, also installed as `gangline-agent`: builds the parts and runs them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import click
from prometheus_client import CollectorRegistry

from gangline.commands import options
from gangline.commands.reaching import component_credentials
from gangline.errors import GanglineError
from gangline.kube.client import HttpClient
from gangline.kube.interface import Client
from gangline.kube.resources import NODES
from gangline.model import Node
from gangline.process import logs
from gangline.process.endpoints import Endpoints, Pages, Served, add_process
from gangline.process.lines import Lines
from gangline.process.version import version_option
from gangline.telemetry.exposition import Exposition
from gangline.wire.custom_resources import GpuNodeStatusStatus
from gangline_agent import devices, hardware, nvml, templates
from gangline_agent.metrics import NodeMetrics
from gangline_agent.observing import Observer
from gangline_agent.offering import Offering, Offerings
from gangline_agent.publishing import Publisher, Reporter
from gangline_agent.readings import Reading
from gangline_agent.signs import Signs
from gangline_agent.simulate import MakeOffer, Simulation
from gangline_agent.usage import Usage


class Runs(Protocol):
    """A part that works until it is cancelled."""

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that run together, and the check whether the API has the newest report."""

    runs: Sequence[Runs]
    waiting_for: Callable[[], str | None]
    newest: Callable[[], Mapping[str, GpuNodeStatusStatus]]
    """Node to its report, for metrics."""


Build = Callable[[Client], Parts]


@click.command()
@click.option(
    "--node-name", envvar=["NODE_NAME", "HOSTNAME"], help="The node to report. Default: $NODE_NAME, then $HOSTNAME."
)
@options.KUBECONFIG
@click.option(
    "--host-root",
    type=click.Path(path_type=Path),
    default=Path("/"),
    help="Directory where the root of the node is mounted.",
)
@click.option(
    "--period", type=click.FloatRange(min=1.0), default=30.0, show_default=True, help="Seconds between two heartbeats."
)
@click.option(
    "--simulate", "what", metavar="WHAT", help=f"Hardware to simulate: {', '.join(hardware.PRESETS)}, or a file."
)
@click.option("--nodes", metavar="SELECTOR", help="Simulate all nodes with these labels, not only the agent's node.")
@click.option(
    "--resource-slices",
    type=click.Choice(["publish", "withdraw"]),
    is_flag=False,
    flag_value="publish",
    help="Offer the GPUs as devices in ResourceSlices; withdraw: delete the slices that were published earlier.",
)
@click.option(
    "--partitions", is_flag=True, help="With --simulate: offer the parts into which MIG could cut a GPU as well."
)
@click.option(
    "--listen",
    default="",
    callback=options.address,
    help="Address for health, over plain HTTP, as 0.0.0.0:8080. Default: none.",
)
@click.option(
    "--secure-listen",
    default="",
    callback=options.address,
    help="Address for metrics and health, over TLS, as 0.0.0.0:10259; the API server authorizes users. Default: none.",
)
@click.option("--plain-metrics", is_flag=True, help="Serve metrics on --listen too, to every client.")
@options.LOG_FORMAT
@options.LOG_LEVEL
@version_option("gangline-agent")
def agent(
    node_name: str | None,
    kubeconfig: str | None,
    host_root: Path,
    period: float,
    what: str | None,
    nodes: str | None,
    resource_slices: Literal["publish", "withdraw"] | None,
    partitions: bool,
    listen: str,
    secure_listen: str,
    plain_metrics: bool,
    log_format: logs.Form,
    log_level: str,
) -> None:
    """Report the GPUs of this node, or simulated ones, until SIGTERM."""
    logs.configure(log_level, log_format)
    if nodes and not what:
        raise click.UsageError("--nodes needs --simulate")
    if partitions and not (what and resource_slices):
        raise click.UsageError("--partitions needs --simulate and --resource-slices")
    if not nodes and not node_name:
        raise click.UsageError("the node is not known: set NODE_NAME or give --node-name")
    make = _making(resource_slices, partitions)
    if what:
        build = _simulating(what, node_name, nodes, period, make)
    else:
        build = _observing(str(node_name), host_root, period, make)
    endpoints = Endpoints(listen, secure_listen, plain_metrics=plain_metrics)
    asyncio.run(_run(kubeconfig, build, endpoints))


def main() -> None:
    """Run the command alone: exit 0 when it is stopped, 2 on wrong usage, with one line and the code of the error on a
    failure.
    """
    try:
        agent.main(prog_name="gangline-agent")
    except GanglineError as error:
        Lines(sys.stderr).write(f"gangline-agent: {error}")  # waits a moment at most, so the process ends in any case
        sys.exit(error.exit_code)


def _making(resource_slices: Literal["publish", "withdraw"] | None, partitions: bool) -> MakeOffer | None:
    """The function from a reading to the offer in ResourceSlices; None if the agent leaves ResourceSlices alone."""
    if resource_slices == "publish":
        return partial(devices.of_reading, with_partitions=partitions)
    return (lambda reading: devices.NOTHING) if resource_slices == "withdraw" else None


def _observing(node_name: str, host_root: Path, period: float, make: MakeOffer | None) -> Build:
    """The parts that report the GPUs of this machine. ConfigError without pynvml."""
    api = nvml.load()

    def build(client: Client) -> Parts:
        async def find() -> Node:
            return await client.get(NODES, node_name)

        usage = Usage(client, node_name)
        reporter = Reporter(Publisher(client, usage.of), node_name, find)
        session, signs = nvml.Nvml(api, host_root), Signs(host_root, find)

        def newest() -> dict[str, GpuNodeStatusStatus]:
            return {node_name: reporter.newest} if reporter.newest else {}

        if make is None:
            observer = Observer(session, host_root, reporter, period, signs)
            return Parts((reporter, observer, usage), reporter.waiting_for, newest)
        offerings = Offerings(client, node_name)
        offering = offerings.of(node_name, find)
        offer = partial(_offer, offering, make)
        observer = Observer(session, host_root, reporter, period, signs, offer=offer)
        return Parts(
            (reporter, observer, usage, offerings, offering),
            lambda: reporter.waiting_for() or offering.waiting_for(),
            newest,
        )

    return build


def _offer(offering: Offering, make: MakeOffer, reading: Reading) -> None:
    offering.offer(make(reading))


def _simulating(what: str, node_name: str | None, nodes: str | None, period: float, make: MakeOffer | None) -> Build:
    """The parts that report simulated GPUs. ConfigError for a file that cannot be used."""
    template = templates.read(what)
    node = "" if nodes else str(node_name)

    def build(client: Client) -> Parts:
        simulation = Simulation(client, template, period, label_selector=nodes or "", node=node, make_offer=make)
        return Parts((simulation, templates.Follower(what, simulation.use)), simulation.waiting_for, simulation.newest)

    return build


async def _run(kubeconfig: str | None, build: Build, endpoints: Endpoints) -> None:
    """Runs the parts until SIGTERM or SIGINT; raises what ends one of them."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(component_credentials(kubeconfig)))
        parts = build(client)
        served = Served(endpoints, pages(parts), client)
        await served.open()
        stack.push_async_callback(served.close)
        work = asyncio.create_task(_together(parts.runs))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, work.cancel)
        await asyncio.wait((work,))
        if not work.cancelled():
            work.result()


def pages(parts: Parts) -> Pages:
    """Health and metrics."""
    registry = CollectorRegistry()
    registry.register(NodeMetrics(parts.newest))
    add_process(registry)
    return Pages(live={}, ready={"published": parts.waiting_for}, exposition=Exposition(registry))


async def _together(parts: Sequence[Runs]) -> None:
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(part.run())
