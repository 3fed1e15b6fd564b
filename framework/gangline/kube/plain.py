"""Reads a pod's service account, and a kubeconfig whose user has certificates or a token, in a few lines.

Most schedulers have such credentials, and importing the official client takes half a second and some 20 MB. All other
and all invalid files are left to `sources`: a reader in this module returns None for them, and never raises.
"""

from __future__ import annotations

import atexit
import base64
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import getproxies

import yaml

from gangline.kube.access import REREAD, Access

CLUSTER = frozenset({"server", "tls-server-name", "certificate-authority", "certificate-authority-data"})
CERTIFICATES = ("client-certificate", "client-key")
USER = frozenset({"token", "tokenFile", *CERTIFICATES, *(f"{key}-data" for key in CERTIFICATES)})

_written: dict[bytes, str] = {}
"""Files with the data that a kubeconfig contains itself, by content."""


def from_service_account(folder: Path, environ: Mapping[str, str]) -> Access | None:
    """The credentials of a pod: the address in its environment, token and ca.crt in ``folder``."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or getproxies():
        return None
    authority = folder / "ca.crt"
    try:
        token = (folder / "token").read_text()
        if not token or not authority.read_text():
            return None
    except (OSError, ValueError):
        return None
    host = f"[{host}]" if ":" in host or "%" in host else host
    return Access(
        server=f"https://{host}:{port}",
        source=str(folder),
        authorization=f"bearer {token}".strip(),
        ca_file=str(authority),
        valid_for=REREAD,
    )


def from_kubeconfig(paths: list[str], context: str | None) -> Access | None:
    """The credentials in one kubeconfig file for a context, by default the current one."""
    source = os.pathsep.join(paths)
    if os.pathsep in source or getproxies():
        return None
    path = os.path.expanduser(source)
    try:
        with open(path) as file:
            config = yaml.safe_load(file)
        chosen = _named(config["contexts"], context or config["current-context"])["context"]
        cluster = _plain(_named(config["clusters"], chosen["cluster"])["cluster"], CLUSTER)
        user = _plain(_named(config["users"], chosen["user"])["user"], USER)
        return _access(cluster, user, source, os.path.dirname(os.path.abspath(path)))
    except (yaml.YAMLError, LookupError, OSError, TypeError, ValueError):
        return None


def _access(cluster: Mapping[str, str], user: Mapping[str, str], source: str, folder: str) -> Access:
    server = cluster["server"].rstrip("/")
    token = user.get("token")
    if token is None and "tokenFile" in user:
        with open(_beside(folder, user["tokenFile"])) as file:
            token = file.read()
        if not token:
            raise ValueError("the file with the token is empty")
    tls = server.startswith("https")
    return Access(
        server=server,
        source=source,
        authorization=None if token is None else f"Bearer {token}".strip(),
        ca_file=_file(cluster, "certificate-authority", folder) if tls else None,
        cert_file=_file(user, "client-certificate", folder) if tls else None,
        key_file=_file(user, "client-key", folder) if tls else None,
        server_name=cluster.get("tls-server-name"),
        valid_for=REREAD if "tokenFile" in user or "client-certificate" in user else None,
    )


def _named(entries: Any, name: Any) -> Mapping[str, Any]:
    """The one entry of that name. Raises LookupError or TypeError where the list is not as it should be."""
    if not isinstance(entries, list) or not isinstance(name, str) or not name:
        raise TypeError("not a list of names")
    found: list[Mapping[str, Any]] = [entry for entry in entries if entry["name"] == name]
    if len(found) != 1:
        raise LookupError(name)
    return found[0]


def _plain(mapping: Any, known: frozenset[str]) -> Mapping[str, str]:
    """The mapping, if it has known keys alone, each with a text. Raises ValueError otherwise."""
    plain = isinstance(mapping, dict) and mapping
    if not plain or not all(key in known and isinstance(text, str) and text for key, text in mapping.items()):
        raise ValueError("not plain")
    found: Mapping[str, str] = mapping
    return found


def _file(mapping: Mapping[str, str], key: str, folder: str) -> str | None:
    """The file that a key names, or one with what the key with ``-data`` holds."""
    if data := mapping.get(f"{key}-data"):
        return _kept(base64.b64decode(data))
    if key not in mapping:
        return None
    path = _beside(folder, mapping[key])
    if not os.path.isfile(path):
        raise FileNotFoundError(path)
    return path


def _beside(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path))


def _kept(content: bytes) -> str:
    """A file for this user alone that holds the bytes until the process ends: TLS takes keys from files."""
    path = _written.get(content)
    if path is None or not os.path.isfile(path):
        descriptor, path = tempfile.mkstemp(prefix="gangline-")
        with open(descriptor, "wb") as file:
            file.write(content)
        atexit.register(Path(path).unlink, missing_ok=True)
        _written[content] = path
    return path
