"""Finds the running scheduler, and asks it with the credentials of the kubeconfig for the time of a block.

A command asks the scheduler at the given address, else the chart's pods through `kubectl port-forward`. If no pod
answers, the chart's ConfigMap shows at least the configuration.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import aiohttp
import msgspec
from yarl import URL

from gangline import config
from gangline.commands.forwarding import NoSchedulerPod, Replica, ended_in_order, pods_of_scheduler, reach_all
from gangline.commands.reaching import Reached, context_of
from gangline.commands.running import (
    Get,
    Judges,
    Running,
    configured,
    context_for,
    judges,
    not_given,
    unreachable,
    url_of,
)
from gangline.config import SchedulerConfiguration
from gangline.errors import ApiError, ConfigError, GanglineError
from gangline.kube.auth import Credentials
from gangline.kube.transport import bounded

PATIENCE = 3.0
"""Seconds that an endpoint has to answer."""
FORWARDING = 5.0
"""Seconds that kubectl has to reach a pod; all pods are reached at the same time."""


@dataclass(frozen=True, slots=True)
class FoundScheduler:
    """What was found of the running scheduler."""

    running: Running | None
    refusal: str = ""
    """Why a replica could not be asked, in one line; "" if every replica answers."""
    is_absent: bool = False
    """Whether the cluster has no running pod of the scheduler."""


@asynccontextmanager
async def find_running(there: Reached, address: str | None) -> AsyncIterator[FoundScheduler]:
    """The scheduler at an address, or the chart's scheduler. Raises GanglineError for an address without one."""
    if address is not None:
        async with _asked(address, there.credentials) as get:
            yield FoundScheduler(await _at(address, get, context_of(there.credentials)))
        return
    async with _forwarded(there) as found:
        running = found.running or await configured(there.client)
        yield FoundScheduler(running, found.refusal, found.is_absent)


async def find_judges(there: Reached, files: Sequence[str], profile: str | None, address: str | None) -> Judges:
    """The profiles to judge by; the scheduler is asked only if neither files nor a profile are named.

    Raises GanglineError and UsageError.
    """
    if files or profile is not None:
        return judges(files, profile, None)
    async with find_running(there, address) as found:
        by = judges(files, profile, found.running, found.is_absent)
        return by if found.running is not None or found.is_absent else replace(by, unasked=found.refusal)


@asynccontextmanager
async def _forwarded(there: Reached) -> AsyncIterator[FoundScheduler]:
    """The scheduler whose pods kubectl reaches."""
    try:
        pods = await pods_of_scheduler(there.client)
    except GanglineError as error:
        yield FoundScheduler(None, _line(error), isinstance(error, NoSchedulerPod))
        return

    async def ask(where: str, address: str, mine: AsyncExitStack) -> Running:
        get = await mine.enter_async_context(_asked(address, there.credentials))
        try:
            return Running(where, await _configuration(get), [get])
        except ApiError as error:
            raise not_given(where, error) from error

    with ended_in_order():
        async with AsyncExitStack() as stack:
            yield _found(*(await reach_all(pods, there.connection, ask, stack, FORWARDING)))


async def _at(address: str, get: Get, where: str) -> Running:
    try:
        return Running(address, await _configuration(get), [get])
    except ApiError as error:
        raise not_given(where, error) from error
    except GanglineError as error:
        raise ConfigError("--scheduler", address, str(error)) from error


def _found(replicas: Sequence[Replica[Running]], refused: Sequence[GanglineError]) -> FoundScheduler:
    """All replicas that answer as one scheduler, and the first reason why one does not."""
    refusal = _line(refused[0]) if refused else ""
    if not replicas:
        return FoundScheduler(None, refusal)
    first = replicas[0].answer
    endpoints = [get for replica in replicas for get in replica.answer.endpoints]
    return FoundScheduler(Running(first.where, first.configuration, endpoints), refusal)


def _line(error: GanglineError) -> str:
    return " ".join(str(error).split())


async def _configuration(get: Get) -> SchedulerConfiguration:
    body = await get("/configz")
    try:
        document = msgspec.json.decode(body)["componentconfig"]
        document.pop("extenders", None)  # their keys are not told, and nobody asks them here
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        advice = "something answers there that is no scheduler; correct the address of --scheduler if it is given"
        raise ConfigError("/configz", "", advice) from error
    return config.load(msgspec.json.encode(document), "/configz")


@asynccontextmanager
async def _asked(address: str, credentials: Credentials) -> AsyncIterator[Get]:
    """An endpoint; over TLS it is asked with the credentials for the API server."""
    url = url_of(address, "http", "https")
    context = context_for(url.host or "", credentials)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as session:

        async def get(path: str) -> bytes:
            authorization = await credentials.authorization() if url.scheme == "https" else None
            headers = {"Authorization": authorization} if authorization else {}
            asked = url.join(URL(path))
            try:
                async with session.get(asked, headers=headers, ssl=context) as answer:
                    if answer.status != 200:
                        raise ApiError(answer.status, answer.reason or "", f"{asked} answers {answer.status}")
                    return await bounded(answer.content.iter_any(), answer.status, path)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise unreachable(url, error) from error

        yield get
