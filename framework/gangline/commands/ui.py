"""`gangline ui`: shows the page of the running scheduler in a browser."""

from __future__ import annotations

import asyncio
import signal
import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress

import click

from gangline.commands import options
from gangline.commands.forwarding import pods_of_scheduler, reach_all
from gangline.commands.options import Connection
from gangline.commands.reaching import credentials_of, reached
from gangline.commands.relaying import AGAIN, Relay, Upstream
from gangline.errors import ConfigError, GanglineError
from gangline.kube.auth import Credentials
from gangline.process import interrupting


@click.command()
@options.SCHEDULER
@options.connection
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on this machine. Default: a free port.")
@click.option(
    "--browser/--no-browser",
    default=True,
    show_default=True,
    help="Open the page in a browser, or only print its address.",
)
def ui(scheduler: str | None, connection: Connection, port: int, browser: bool) -> None:
    """Show the cluster live in a browser until Ctrl-C: spines, leaves, nodes, GPUs and the queue.

    The command reaches the scheduler by `kubectl port-forward`, or at --scheduler https://HOST:PORT, and shows what the
    user of the kubeconfig may see. The printed address holds a key and works on this machine alone.
    """
    with suppress(KeyboardInterrupt):
        interrupting.run(_show(scheduler, connection, port, browser))


async def _show(scheduler: str | None, connection: Connection, port: int, browser: bool) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, stop.set
    )  # so that kubectl is ended with this command
    async with AsyncExitStack() as stack:
        finding = await stack.enter_async_context(AsyncExitStack())
        relay = Relay(await _upstream(scheduler, connection, finding), port)
        await relay.start()
        if scheduler is None:  # the pod that kubectl reaches may be gone for ever
            seeking = asyncio.create_task(seek(relay, lambda found: _upstream(None, connection, found), finding))
            stack.callback(seeking.cancel)
        stack.push_async_callback(relay.stop)
        click.echo(relay.address)
        if browser:
            await asyncio.to_thread(webbrowser.open, relay.address)
        await stop.wait()


async def seek(
    relay: Relay,
    find: Callable[[AsyncExitStack], Awaitable[Upstream]],
    stack: AsyncExitStack,
    again: float = AGAIN,
) -> None:
    """Whenever the scheduler does not answer the relay, look for the scheduler anew; never ends.

    `stack` closes what was opened for the scheduler so far, and then for the one that was found last.
    """
    while True:
        await relay.lost.wait()
        async with AsyncExitStack() as mine:
            with suppress(GanglineError):
                relay.upstream = await find(mine)
                await stack.aclose()
                stack.push_async_callback(mine.pop_all().aclose)
        await asyncio.sleep(again)
        relay.lost.clear()


async def _upstream(scheduler: str | None, connection: Connection, stack: AsyncExitStack) -> Upstream:
    """The scheduler at the address, else the leader among the chart's pods, else one of them. Raises GanglineError."""
    if scheduler is not None:
        upstream = await _open(scheduler, credentials_of(connection), stack)
        await upstream.check()
        return upstream
    async with reached(connection) as there:
        try:
            pods = await pods_of_scheduler(there.client)
        except ConfigError as error:
            raise ConfigError(there.where, error.path, error.why) from error
    return await leader_among(pods, connection, there.credentials, stack)


async def leader_among(
    pods: Sequence[tuple[str, str]], connection: Connection, credentials: Credentials, stack: AsyncExitStack
) -> Upstream:
    """The leader among pods, by namespace and name, else one that serves the page. Raises GanglineError."""

    async def ask(where: str, address: str, mine: AsyncExitStack) -> tuple[Upstream, bool]:
        upstream = await _open(address, credentials, mine)
        await upstream.check()
        return upstream, await upstream.leads()

    replicas, refused = await reach_all(pods, connection, ask, stack)
    if not replicas:
        raise refused[0]
    chosen = next((each for each in replicas if each.answer[1]), replicas[0])
    for other in replicas:
        if other is not chosen:
            await other.stack.aclose()
    return chosen.answer[0]


async def _open(address: str, credentials: Credentials, stack: AsyncExitStack) -> Upstream:
    upstream = Upstream(address, credentials)
    stack.push_async_callback(upstream.close)
    return upstream
