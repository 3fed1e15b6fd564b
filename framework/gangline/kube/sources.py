"""Reads a kubeconfig, as kubectl does, or a pod's service account, through the official client."""

# mypy: allow-untyped-calls
# The official client's loaders are not annotated.

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import Configuration
from kubernetes.client.rest import should_bypass_proxies
from kubernetes.config import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger
from msgspec.structs import replace

from gangline.errors import ConfigError
from gangline.kube.access import REREAD, Access
from gangline.kube.exec_plugins import ExecPlugin
from gangline.kube.plain import header, namespace_in, token_in
from gangline.kube.proxies import is_loopback

EXPIRY_MARGIN = 60.0  # seconds before its end at which a token is replaced
IN_FILES = ("tokenFile", "client-certificate", "auth-provider")  # keys of a user
CERTIFICATES = ("client-certificate", "client-key")  # keys of a user that name files
IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")  # keys of a user


def from_service_account(folder: Path, environ: Mapping[str, str]) -> Access:
    """The credentials of a pod: the address in its environment, token and ca.crt in ``folder``."""
    configuration = Configuration()
    with _translated(str(folder)):
        InClusterConfigLoader(
            token_filename=str(folder / "token"),
            cert_filename=str(folder / "ca.crt"),
            try_refresh_token=False,
            environ=environ,
        ).load_and_set(configuration)
    return replace(_access(configuration, str(folder), REREAD), namespace=namespace_in(folder))


def from_kubeconfig(paths: list[str], context: str | None) -> Access:
    """The credentials in the merged kubeconfig files for a context, by default the current one."""
    source = os.pathsep.join(paths)
    configuration = Configuration()
    beside_the_file: Any = None  # None: relative paths start at the file's folder
    with _translated(source):
        merger = _FilesInOrder(source)
        config: Any = merger.config
        if config is None or not isinstance(config.value, dict):
            raise ConfigError(source, "", "this is not a kubeconfig")
        valid_for = _resolve_user(config, context)
        name = context or config["current-context"]
        namespace = _context(config, context).safe_get("namespace") or ""
        if not isinstance(namespace, str):
            raise ConfigError(source, f"contexts[{name}].namespace", "is no text")
        cluster: ConfigNode = config["clusters"].get_with_name(_context(config, context)["cluster"])["cluster"]
        KubeConfigLoader(
            config,
            active_context=context,
            config_base_path=beside_the_file,
            config_persister=merger.save_changes,
        ).load_and_set(configuration)
    access = _access(configuration, source, valid_for)
    if proxy := cluster.safe_get("proxy-url"):  # no exception of the environment counts for it
        access = replace(access, proxy=proxy)
    return replace(access, context=str(name), namespace=namespace)


class _FilesInOrder(KubeConfigMerger):
    """Merges kubeconfig files as kubectl does: the first file that sets a value counts, and a file may be empty."""

    def load_config(self, path: str) -> None:
        """Add one file."""
        first = self.config_merged.safe_get("current-context") if self.config_merged is not None else None
        if os.pathsep in str(self._given) and not _has_content(path):
            self.config_files[path] = None  # `save_changes` asks for every file
            return
        super().load_config(path)
        if first and self.config_merged is not None:
            self.config_merged.value["current-context"] = first

    def __init__(self, paths: str) -> None:
        self._given = paths
        super().__init__(paths)


def _has_content(path: str) -> bool:
    with open(path) as file:
        return yaml.safe_load(file) is not None


def _resolve_user(config: ConfigNode, context: str | None) -> float | None:
    """Runs the user's exec plugin, if any, and replaces it with the credentials that it returns.

    The official loader would run the plugin too, but when the plugin fails, the loader logs that and goes on
    without credentials. Returns after how many seconds the credentials have to be read again.
    """
    chosen = _context(config, context)
    name = chosen.safe_get("user")
    if not name:
        return None
    entry = config["users"].get_with_name(name, safe=True)
    if entry is None:
        raise ConfigError(str(config.path), f"users[{name}]", "there is no such user")
    if not entry.value.get("user"):
        return None
    user = entry["user"]
    if refused := next((key for key in IMPERSONATION if user.safe_get(key)), None):
        raise ConfigError(str(user.path), f"users[{name}].{refused}", "impersonation is not supported")
    if "auth-provider" not in user:
        _find_files(user)
    if "exec" in user and "auth-provider" not in user:  # the order that the loader has too
        cluster: Any = config["clusters"].get_with_name(chosen["cluster"])
        return _run_exec_plugin(user, cluster["cluster"], f"users[{name}].exec")
    return REREAD if any(key in user for key in IN_FILES) else None


def _find_files(user: ConfigNode) -> None:
    """Read the files of a user as kubectl does, where the official loader does not.

    The content of tokenFile counts more than token, and the paths of certificates begin at the folder of the user's own
    file, not of the cluster's.
    """
    folder = os.path.dirname(os.path.abspath(str(user.path)))
    for key in CERTIFICATES:
        if isinstance(path := user.safe_get(key), str) and path:
            user.value[key] = os.path.join(folder, path)
    path = user.safe_get("tokenFile")
    if isinstance(path, str) and path and "token" in user and (token := token_in(folder, path)):
        user.value["token"] = token


def _context(config: ConfigNode, name: str | None) -> ConfigNode:
    name = name or config.safe_get("current-context")
    if not name:
        raise ConfigError(str(config.path), "current-context", "is not set, and no context was named")
    found = config["contexts"].get_with_name(name, safe=True)
    if found is None:
        names = ", ".join(sorted(entry["name"] for entry in config["contexts"].value))
        raise ConfigError(str(config.path), f"contexts[{name}]", f"no such context; there are: {names}")
    chosen: ConfigNode = found["context"]
    return chosen


def _run_exec_plugin(user: ConfigNode, cluster: ConfigNode, where: str) -> float | None:
    folder = os.path.dirname(os.path.abspath(str(user.path)))
    try:
        status = ExecPlugin(user["exec"], folder, cluster).run()
    except OSError as error:
        raise ConfigError(str(user.path), f"{where}.command", _system_error(error)) from error
    except ConfigException as error:
        raise ConfigError(str(user.path), where, _one_line(error)) from error
    return _use_exec_status(user, status, where)


def _use_exec_status(user: ConfigNode, status: dict[str, Any], where: str) -> float | None:
    del user.value["exec"]
    if token := status.get("token"):
        user.value["token"] = token
    if certificate := status.get("clientCertificateData"):
        user.value["client-certificate-data"] = _base64(certificate)
        user.value["client-key-data"] = _base64(status.get("clientKeyData", ""))
    if not token and not certificate:
        raise ConfigError(str(user.path), where, "the plugin gave neither a token nor a certificate")
    if not (end := status.get("expirationTimestamp")):
        return None
    try:
        left = (datetime.fromisoformat(end) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError) as error:
        raise ConfigError(str(user.path), f"{where}: expirationTimestamp", str(error)) from error
    return max(left - EXPIRY_MARGIN, 1.0)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _access(configuration: Configuration, source: str, valid_for: float | None) -> Access:
    authorization = configuration.api_key.get("BearerToken")
    proxy = configuration.proxy
    exceptions = configuration.no_proxy or ""
    if proxy and (is_loopback(configuration.host) or should_bypass_proxies(configuration.host, exceptions)):
        proxy = None
    return Access(
        server=configuration.host,
        source=source,
        authorization=header(*authorization.split(" ", 1)) if authorization else None,
        ca_file=configuration.ssl_ca_cert,
        cert_file=configuration.cert_file,
        key_file=configuration.key_file,
        verify=configuration.verify_ssl,
        server_name=configuration.tls_server_name,
        proxy=proxy,
        valid_for=valid_for,
    )


@contextmanager
def _translated(source: str) -> Iterator[None]:
    """Raises every error of the official loader as a ConfigError of one line."""
    try:
        yield
    except ConfigException as error:
        why = _one_line(error).removeprefix("Invalid kube-config file. ")
        raise ConfigError(source, "", why) from error
    except yaml.YAMLError as error:
        raise ConfigError(source, "", "bad YAML: " + _one_line(error)) from error
    except RecursionError as error:
        raise ConfigError(source, "", "nested too deeply") from error
    except binascii.Error as error:
        raise ConfigError(source, "", f"a value that should be base64 is not: {error}") from error
    except OSError as error:
        raise ConfigError(source, "", _system_error(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(source, "", f"this is not a kubeconfig: {error!r}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _system_error(error: OSError) -> str:
    """What the operating system says, and of which file, without the number of the error."""
    if not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
