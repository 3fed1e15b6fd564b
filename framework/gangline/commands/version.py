"""`gangline version`: the versions of this program, of the API server, and of the scheduler of the chart."""

from __future__ import annotations

import asyncio

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
    found, failure = Versions(own_version()), None
    if not only_client:
        try:
            found = asyncio.run(_of_cluster(connection, found.client))
        except ClusterError as error:
            failure = error
    click.echo(
        _text(found, only_client, failure is None) if output == "text" else told(found, output, (), lambda _: None),
        nl=False,
    )
    if failure is not None:
        raise failure


async def _of_cluster(connection: Connection, client: str) -> Versions:
    async with reached(connection) as there:
        return Versions(client, there.version, await _scheduler(there.client))


async def _scheduler(client: Client) -> str:
    """The version of the chart's scheduler; "" if there is none, or if the user may not see it."""
    try:
        maps = (await client.list(CONFIG_MAPS, label_selector=LABELS)).items
    except ApiError:
        return ""
    return ", ".join(sorted({(each.metadata.labels or {}).get(LABEL, "") for each in maps} - {""}))


def _text(found: Versions, only_client: bool, was_asked: bool) -> str:
    if only_client:
        return f"Client Version: {found.client}\n"
    unknown = "not known: no scheduler of the chart was found" if was_asked else "not known"
    return (
        f"Client Version: {found.client}\n"
        f"Server Version: {found.server or 'not known'}\n"
        f"Scheduler Version: {found.scheduler or unknown}\n"
    )
