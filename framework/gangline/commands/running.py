"""Asks the running scheduler for its configuration and its decisions.

The commands ask it at the given address, else through the API server's proxy. If neither answers, the chart's ConfigMap
shows at least its configuration.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from gangline import config
from gangline.commands.profiles import installed
from gangline.config import SchedulerConfiguration
from gangline.errors import ApiError, ConfigError, GanglineError
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient
from gangline.kube.interface import Client
from gangline.kube.resources import CONFIG_MAPS, PODS
from gangline.kube.transport import bounded

LABELS = "app.kubernetes.io/name=gangline,app.kubernetes.io/component=scheduler"
"""Labels of the chart's scheduler pods and its ConfigMap."""
PORTS = (("https", 10259), ("http", 8080))
"""The ports on which a scheduler pod may answer."""
PATIENCE = 3.0
"""Seconds that an endpoint has to answer."""

Get = Callable[[str], Awaitable[bytes]]
"""The body at a path of an endpoint; raises ApiError if there is none."""


@dataclass(frozen=True, slots=True)
class Running:
    """A running scheduler."""

    where: str
    """The source of this knowledge."""
    configuration: SchedulerConfiguration
    endpoints: Sequence[Get] = ()
    """Endpoints of its replicas, because only the leader knows decisions. Empty if no replica can be reached."""

    @property
    def serves(self) -> list[str]:
        """The schedulerNames."""
        return [profile.scheduler_name for profile in self.configuration.profiles]

    async def decision(self, uid: str) -> Mapping[str, Any] | None:
        """Why a pod is on its node, if a replica remembers the decision."""
        for get in self.endpoints:
            try:
                found = msgspec.json.decode(await get(f"/decisions/{uid}"))
            except (ApiError, msgspec.DecodeError):
                continue
            if isinstance(found, dict) and found.get("uid") == uid:
                return found
        return None


@dataclass(frozen=True, slots=True)
class Judges:
    """The profiles to judge by, and their source."""

    configuration: SchedulerConfiguration
    source: str
    running: Running | None = None
    profile: str = ""
    """The schedulerName whose profile judges every pod; "" for the profile that a pod names."""

    @property
    def serves(self) -> list[str]:
        """The schedulerNames."""
        return [profile.scheduler_name for profile in self.configuration.profiles]


async def judges(client: Client, files: Sequence[str], profile: str | None, running: Running | None) -> Judges:
    """The named files or profile, else the profiles of the running scheduler, else the installed profiles."""
    if files:
        return Judges(config.load_files(files), ", ".join(files), running)
    texts = installed()
    if profile is not None:
        if profile not in texts:
            raise ConfigError("--profile", profile, f"not installed; there are {', '.join(sorted(texts))}")
        named = config.load(texts[profile], profile)
        return Judges(named, "the installed profiles", running, named.profiles[0].scheduler_name)
    if running is not None:
        return Judges(running.configuration, running.where, running)
    return Judges(config.load_texts(texts), "the installed profiles; no running scheduler was found", None)


async def find_running(client: HttpClient, address: str | None, credentials: Credentials) -> Running | None:
    """The scheduler at an address, or the chart's scheduler. Raises ConfigError for an invalid address."""
    if address is not None:
        get = _direct(address, credentials)
        try:
            return Running(address, await _configuration(get), [get])
        except GanglineError as error:
            raise ConfigError("--scheduler", address, str(error)) from error
    endpoints = await _proxied(client)
    for where, get in endpoints:
        try:
            return Running(where, await _configuration(get), [get for _, get in endpoints])
        except GanglineError:
            continue
    return await configured(client)


async def _configuration(get: Get) -> SchedulerConfiguration:
    body = await get("/configz")
    try:
        document = msgspec.json.decode(body)["componentconfig"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ConfigError("/configz", "", "is not what a scheduler answers") from error
    document.pop("extenders", None)  # their keys are not told, and nobody asks them here
    return config.load(msgspec.json.encode(document), "/configz")


async def _proxied(client: HttpClient) -> list[tuple[str, Get]]:
    """The endpoints of the chart's scheduler pods that answer through the API server."""
    try:
        pods = (await client.list(PODS, label_selector=LABELS)).items
    except GanglineError:
        return []
    found = []
    for pod in pods:
        if pod.status.phase != "Running":
            continue
        for scheme, port in PORTS:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{scheme}:{pod.metadata.name}:{port}/proxy"
            found.append((f"the running scheduler {name}", _through(client, path)))
    return found


def _through(client: HttpClient, base: str) -> Get:
    async def get(path: str) -> bytes:
        return await client.raw(base + path, PATIENCE)

    return get


async def configured(client: Client) -> Running | None:
    """The scheduler in the chart's ConfigMap; other installations are not found."""
    try:
        maps = (await client.list(CONFIG_MAPS, label_selector=LABELS)).items
    except GanglineError:
        return None
    for found in maps:
        text = (found.data or {}).get("config.yaml")
        if text is not None:
            where = f"the ConfigMap {found.metadata.namespace}/{found.metadata.name} of the scheduler"
            try:
                return Running(where, config.load(text, where))
            except ConfigError:
                continue
    return None


def _direct(address: str, credentials: Credentials) -> Get:
    """Ask an address directly; over TLS with the credentials for the API server."""
    url = URL(address)
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError("--scheduler", address, "expected http://HOST:PORT or https://HOST:PORT")
    context = _context(url.host, credentials)

    async def get(path: str) -> bytes:
        authorization = await credentials.authorization() if url.scheme == "https" else None
        headers = {"Authorization": authorization} if authorization else {}
        limits = aiohttp.ClientTimeout(total=PATIENCE)
        try:
            async with aiohttp.request(
                "GET", url.join(URL(path)), headers=headers, ssl=context, timeout=limits
            ) as answer:
                if answer.status != 200:
                    raise ApiError(answer.status, answer.reason or "", f"{url.join(URL(path))} answers {answer.status}")
                return await bounded(answer, path)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
            raise ApiError(0, "Unreachable", f"{url} cannot be reached: {why or 'no answer'}") from error

    return get


def _context(host: str, credentials: Credentials) -> ssl.SSLContext:
    """The server's certificate is checked, unless the server is this machine: a port that kubectl forwards."""
    if host == "localhost" or _is_loopback(host):
        return credentials.unverified()
    return credentials.ssl_context or ssl.create_default_context()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
