"""The command line of each component, made of files and ports; pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gangline_e2e.certificates import Pair

STAGES = Path(__file__).with_name("stages.yaml")
SERVICE_RANGE = "10.96.0.0/16"
# Nobody sends heartbeats for KWOK's nodes, so no controller may judge nodes by heartbeats.
CONTROLLERS = "*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller"


@dataclass(frozen=True, slots=True)
class Ports:
    """The TCP ports on 127.0.0.1 that one control plane listens on."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    kwok: int


@dataclass(frozen=True, slots=True)
class Secrets:
    """The key files of one control plane; etcd has an authority of its own."""

    etcd_authority: Path
    etcd: Pair
    authority: Path
    server: Pair
    service_accounts: Path


def etcd(data: Path, ports: Ports, secrets: Secrets) -> list[str]:
    """etcd with one member; a crash of the machine may lose data, a crash of etcd does not."""
    client = f"https://127.0.0.1:{ports.etcd}"
    peer = f"https://127.0.0.1:{ports.etcd_peer}"
    return _words(
        {
            "name": "e2e",
            "data-dir": data,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"e2e={peer}",
            "cert-file": secrets.etcd.certificate,
            "key-file": secrets.etcd.key,
            "client-cert-auth": "true",
            "trusted-ca-file": secrets.etcd_authority,
            "peer-cert-file": secrets.etcd.certificate,
            "peer-key-file": secrets.etcd.key,
            "peer-client-cert-auth": "true",
            "peer-trusted-ca-file": secrets.etcd_authority,
            "quota-backend-bytes": 4 * 1024**3,
            "log-level": "warn",
            "unsafe-no-fsync": "true",
        }
    )


def apiserver(ports: Ports, secrets: Secrets, *, service_accounts: bool) -> list[str]:
    """kube-apiserver with TLS and RBAC; without ``service_accounts`` pods need none, because no controller creates any.

    TaintNodesByCondition is off: it would taint every new node until the node lifecycle controller,
    which does not run here, takes the taint away.
    """
    disabled = "TaintNodesByCondition" if service_accounts else "TaintNodesByCondition,ServiceAccount"
    return _words(
        {
            "etcd-servers": f"https://127.0.0.1:{ports.etcd}",
            "etcd-cafile": secrets.etcd_authority,
            "etcd-certfile": secrets.etcd.certificate,
            "etcd-keyfile": secrets.etcd.key,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "secure-port": ports.apiserver,
            "tls-cert-file": secrets.server.certificate,
            "tls-private-key-file": secrets.server.key,
            "client-ca-file": secrets.authority,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": secrets.service_accounts,
            "service-account-signing-key-file": secrets.service_accounts,
            "service-cluster-ip-range": SERVICE_RANGE,
            "authorization-mode": "Node,RBAC",
            "disable-admission-plugins": disabled,
            "allow-privileged": "true",
            "profiling": "false",
        }
    )


def controller_manager(kubeconfig: Path, ports: Ports, secrets: Secrets) -> list[str]:
    """kube-controller-manager without the controllers that judge nodes by their heartbeats."""
    return _words(
        {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "bind-address": "127.0.0.1",
            "secure-port": ports.controller_manager,
            "tls-cert-file": secrets.server.certificate,
            "tls-private-key-file": secrets.server.key,
            "service-account-private-key-file": secrets.service_accounts,
            "root-ca-file": secrets.authority,
            "controllers": CONTROLLERS,
            "use-service-account-credentials": "true",
            "leader-elect": "false",
            "kube-api-qps": 500,
            "kube-api-burst": 1000,
            "profiling": "false",
        }
    )


def kwok(kubeconfig: Path, ports: Ports) -> list[str]:
    """kwok for the nodes annotated `kwok.x-k8s.io/node: fake`.

    Without a node lease duration it renews no leases, so that nodes at rest cost nothing.
    """
    return _words(
        {
            "kubeconfig": kubeconfig,
            "config": STAGES,
            "manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake",
            "server-address": f"127.0.0.1:{ports.kwok}",
            "v": "WARN",
        }
    )


def scheduler(kubeconfig: Path, port: int, secrets: Secrets) -> list[str]:
    """kube-scheduler with its default profile; metrics on ``port`` over TLS."""
    return _words(
        {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "tls-cert-file": secrets.server.certificate,
            "tls-private-key-file": secrets.server.key,
            "leader-elect": "false",
        }
    )


def _words(flags: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
