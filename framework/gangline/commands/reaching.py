"""The connection of a command to the API server: found as kubectl finds it, tried once, and its failures in one line.

Each failure names the context and the API server, says why, and says what to do.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import msgspec

from gangline.commands.options import Connection
from gangline.errors import ApiError, ClusterError, ConfigError, Forbidden, NotAllowed, NotFound
from gangline.kube import auth
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient
from gangline.kube.interface import Client

PATIENCE = 10.0
"""Seconds within which the API server has to give its first answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """An API server that has answered."""

    client: HttpClient
    credentials: Credentials
    where: str
    """The context and the address, for messages."""
    version: str
    """The version of the API server; "" if the server does not say."""
    connection: Connection
    """The options by which the API server was found, for kubectl."""


class _ServerVersion(msgspec.Struct, rename="camel"):
    git_version: str


@asynccontextmanager
async def reached(connection: Connection, patience: float = PATIENCE) -> AsyncIterator[Reached]:
    """A client of the API server for a block, in which ApiErrors that the user can act upon become ClusterErrors.

    The API server has so many seconds for its first answer.
    """
    credentials = credentials_of(connection)
    where = f"{context_of(credentials)} ({credentials.server})"
    with _explained(where, connection):
        async with HttpClient(credentials) as client:
            yield Reached(client, credentials, where, await _version(client, where, patience), connection)


@asynccontextmanager
async def connected(kubeconfig: str | None = None, context: str | None = None) -> AsyncIterator[Client]:
    """A client of the API server for a block, with the same errors as `reached`."""
    async with reached(Connection(kubeconfig, context)) as there:
        yield there.client


def context_of(credentials: Credentials) -> str:
    """The name of the context of credentials, in words for messages."""
    return f"context {credentials.context}" if credentials.context else "the service account of this pod"


def credentials_of(connection: Connection) -> Credentials:
    """The credentials for the context. Raises ClusterError."""
    try:
        return auth.load(connection.kubeconfig, connection.context)
    except ConfigError as error:
        where = f"context {connection.context}" if connection.context else _UNKNOWN
        raise ClusterError(where, str(error), f"{_NAME_ONE}, and one of its contexts with --context") from error


def component_credentials(kubeconfig: str | None) -> Credentials:
    """The credentials of a command that has no --context, such as `gangline run`. Raises ClusterError."""
    try:
        return auth.load(kubeconfig)
    except ConfigError as error:
        raise ClusterError(_UNKNOWN, str(error), _NAME_ONE) from error


_UNKNOWN = "no API server is known"
_NAME_ONE = "name a kubeconfig with --kubeconfig or $KUBECONFIG"


async def _version(client: HttpClient, where: str, patience: float) -> str:
    """The version of the API server; the first request of a command, which is not repeated."""
    try:
        return msgspec.json.decode(await client.raw("/version", patience), type=_ServerVersion).git_version
    except Forbidden:
        return ""
    except (NotFound, msgspec.MsgspecError) as error:
        raise _not_an_api_server(where) from error


@contextmanager
def _explained(where: str, connection: Connection) -> Iterator[None]:
    """A block in which ApiErrors become ClusterErrors: each names the place, the reason, and what the user can do."""
    try:
        yield
    except Forbidden as error:
        context = f" --context {connection.context}" if connection.context else ""
        advice = (
            "ask for the right (page Rights of the documentation); "
            f"`kubectl auth can-i --list{context}` shows those that you have"
        )
        raise NotAllowed(where, error.message, advice) from error
    except ApiError as error:
        if error.status == 401:
            why = "the API server does not accept these credentials (401 Unauthorized)"
            raise ClusterError(where, why, "log in again, or choose another context with --context") from error
        if 300 <= error.status < 400:  # a page to log in
            raise _not_an_api_server(where) from error
        if untrusted := _untrusted(error):
            why = f"the certificate of the API server is not trusted: {untrusted}"
            advice = "correct certificate-authority in the kubeconfig, or choose another context with --context"
            raise ClusterError(where, why, advice) from error
        if error.status == 0:
            advice = "check the network and the server of the kubeconfig, or choose another context with --context"
            raise ClusterError(where, f"no API server answers: {_reason(error)}", advice) from error
        if error.status in (429, *range(500, 600)):
            raise ClusterError(where, f"the API server answers {error}", "try again, or look at its log") from error
        raise


def _not_an_api_server(where: str) -> ClusterError:
    return ClusterError(where, "something answers there that is no API server", "correct the server of the kubeconfig")


def _untrusted(error: ApiError) -> str:
    """Why the certificate of the server is not trusted; "" if that is not why there is no answer."""
    cause = _of_the_system(error.__cause__)
    return cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else ""


def _reason(error: ApiError) -> str:
    return reason_of(error.__cause__) or str(error)


def reason_of(error: BaseException | None) -> str:
    """Why a server gives no answer: the error of the system or of TLS, without aiohttp's words; "" if there is none."""
    cause = _of_the_system(error)
    if isinstance(cause, socket.gaierror):
        return cause.strerror or str(cause)
    if not isinstance(cause, OSError):
        return str(cause or "")
    is_plain = cause.errno is not None and cause.errno > 0 and type(cause).__module__ == "builtins"
    return os.strerror(cause.errno) if is_plain and cause.errno else str(cause)


def _of_the_system(error: BaseException | None) -> BaseException | None:
    """The error of the system or of TLS: the error itself, or the one in an error of aiohttp."""
    return getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
