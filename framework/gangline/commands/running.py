"""What a command knows of the running scheduler: its configuration and decisions, and the profiles to judge by."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import msgspec
from yarl import URL

from gangline import config
from gangline.commands.profiles import installed, text_of
from gangline.commands.reaching import reason_of
from gangline.config import SchedulerConfiguration
from gangline.errors import ApiError, ClusterError, ConfigError, GanglineError, NotAllowed
from gangline.kube.auth import Credentials
from gangline.kube.interface import Client
from gangline.kube.resources import CONFIG_MAPS
from gangline.process.hosts import is_loopback

LABELS = "app.kubernetes.io/name=gangline,app.kubernetes.io/component=scheduler"
"""Labels of the chart's scheduler pods and its ConfigMap."""

Get = Callable[[str], Awaitable[bytes]]
"""The body at a path of an endpoint; raises ApiError if there is none."""


@dataclass(slots=True)
class Running:
    """A running scheduler."""

    where: str
    """Where the configuration was found, for messages."""
    configuration: SchedulerConfiguration
    endpoints: Sequence[Get] = ()
    """The endpoints of all replicas, because only the leader knows decisions; empty if no replica can be reached."""
    refusal: str = ""
    """Why a replica does not tell decisions; "" if every replica does."""

    @property
    def serves(self) -> list[str]:
        """The schedulerNames."""
        return [profile.scheduler_name for profile in self.configuration.profiles]

    async def decision(self, uid: str) -> Mapping[str, Any] | None:
        """Why a pod is on its node, if a replica remembers the decision.

        A replica that fails is not asked again, and the one that remembers is asked first from then on.
        """
        for get in tuple(self.endpoints):
            others = [other for other in self.endpoints if other is not get]
            try:
                found = msgspec.json.decode(await get(f"/decisions/{uid}"))
            except (ApiError, msgspec.DecodeError) as error:
                if not isinstance(error, ApiError) or error.status != 404:
                    self.endpoints, self.refusal = others, str(error)
                continue
            if isinstance(found, dict) and found.get("uid") == uid:
                self.endpoints = [get, *others]
                return found
        return None


@dataclass(frozen=True, slots=True)
class Judges:
    """The profiles to judge by, and their source."""

    configuration: SchedulerConfiguration
    source: str
    running: Running | None = None
    profile: str = ""
    """The schedulerName whose profile judges every pod; "" if each pod's own schedulerName decides."""
    unasked: str = ""
    """Why the running scheduler, whose profiles would judge, could not be asked; "" if it was, or if there is none."""

    @property
    def serves(self) -> list[str]:
        """The schedulerNames."""
        return [profile.scheduler_name for profile in self.configuration.profiles]


def judges(files: Sequence[str], profile: str | None, running: Running | None, is_absent: bool = True) -> Judges:
    """The named files or profile, else the profiles of the running scheduler, else the installed profiles. Without
    `running` a scheduler that could not be asked may run, unless it `is_absent`.

    Raises ConfigError and UsageError.
    """
    if files:
        return Judges(config.load_files(files), ", ".join(files), running)
    texts = installed()
    if profile is not None:
        named = config.load(text_of(profile, texts), profile)
        return Judges(named, "the installed profiles", running, named.profiles[0].scheduler_name)
    if running is not None:
        return Judges(running.configuration, running.where, running)
    why = "no running scheduler was found" if is_absent else "the running scheduler could not be asked"
    return Judges(config.load_texts(texts), f"the installed profiles; {why}", None)


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


def url_of(address: str, *schemes: str) -> URL:
    """The value of --scheduler with one of these schemes. Raises UsageError."""
    expected = " or ".join(f"{scheme}://HOST:PORT" for scheme in schemes)
    try:
        url = URL(address)
    except ValueError as error:
        raise click.UsageError(f"--scheduler: {address}: {error}; expected {expected}") from error
    if url.scheme not in schemes or not url.host:
        raise click.UsageError(f"--scheduler: {address}: expected {expected}")
    return url


def not_given(where: str, error: ApiError) -> GanglineError:
    """The error of a command whose request the scheduler has refused or not answered; its class sets the exit code."""
    if error.status == 403:
        return NotAllowed(
            where, error.message, "ask for the right to read this path (page Rights of the documentation)"
        )
    if error.status == 401:
        return ClusterError(where, error.message, "log in again, or choose another context with --context")
    if error.status == 0:
        advice = "check that the scheduler runs, the network, and the address of --scheduler if it is given"
        return ClusterError(where, error.message, advice)
    if error.status == 404:
        advice = "something answers there that is no scheduler; correct the address of --scheduler if it is given"
        return ConfigError(where, "", f"{error.message}: {advice}")
    return ConfigError(where, "", error.message)


def unreachable(url: URL, error: Exception) -> ApiError:
    """The error that a scheduler does not answer: with the error of the system or of TLS, without aiohttp's words."""
    why = reason_of(error) or str(error) or "no answer in time"
    return ApiError(0, "Unreachable", f"no scheduler answers at {url}: {why}")


def context_for(host: str, credentials: Credentials) -> ssl.SSLContext:
    """TLS settings that check the server's certificate, unless the server is this machine, as with a port that kubectl
    forwards.
    """
    if is_loopback(host):
        return credentials.unverified()
    return credentials.ssl_context or ssl.create_default_context()
