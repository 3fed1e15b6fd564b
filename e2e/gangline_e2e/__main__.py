"""The command line of the harness: build the programs, start a control plane by hand, stop it."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from pathlib import Path

import click

from gangline_e2e import background, binaries
from gangline_e2e.api import connect
from gangline_e2e.day import fabric
from gangline_e2e.day.fabric import KWOK, Fabric
from gangline_e2e.errors import HarnessError
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import Options
from gangline_e2e.workloads import is_ready, kwok_node

NODES_S = 300
MOST_GPUS = 16
"""The most GPUs of a node: no report with more is read."""
LEAVES_PER_SPINE = 25

_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=background.default_folder,
    show_default="~/.local/state/gangline/control-plane",
    help="The folder with the data, keys and logs of the control plane.",
)


@click.group()
def cli() -> None:
    """A real Kubernetes control plane on this machine, for tests."""


@cli.command()
def build() -> None:
    """Build kube-apiserver, its companions and kwok into the cache folder."""
    folder = binaries.cache_folder()
    built = binaries.build(folder)
    click.echo(f"{folder}: {'built' if built else 'up to date'}")


@cli.command()
@_folder
@click.option("--controller-manager", is_flag=True, help="Run kube-controller-manager too.")
@click.option("--nodes", type=click.IntRange(min=0), default=0, help="Create so many KWOK nodes.")
@click.option("--gpus", type=click.IntRange(1, MOST_GPUS), default=8, show_default=True, help="The GPUs of each node.")
@click.option(
    "--leaves",
    type=click.IntRange(min=1),
    help="Put the nodes under so many leaves, and give each node a GpuNodeStatus.",
)
@click.option(
    "--spines",
    type=click.IntRange(min=1),
    help="Put the leaves under so many spines. Default: one spine for 25 leaves.",
)
def up(folder: Path, controller_manager: bool, nodes: int, gpus: int, leaves: int | None, spines: int | None) -> None:
    """Start a control plane in the background.

    Prints to standard output the line that sets KUBECONFIG, and to standard error the commands that may follow.
    """
    if spines is not None and leaves is None:
        raise click.UsageError("--spines needs --leaves")
    spines = spines or max(1, (leaves or 1) // LEAVES_PER_SPINE)
    if leaves is not None and not spines <= leaves <= nodes:
        raise click.UsageError(f"{nodes} nodes cannot be under {leaves} leaves of {spines} spines")
    folder = folder.absolute()
    control_plane = background.up(folder, Options(controller_manager=controller_manager))
    try:
        if leaves is not None:
            asyncio.run(_create_fabric(control_plane.kubeconfig, Fabric(nodes, gpus, leaves, spines)))
        elif nodes:
            asyncio.run(_create_nodes(control_plane.kubeconfig, nodes, gpus))
    except BaseException:  # Ctrl-C too
        background.down(folder)
        raise
    click.echo(f"export KUBECONFIG={control_plane.kubeconfig}")
    click.echo(next_steps(nodes, gpus, leaves, spines, folder), err=True)


@cli.command()
@_folder
def down(folder: Path) -> None:
    """Stop what `up` started and drop its data."""
    stopped = background.down(folder.absolute())
    click.echo(f"stopped {', '.join(stopped)}" if stopped else f"nothing runs in {folder}")


async def _create_nodes(kubeconfig: Path, count: int, gpus: int) -> None:
    async with connect(kubeconfig) as api:
        await api.create_many(kwok_node(f"node-{index:05}", gpus=gpus, labels=KWOK) for index in range(count))
        await api.wait_for("/api/v1/nodes", is_ready, count, NODES_S)


async def _create_fabric(kubeconfig: Path, shape: Fabric) -> None:
    async with connect(kubeconfig) as api:
        await install(api)
        await fabric.build(api, shape)


def next_steps(nodes: int, gpus: int, leaves: int | None, spines: int, folder: Path) -> str:
    """The nodes that exist, and the commands that a user may run next."""
    there = f"{nodes} nodes of {gpus} GPUs" if nodes else "No nodes"
    if leaves is not None:
        there += f", each with a GpuNodeStatus (leaves: {leaves}, spines: {spines})"
    where = "" if folder == background.default_folder().absolute() else f" --dir {shlex.quote(str(folder))}"
    steps = (
        ("gangline run &", "schedules what names gpu-scheduler"),
        ("gangline topology", "draws it"),
        ("kubectl create -f FILE", "such as those in examples/; Jobs and Deployments need --controller-manager"),
        ("gangline status --scheduler https://localhost:10259", "what runs, what waits and why"),
        (f"python -m gangline_e2e down{where}", "stops everything and drops its data"),
    )
    return "\n".join([f"{there}. Run the line above, then:", *(f"    {words:<52}  {what}" for words, what in steps)])


def main() -> None:
    """Run the command line. After a failure it exits with 1 and one line on standard error."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cli(prog_name="python -m gangline_e2e")
    except HarnessError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
