"""`gangline version`: the versions of this program, of the API server, and of the scheduler of the chart."""

from __future__ import annotations

import click
import msgspec

from gangline.commands import options
from gangline.commands.options import Connection
from gangline.commands.output import told
from gangline.commands.reaching import reached
from gangline.commands.running import LABELS
from gangline.errors import ApiError, ClusterError
from gangline.kube.interface import Client
from gangline.kube.resources import CONFIG_MAPS
from gangline.process import interrupting
from gangline.process.lines import on_one_line
from gangline.process.version import version as own_version

LABEL = "app.kubernetes.io/version"
"""A label of the chart's objects."""


class Versions(msgspec.Struct, rename="camel"):
    """The versions that `gangline version` shows; "" for a version that is not known."""

    client: str
    server: str = ""
    scheduler: str = ""


@click.command()
@click.option("--client", "only_client", is_flag=True, help="Show the version of this program alone; ask no server.")
@options.connection
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
def version(connection: Connection, only_client: bool, output: str) -> None:
    """Show the versions of this program, of the API server, and of the scheduler that the chart has installed."""
    found, unknown, failure = Versions(own_version()), "not known", None
    if not only_client:
        try:
            found, unknown = interrupting.run(_of_cluster(connection, found.client))
        except ClusterError as error:
            failure = error
    click.echo(
        _text(found, only_client, unknown) if output == "text" else told(found, output, (), lambda _: None),
        nl=False,
    )
    if failure is not None:
        raise failure


async def _of_cluster(connection: Connection, client: str) -> tuple[Versions, str]:
    """The versions, and what is said of the scheduler's version if it is not known."""
    async with reached(connection) as there:
        try:
            scheduler, unknown = await _scheduler(there.client), "not known: no scheduler of the chart was found"
        except ApiError as error:
            scheduler, unknown = "", f"not known: its ConfigMap cannot be read: {error.message}"
        return Versions(client, there.version, scheduler), unknown


async def _scheduler(client: Client) -> str:
    """The version of the chart's scheduler; "" if there is none. Raises ApiError."""
    maps = (await client.list(CONFIG_MAPS, label_selector=LABELS)).items
    return ", ".join(sorted({(each.metadata.labels or {}).get(LABEL, "") for each in maps} - {""}))


def _text(found: Versions, only_client: bool, unknown: str) -> str:
    if only_client:
        return f"Client Version: {found.client}\n"
    return (
        f"Client Version: {found.client}\n"
        f"Server Version: {found.server or 'not known'}\n"
        f"Scheduler Version: {on_one_line(found.scheduler or unknown)}\n"
    )
