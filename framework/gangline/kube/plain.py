"""Reads a pod's service account, and a kubeconfig whose user has certificates, a token or nothing, in a few lines.

Most schedulers have such credentials, and importing the official client takes half a second and some 20 MB. `sources`
reads all other files, and reports invalid ones: a reader in this module returns None for such a file, and never raises.
"""

from __future__ import annotations

import atexit
import base64
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from gangline.kube.access import REREAD, Access
from gangline.kube.proxies import proxy_for

CLUSTER = frozenset({"server", "tls-server-name", "certificate-authority", "certificate-authority-data"})
CERTIFICATES = ("client-certificate", "client-key")
USER = frozenset({"token", "tokenFile", *CERTIFICATES, *(f"{key}-data" for key in CERTIFICATES)})

_written: dict[bytes, str] = {}
"""By content: the temporary file with data that a kubeconfig contains itself, such as client-key-data."""


def from_service_account(folder: Path, environ: Mapping[str, str]) -> Access | None:
    """The credentials of a pod: the address in its environment, token and ca.crt in ``folder``."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    server = f"https://[{host}]:{port}" if ":" in host or "%" in host else f"https://{host}:{port}"
    authority = folder / "ca.crt"
    try:
        proxy = proxy_for(server)
        token = (folder / "token").read_text()
        if not token or not authority.read_text():
            return None
    except (OSError, ValueError):
        return None
    return Access(
        server=server,
        source=str(folder),
        authorization=header("bearer", token),
        ca_file=str(authority),
        proxy=proxy,
        valid_for=REREAD,
        namespace=namespace_in(folder),
    )


def namespace_in(folder: Path) -> str:
    """The namespace of a pod; "" if the kubelet has not written it."""
    try:
        return (folder / "namespace").read_text().strip()
    except (OSError, ValueError):
        return ""


def from_kubeconfig(paths: list[str], context: str | None) -> Access | None:
    """The credentials in one kubeconfig file for a context, by default the current one."""
    source = os.pathsep.join(paths)
    if os.pathsep in source:
        return None
    path = os.path.expanduser(source)
    try:
        with open(path) as file:
            config = yaml.safe_load(file)
        name = context or config["current-context"]
        chosen = _named(config["contexts"], name)["context"]
        namespace = chosen.get("namespace") or ""
        if not isinstance(namespace, str):
            return None
        cluster = _plain(_named(config["clusters"], chosen["cluster"])["cluster"], CLUSTER)
        user = _plain(_named(config["users"], chosen["user"])["user"], USER)
        access = _access(cluster, user, source, os.path.dirname(os.path.abspath(path)))
        return replace(access, context=name, namespace=namespace)
    except (yaml.YAMLError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError):
        return None


def _access(cluster: Mapping[str, str], user: Mapping[str, str], source: str, folder: str) -> Access:
    server = cluster["server"].rstrip("/")
    token = user.get("token")
    if "tokenFile" in user:
        token = token_in(folder, user["tokenFile"]) or token
        if not token:
            raise ValueError("there is no token in the file")
    tls = server.startswith("https")
    return Access(
        server=server,
        source=source,
        authorization=None if token is None else header("Bearer", token),
        ca_file=_file(cluster, "certificate-authority", folder) if tls else None,
        cert_file=_file(user, "client-certificate", folder) if tls else None,
        key_file=_file(user, "client-key", folder) if tls else None,
        server_name=cluster.get("tls-server-name"),
        proxy=proxy_for(server),
        valid_for=REREAD if "tokenFile" in user or "client-certificate" in user else None,
    )


def token_in(folder: str, path: str) -> str:
    """The token in a tokenFile; "" if there is none. kubectl takes it before a token beside the name of the file."""
    try:
        return Path(_beside(folder, path)).read_text().strip()
    except (OSError, ValueError):
        return ""


def header(scheme: str, secret: str = "") -> str:
    """The Authorization header; files with tokens may begin and end with lines without a token."""
    return f"{scheme} {secret.strip()}".strip()


def _named(entries: Any, name: Any) -> Mapping[str, Any]:
    """The only entry with this name. Raises LookupError or TypeError if the list is malformed or has no such entry."""
    if not isinstance(entries, list) or not isinstance(name, str) or not name:
        raise TypeError("not a list of names")
    found: list[Mapping[str, Any]] = [entry for entry in entries if entry["name"] == name]
    if len(found) != 1:
        raise LookupError(name)
    return found[0]


def _plain(mapping: Any, known: frozenset[str]) -> Mapping[str, str]:
    """The mapping, if all its keys are known and all its values are texts. Raises ValueError otherwise."""
    if not isinstance(mapping, dict) or not all(
        key in known and isinstance(text, str) and text for key, text in mapping.items()
    ):
        raise ValueError("not plain")
    found: Mapping[str, str] = mapping
    return found


def _file(mapping: Mapping[str, str], key: str, folder: str) -> str | None:
    """The file that a key names, or a file with the content of the key with ``-data``; None without either key."""
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
