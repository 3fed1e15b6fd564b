"""The command line of the harness: build the programs, start a control plane by hand, stop it."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import click

from gangline_e2e import background, binaries
from gangline_e2e.api import connect
from gangline_e2e.errors import HarnessError
from gangline_e2e.harness import Options
from gangline_e2e.workloads import is_ready, kwok_node

NODES_S = 300
LABELS = {"type": "kwok"}
"""As nodes of KWOK have them, by which `gangline agent --nodes type=kwok` finds them."""

_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=background.default_folder,
    show_default="~/.local/state/gangline/control-plane",
    help="Where its data, keys and logs stand.",
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
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    default=0,
    help="Create that many KWOK nodes with 8 GPUs.",
)
def up(folder: Path, controller_manager: bool, nodes: int) -> None:
    """Start a control plane in the background."""
    control_plane = background.up(folder.absolute(), Options(controller_manager=controller_manager))
    if nodes:
        asyncio.run(_create_nodes(control_plane.kubeconfig, nodes))
    click.echo(f"export KUBECONFIG={control_plane.kubeconfig}")


@cli.command()
@_folder
def down(folder: Path) -> None:
    """Stop what `up` started and drop its data."""
    stopped = background.down(folder.absolute())
    click.echo(f"stopped {', '.join(stopped)}" if stopped else f"nothing runs in {folder}")


async def _create_nodes(kubeconfig: Path, count: int) -> None:
    async with connect(kubeconfig) as api:
        await api.create_many(kwok_node(f"node-{index:05}", labels=LABELS) for index in range(count))
        await api.wait_for("/api/v1/nodes", is_ready, count, NODES_S)


def main() -> None:
    """Run the command line; 1 and one line on standard error when something fails."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cli(prog_name="python -m gangline_e2e")
    except HarnessError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
