"""The option `--watch`: shows a view of the cluster again when a pod or node, and with it the view, has changed."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, cast

import click

from gangline.errors import Gone, Unavailable
from gangline.kube.interface import Client, WatchEvent
from gangline.kube.resources import NODES, PODS, Resource

PAUSE = 2.0
"""Seconds between two views, at least: each view lists the cluster again."""
OFTEN = 10
"""The pause after a view is at least so many times as long as making the view took."""

Look = Callable[[], Awaitable[str]]
"""Lists the cluster, and returns the text that shows it."""


async def follow(
    client: Client,
    look: Look,
    write: Callable[[str], None],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Write the view, and write it again whenever it has changed; never ends. Raises ApiError."""
    before = None
    while True:
        start = clock()
        versions = {resource: await _version(client, resource) for resource in (PODS, NODES)}
        text = await look()
        if text != before:
            write(text)
            before = text
        took = clock() - start
        await sleep(max(PAUSE, OFTEN * took))
        await _change(client, versions)


async def once_or_follow(client: Client, look: Look, watches: bool, form: str) -> None:
    """Print the view once or, with `watches`, each time it changes: on a terminal the new view replaces the last one,
    elsewhere it follows below.
    """
    if not watches:
        click.echo(await look(), nl=False)
        return
    is_screen = sys.stdout.isatty() and form not in ("json", "yaml", "name")
    is_first = True

    def write(text: str) -> None:
        nonlocal is_first
        if is_screen:
            click.clear()
        elif not is_first:
            click.echo("---" if form == "yaml" else "")
        is_first = False
        click.echo(text, nl=False)
        sys.stdout.flush()

    await _while_read(follow(client, look, write))


async def _while_read(work: Coroutine[Any, Any, None]) -> None:
    """Do the work; raises BrokenPipeError, as a write does, when standard output is a pipe that nobody reads."""
    task, is_unread = asyncio.ensure_future(work), asyncio.Event()
    pipe = _pipe()
    if pipe is not None:
        # The end for writing is "readable" only on an error.
        asyncio.get_running_loop().add_reader(pipe, is_unread.set)
    unread = asyncio.ensure_future(is_unread.wait())
    try:
        await asyncio.wait((task, unread), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if pipe is not None:
            asyncio.get_running_loop().remove_reader(pipe)
        for each in (task, unread):
            each.cancel()
        await asyncio.wait((task, unread))
    if not task.cancelled():
        task.result()
    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _pipe() -> int | None:
    """The descriptor of standard output if it is a pipe."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # a test, or an output that was closed
        return None
    return number if stat.S_ISFIFO(os.fstat(number).st_mode) else None


async def _version(client: Client, resource: Resource[Any]) -> str:
    """The current resourceVersion of a list; only one object of it is read."""
    return (await client.list(resource, limit=1)).resource_version


async def _change(client: Client, versions: dict[Resource[Any], str]) -> None:
    """Wait until an object of these kinds has changed since its version."""
    watches = [asyncio.ensure_future(_first(client, *each)) for each in versions.items()]
    try:
        done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in watches:
            each.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def _first(client: Client, resource: Resource[Any], version: str) -> None:
    """Wait for the first change after a version; a watch that ends or breaks counts as one."""
    try:
        stream = client.watch(resource, resource_version=version)
        async with aclosing(cast("AsyncGenerator[WatchEvent[Any], None]", stream)) as events:
            async for event in events:
                if event.object is not None or event.unreadable is not None:  # an event that is no bookmark
                    return
    except (Gone, Unavailable):
        return
