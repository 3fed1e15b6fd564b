"""How a connection to an extender is secured, from the extender's `enableHTTPS` and `tlsConfig`."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from gangline.config import Extender, ExtenderTLS
from gangline.errors import ConfigError


def context_of(extender: Extender, path: str) -> ssl.SSLContext | bool:
    """The SSL setting for aiohttp; True checks against the system's authorities. Raises ConfigError.

    As in kube-scheduler, `enableHTTPS` without an authority trusts every certificate. `path` is the extender's path in
    the configuration.
    """
    if extender.tls_config is None and not extender.enable_https:
        return True
    tls = extender.tls_config or ExtenderTLS()
    has_authority = bool(tls.ca_file or tls.ca_data)
    if tls.insecure and has_authority:
        raise ConfigError("", f"{path}.tlsConfig", "insecure does not go with a caFile or caData")
    trusts_all = tls.insecure or (extender.enable_https and not has_authority)
    try:
        context = _context(tls, trusts_all)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ConfigError("", f"{path}.tlsConfig", f"cannot be used: {error}") from error
    return context


def _context(tls: ExtenderTLS, trusts_all: bool) -> ssl.SSLContext:
    if trusts_all:
        context = ssl._create_unverified_context()  # without the system's authorities, which take 26 ms to read
    elif tls.ca_data:
        context = ssl.create_default_context(cadata=tls.ca_data.decode("ascii"))
    else:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
    if (tls.cert_data or tls.cert_file) and (tls.key_data or tls.key_file):
        with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads certificates from files only
            cert = _file(tls.cert_data, tls.cert_file, Path(folder, "tls.crt"))
            context.load_cert_chain(cert, _file(tls.key_data, tls.key_file, Path(folder, "tls.key")))
    return context


def _file(data: bytes, file: str, temporary: Path) -> str:
    """The file to read; inline data come before a file, as in client-go."""
    if not data:
        return file
    temporary.write_bytes(data)
    return str(temporary)
