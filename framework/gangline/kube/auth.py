"""The address of the API server and the credentials for it, kept up to date while the process runs.

`plain` reads simple files. `sources` reads all others, and is imported only if needed: the official client that it uses
takes half a second and some 20 MB.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gangline.errors import ConfigError
from gangline.kube import plain
from gangline.kube.access import Access

log = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RETRY = 10.0  # seconds between two readings at least, whatever the server refuses
PATIENCE = 2.0  # seconds that a request waits for new credentials while it has old ones that may still be good


class Credentials:
    """An API server's address and the current way to authenticate to it.

    ``read`` is called by the constructor, and again in a thread when the credentials expire or the server refuses them.
    If ``read`` fails or takes long then, the old credentials stay in use.
    """

    def __init__(self, read: Callable[[], Access], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._renewing: asyncio.Task[None] | None = None
        self._read_at = clock()
        self._access = access = read()
        self._due = self._next(access)
        self.server = _address(access)
        self.server_name = access.server_name
        self.proxy = access.proxy
        self.context = access.context
        self.namespace = access.namespace
        self.ssl_context = _ssl_context(access)

    @property
    def is_due(self) -> bool:
        """Whether the credentials have to be read again before the next request."""
        return self._due is not None and self._clock() >= self._due

    @property
    def last_authorization(self) -> str | None:
        """The Authorization header as it was last read, if any; to be sent unless `is_due`."""
        return self._access.authorization

    async def authorization(self) -> str | None:
        """The Authorization header to send now, if any."""
        if self.is_due:
            await self._renewed(PATIENCE)
        return self._access.authorization

    async def renewed(self, rejected: str | None) -> str | None:
        """A header other than the one that the server rejected, or None when there is none."""
        unchanged = self._access.authorization == rejected
        if unchanged and (self._renewing is not None or self._clock() >= self._read_at + RETRY):
            await self._renewed()
        current = self._access.authorization
        return current if current != rejected else None

    def unverified(self) -> ssl.SSLContext:
        """TLS settings with the same client certificate that accept every server's certificate: for a port of this
        machine that kubectl forwards, where no certificate has the server's name.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _load_client_certificate(context, self._access)
        return context

    async def _renewed(self, patience: float | None = None) -> None:
        """Read the credentials again, or wait for those that are being read; no longer than `patience`, if given."""
        renewing = self._renewing
        if renewing is None:
            renewing = self._renewing = asyncio.create_task(self._renew())
            renewing.add_done_callback(self._has_renewed)
        await asyncio.wait((renewing,), timeout=patience)
        if renewing.done():
            renewing.result()

    def _has_renewed(self, renewing: asyncio.Task[None]) -> None:
        self._renewing = None

    async def _renew(self) -> None:
        self._read_at = self._clock()
        try:
            access = await asyncio.to_thread(self._read)
            _load_authorities(self.ssl_context, access)
            _load_client_certificate(self.ssl_context, access)
        except ConfigError as error:
            log.error("credentials could not be read again, going on with the old ones: %s", error)
            self._due = self._clock() + RETRY
            return
        self._access = access
        self._due = self._next(access)

    def _next(self, access: Access) -> float | None:
        return None if access.valid_for is None else self._clock() + access.valid_for


def _address(access: Access) -> str:
    """The address of the API server. Raises ConfigError for an address to which no request can be sent."""
    server = access.server.rstrip("/")
    why = "expected https://HOST:PORT"
    try:
        url = urlsplit(server)
        is_plain = server.isascii() and server.isprintable() and not set(server) & set(' <>"\\^`{|}@?#')
        if is_plain and url.scheme in ("http", "https") and url.hostname and url.port != 0:
            return server
    except ValueError as error:
        why = f"{error}; {why}"
    raise ConfigError(access.source, f"server {access.server!r}", why)


def load(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Credentials:
    """The credentials for a context (by default the current one).

    The first existing source counts: the path given, ``$KUBECONFIG`` (several paths, joined
    by colons, are merged), ``~/.kube/config``, the service account of the pod. Raises ConfigError.
    """
    if paths := _kubeconfig_paths(kubeconfig, environ):
        return Credentials(lambda: _from_kubeconfig(paths, context))
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return Credentials(lambda: _from_service_account(service_account, environ))
    home = _default_kubeconfig(environ)
    raise ConfigError(str(home), "", "no such file, $KUBECONFIG is not set, and this is not a pod")


def _from_kubeconfig(paths: list[str], context: str | None) -> Access:
    if access := plain.from_kubeconfig(paths, context):
        return access
    from gangline.kube import sources

    return sources.from_kubeconfig(paths, context)


def _from_service_account(folder: Path, environ: Mapping[str, str]) -> Access:
    if access := plain.from_service_account(folder, environ):
        return access
    from gangline.kube import sources

    return sources.from_service_account(folder, environ)


def _default_kubeconfig(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home()) / ".kube" / "config"


def _kubeconfig_paths(kubeconfig: str | None, environ: Mapping[str, str]) -> list[str]:
    """The kubeconfig files to merge; empty if no file exists and none was named."""
    if kubeconfig:
        if not Path(kubeconfig).exists():
            raise ConfigError(kubeconfig, "", "no such file")
        return [kubeconfig]
    if listed := [path for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]:
        if found := [path for path in listed if Path(path).exists()]:
            return found
        raise ConfigError(os.pathsep.join(listed), "", "no such file (from $KUBECONFIG)")
    default = _default_kubeconfig(environ)
    return [str(default)] if default.exists() else []


def _ssl_context(access: Access) -> ssl.SSLContext | None:
    if not access.server.startswith("https:"):
        return None
    if not access.verify and not access.ca_file:
        context = ssl._create_unverified_context()  # without the system's authorities, which take 26 ms to read
        _load_client_certificate(context, access)
        return context
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise _unusable_authority(access, error) from error
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_client_certificate(context, access)
    return context


def _load_authorities(context: ssl.SSLContext | None, access: Access) -> None:
    """Trust the authorities in the file from now on, too: a cluster may get another one. The old ones stay trusted."""
    if context is None or not access.ca_file:
        return
    try:
        context.load_verify_locations(cafile=access.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise _unusable_authority(access, error) from error


def _unusable_authority(access: Access, error: OSError) -> ConfigError:
    why = f"cannot be used: {_reason(error, access.ca_file)}"
    return ConfigError(access.source, "certificate-authority", why)


def _load_client_certificate(context: ssl.SSLContext | None, access: Access) -> None:
    """The TLS context for new connections."""
    if context is None or not access.cert_file:
        return
    try:
        # First into settings that nobody uses: a certificate without its key would spoil those in use.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(access.cert_file, access.key_file)
        context.load_cert_chain(access.cert_file, access.key_file)
    except (OSError, ssl.SSLError) as error:
        why = f"cannot be used: {_reason(error, access.cert_file, access.key_file)}"
        raise ConfigError(access.source, "client-certificate and client-key", why) from error


def _reason(error: OSError, *files: str | None) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return f"{', '.join(filter(None, files))}: {error.strerror or error}"
